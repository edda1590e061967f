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
from postroad.directory.file import Enterprise
from postroad.errors import ConfigurationError, PostroadError, QueueNotFound
from postroad.manager import Manager
from postroad.names import QueueTail
from postroad.reports.info import QueueInfo
from postroad.security.sddl import format_sddl
from postroad.validation.kinds import shown
from postroad.validation.queue_properties import (
    CHANGEABLE,
    QUEUE_PROPERTIES,
    settings_of,
)

log = logging.getLogger(__name__)

CONFIGURATION = "configuration"  # who creates or changes a queue, in the audit log


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A queue that must exist, and the setting that asks for it."""

    settings: ConfiguredQueue
    key: str | None = None  # None if only the directory names the queue
    identifier: UUID | None = None  # from the directory, for a public queue
    directory_key: str | None = None


async def provide_all(manager: Manager, config: Configuration, enterprise: Enterprise) -> None:
    """Provides all of them, in one commit. If one exists with another id or fixed property, raises ConfigurationError
    before anything changes."""
    for wanted in _wanted_queues(config, enterprise):
        with suppress(QueueNotFound):
            _check(manager.queue(str(wanted.settings.path)), config, wanted)
    for settings in () if config.multicast.enabled else config.queues:
        if settings.multicast_address is not None:
            log.warning(
                "multicast is off: nothing reaches the queue's multicast address; set enabled = true in [multicast]",
                extra={"queue": settings.path, "address": settings.multicast_address},
            )
    await asyncio.gather(*(_provide(manager, config, wanted) for wanted in _wanted_queues(config, enterprise)))


def _wanted_queues(config: Configuration, enterprise: Enterprise) -> list[_Wanted]:
    """The queues of the configuration and the directory's public queues. A queue in both gets the directory's id and
    base priority."""
    wanted: dict[QueueTail, _Wanted] = {}
    for index, settings in enumerate(config.queues, 1):
        wanted[settings.path.tail] = _Wanted(settings, f"queue[{index}]")
    for index, public in enumerate(enterprise.queues, 1):
        if public.path.computer.lower() == config.manager.name.lower():
            other = wanted.get(public.path.tail)
            settings = ConfiguredQueue(path=public.path) if other is None else other.settings
            settings = replace(settings, base_priority=public.base_priority)
            key = None if other is None else other.key
            wanted[public.path.tail] = _Wanted(settings, key, public.id, f"queue[{index}]")
    return list(wanted.values())


async def provide_public(manager: Manager, config: Configuration, enterprise: Enterprise) -> None:
    """Creates the directory's public queues that do not exist here yet. Others stay as they are."""
    for wanted in _wanted_queues(config, enterprise):
        if wanted.identifier is not None:
            try:
                await _provide(manager, config, replace(wanted, key=None))
            except PostroadError as fault:
                log.error("public queue not created", extra={"queue": wanted.settings.path, "reason": fault})


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
    if wanted.key is None:
        return
    changes = _changes(settings, info)
    if acl is not None and acl != manager.core.queues.get(path).properties.acl:
        changes["acl"] = acl
    if changes:
        await manager.set_queue(path, **changes)
        log.info("queue changed", extra={"queue": path, "properties": ",".join(changes)})
        manager.audit("change queue", who=CONFIGURATION, queue=path, properties=",".join(changes))


def _check(info: QueueInfo, config: Configuration, wanted: _Wanted) -> None:
    """Raises ConfigurationError if the existing queue cannot become the wanted one."""
    if wanted.identifier is not None and str(wanted.identifier) != info.id:
        raise ConfigurationError(
            str(config.directory.file),
            f"{wanted.directory_key}.id",
            f"the queue {info.path} exists with the id {info.id}: delete the queue first, or use that id",
        )
    if wanted.key is None:
        return
    for name in QUEUE_PROPERTIES.keys() - CHANGEABLE.keys():
        if (value := getattr(info, name)) != getattr(wanted.settings, name):
            fault = f"must be {shown(value)}, which the queue {info.path} was created with; delete the queue first"
            config.fail(f"{wanted.key}.{name}", fault)


def _changes(settings: ConfiguredQueue, info: QueueInfo) -> dict[str, Any]:
    """The properties that differ and that can change."""
    wanted = {name: getattr(settings, name) for name in CHANGEABLE}
    return {name: value for name, value in wanted.items() if value != getattr(info, name)}
