"""Queues that must exist: those of the configuration, and the directory's public queues.

The server creates them, or changes the properties that can change. It refuses any other change.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from postroad.config import Configuration, ConfiguredQueue
from postroad.directory.snapshot import Directory
from postroad.errors import ConfigurationError, PostroadError, QueueNotFound
from postroad.manager import Manager
from postroad.names import PathName, QueueKind, QueueTail
from postroad.reports.info import QueueInfo
from postroad.security.sddl import format_sddl
from postroad.validation.kinds import shown
from postroad.validation.queue_properties import (
    CHANGEABLE,
    QUEUE_PROPERTIES,
    settings_of,
)

log = logging.getLogger(__name__)

_LOCAL = frozenset({"abort_limit"})  # [MS-MQDSSM] has no attribute for it
CONFIGURATION = "configuration"  # who creates or changes a queue, in the audit log


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A queue that must exist, and the setting that asks for it."""

    settings: ConfiguredQueue
    key: str | None = None  # None if only the directory names the queue
    identifier: UUID | None = None  # from the directory, for a public queue
    directory_key: str | None = None
    of_domain: bool = False  # only Active Directory names the queue, and it holds all properties


async def provide_all(manager: Manager, config: Configuration, directory: Directory) -> None:
    """Provides all of them, in one commit. If one exists with another id or fixed property, raises ConfigurationError
    before anything changes."""
    for wanted in _wanted_queues(manager, config, directory):
        with suppress(QueueNotFound):
            if not wanted.of_domain:
                _check(manager.queue(str(wanted.settings.path)), config, wanted)
    for settings in () if config.multicast.enabled else config.queues:
        if settings.multicast_address is not None:
            log.warning(
                "multicast is off: nothing reaches the queue's multicast address; set enabled = true in [multicast]",
                extra={"queue": settings.path, "address": settings.multicast_address},
            )
    every = _wanted_queues(manager, config, directory)
    # A domain that does not answer, or a bad object there, must not keep the manager from its other queues.
    risky = [each for each in every if each.of_domain or _is_published(manager, each)]
    await asyncio.gather(*(_provide(manager, config, each) for each in every if each not in risky))
    for each in risky:
        # what has changed here since the start may be newer than what was read of the domain
        if manager.publishing is None or not each.of_domain or not manager.publishing.is_newer(each.identifier, 0):
            await _try_to_provide(manager, config, each)


def _is_published(manager: Manager, wanted: _Wanted) -> bool:
    return manager.publishing is not None and wanted.settings.path.tail.kind is QueueKind.PUBLIC


def _wanted_queues(manager: Manager, config: Configuration, directory: Directory) -> list[_Wanted]:
    """The queues of the configuration and the directory's public queues. A queue in both gets the directory's id and
    base priority."""
    wanted: dict[QueueTail, _Wanted] = {}
    for index, settings in enumerate(config.queues, 1):
        wanted[settings.path.tail] = _Wanted(settings, f"queue[{index}]")
    own = directory.manager(manager.identifier) or directory.manager_named(config.manager.name)
    for public in () if own is None else directory.queues_of(own.identifier):
        # the computer may have another name in the directory by now
        path, properties = PathName(config.manager.name, public.pathname.tail), public.properties
        other = wanted.get(path.tail)
        if other is not None:
            settings, key = other.settings, other.key
        else:
            held = {} if properties is None else settings_of(properties)
            settings, key = ConfiguredQueue(path=path, **held), None
        wanted[path.tail] = _Wanted(
            replace(settings, base_priority=public.base_priority),
            key,
            public.identifier,
            public.full_path or f"queue[{directory.queues.index(public) + 1}]",
            of_domain=properties is not None and key is None,
        )
    return list(wanted.values())


async def provide_public(manager: Manager, config: Configuration, directory: Directory, mark: int = 0) -> bool:
    """Creates the directory's public queues that do not exist here yet. Others get the properties that Active Directory
    holds; with a file, they stay as they are. A queue that was published or deleted here after `mark`, when the
    directory may have been read already, is left alone. Returns whether there was one: then this must be done again
    after the next read, even if that finds nothing new."""
    publishing = manager.publishing
    wanted = [each for each in _wanted_queues(manager, config, directory) if each.identifier is not None]
    ready = wanted
    if publishing is not None:
        publishing.compare({each.identifier for each in wanted}, mark)
        ready = [each for each in wanted if not publishing.is_newer(each.identifier, mark)]
    for each in ready:
        await _try_to_provide(manager, config, replace(each, key=None))
    return len(ready) < len(wanted)


async def _try_to_provide(manager: Manager, config: Configuration, wanted: _Wanted) -> None:
    try:
        await _provide(manager, config, wanted)
    except PostroadError as fault:
        log.error("public queue not provided", extra={"queue": wanted.settings.path, "reason": fault})


async def _provide(manager: Manager, config: Configuration, wanted: _Wanted) -> None:
    """Creates the queue, or changes the properties that can change."""
    settings = wanted.settings
    path = str(settings.path)
    acl = None if settings.acl is None else format_sddl(settings.acl)  # None keeps what an operator has set
    try:
        info = manager.queue(path)
    except QueueNotFound:
        await manager.create_queue(path, identifier=wanted.identifier, **settings_of(settings), acl=acl)
        log.info("queue created", extra={"queue": path, "transactional": settings.transactional})
        manager.audit("create queue", who=CONFIGURATION, queue=path)
        return
    _check(info, config, wanted)
    if wanted.key is None and not wanted.of_domain:
        return
    changes = _changes(settings, info, of_domain=wanted.of_domain)
    if acl is not None and acl != manager.core.queues.get(path).properties.acl:
        changes["acl"] = acl
    if changes:
        await (manager.follow_directory if wanted.of_domain else manager.set_queue)(path, **changes)
        log.info("queue changed", extra={"queue": path, "properties": ",".join(changes)})
        manager.audit("change queue", who=CONFIGURATION, queue=path, properties=",".join(changes))


def _check(info: QueueInfo, config: Configuration, wanted: _Wanted) -> None:
    """Raises ConfigurationError if the existing queue cannot become the wanted one."""
    if wanted.identifier is not None and str(wanted.identifier) != info.id:
        raise ConfigurationError(
            str(config.directory.file or "directory"),
            f"{wanted.directory_key}.id",
            f"the queue {info.path} exists with the id {info.id}: delete the queue first, or use that id",
        )
    if wanted.key is None and not wanted.of_domain:
        return
    for name in QUEUE_PROPERTIES.keys() - CHANGEABLE.keys():
        if (value := getattr(info, name)) != getattr(wanted.settings, name):
            fault = f"must be {shown(value)}, which the queue {info.path} was created with; delete the queue first"
            if wanted.of_domain:
                raise ConfigurationError("directory", f"{wanted.directory_key}.{name}", fault)
            config.fail(f"{wanted.key}.{name}", fault)


def _changes(settings: ConfiguredQueue, info: QueueInfo, *, of_domain: bool) -> dict[str, Any]:
    """The properties that differ and that can change, and of a queue `of_domain` that a domain can hold."""
    wanted = {name: getattr(settings, name) for name in CHANGEABLE if not (of_domain and name in _LOCAL)}
    return {name: value for name, value in wanted.items() if value != getattr(info, name)}
