"""Queues that have to be here: those of the configuration, and the public ones of the directory.

They are made, or changed where they may change; what may not is refused.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from uuid import UUID

from postroad.config import Configuration, ConfiguredQueue
from postroad.directory.file import Enterprise
from postroad.errors import ConfigurationError, PostroadError, QueueNotFound
from postroad.manager import Manager
from postroad.names import QueueTail
from postroad.values.info import QueueInfo

log = logging.getLogger(__name__)

CONFIGURATION = "configuration"  # who made a queue, in the audit log


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A queue that has to be here, and where that is said."""

    settings: ConfiguredQueue
    key: str | None = None  # of the configuration; None where only the directory speaks of it
    identifier: UUID | None = None  # of a public queue in the directory
    directory_key: str | None = None


async def provide_all(manager: Manager, config: Configuration, enterprise: Enterprise) -> None:
    """All of them, in one commit; ConfigurationError for one that is here already, and is another."""
    await asyncio.gather(*(_provide(manager, config, wanted) for wanted in _wanted_queues(config, enterprise)))


def _wanted_queues(config: Configuration, enterprise: Enterprise) -> list[_Wanted]:
    """Those of the configuration and the public ones of the directory; a queue of both has the directory's id."""
    wanted: dict[QueueTail, _Wanted] = {}
    for index, settings in enumerate(config.queues, 1):
        wanted[settings.path.tail] = _Wanted(settings, f"queue[{index}]")
    for index, public in enumerate(enterprise.queues, 1):
        if public.path.computer.lower() == config.manager.name.lower():
            other = wanted.get(public.path.tail)
            settings = ConfiguredQueue(path=public.path) if other is None else other.settings
            key = None if other is None else other.key
            wanted[public.path.tail] = _Wanted(settings, key, public.id, f"queue[{index}]")
    return list(wanted.values())


async def provide_public(manager: Manager, config: Configuration, enterprise: Enterprise) -> None:
    """Makes the public queues that the directory has and this manager has not. Others stay as they are."""
    for wanted in _wanted_queues(config, enterprise):
        if wanted.identifier is not None:
            try:
                await _provide(manager, config, replace(wanted, key=None))
            except PostroadError as fault:
                log.error("public queue not made", extra={"queue": wanted.settings.path, "reason": fault})


async def _provide(manager: Manager, config: Configuration, wanted: _Wanted) -> None:
    """Makes the queue, or changes what may change; what may not is refused."""
    settings = wanted.settings
    path = str(settings.path)
    try:
        info = manager.queue(path)
    except QueueNotFound:
        await manager.create_queue(
            path, transactional=settings.transactional, identifier=wanted.identifier, **_properties(settings)
        )
        log.info("queue created", extra={"queue": path, "transactional": settings.transactional})
        manager.audit("create queue", who=CONFIGURATION, queue=path)
        return
    if wanted.identifier is not None and str(wanted.identifier) != info.id:
        raise ConfigurationError(
            str(config.directory.file),
            f"{wanted.directory_key}.id",
            f"the queue {path} is here already with the id {info.id}; delete it first, or use that id",
        )
    if wanted.key is None:
        return
    if settings.transactional != info.transactional:
        kind = "transactional" if info.transactional else "not transactional"
        config.fail(f"{wanted.key}.transactional", f"the queue {path} is here already and is {kind}; delete it first")
    if changes := _changes(settings, info):
        await manager.set_queue(path, **changes)
        log.info("queue changed", extra={"queue": path, "properties": ",".join(changes)})
        manager.audit("change queue", who=CONFIGURATION, queue=path, properties=",".join(changes))


def _properties(settings: ConfiguredQueue) -> dict[str, object]:
    """What may change while the queue is there, under the queue's own words."""
    return {
        "label": settings.label,
        "journaling": settings.journal,
        "quota_kb": settings.quota_kb,
        "journal_quota_kb": settings.journal_quota_kb,
        "authenticate": settings.authenticate,
        "privacy": settings.privacy,
        "abort_limit": settings.abort_limit,
    }


def _changes(settings: ConfiguredQueue, info: QueueInfo) -> dict[str, object]:
    now = {
        "label": info.label,
        "journaling": info.journal,
        "quota_kb": info.quota_kb,
        "journal_quota_kb": info.journal_quota_kb,
        "authenticate": info.authenticate,
        "privacy": info.privacy,
        "abort_limit": info.abort_limit,
    }
    return {
        name: value
        for name, value in _properties(settings).items()
        if now[name] != (settings.privacy.value if name == "privacy" else value)
    }
