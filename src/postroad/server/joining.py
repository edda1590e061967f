"""How a manager that publishes joins its domain, at every start: its object there, its id, and then its publishing.

What is written is in directory/publisher.py, and what follows later in manager/publishing.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from postroad.config import Configuration
from postroad.directory.publisher import OwnObject, Publisher
from postroad.errors import AccessDenied, DirectoryError, WrongIdentity
from postroad.manager import Manager
from postroad.manager.manager import IDENTITY_STATE
from postroad.manager.publishing import Publishing
from postroad.names.format import is_internal
from postroad.queues.collection import QUEUE_STATE
from postroad.queues.properties import QueueProperties, QueueType
from postroad.queues.tick import COUNT_STATE
from postroad.security.keys import KeyRing
from postroad.server.preparation import ldap_settings
from postroad.store.interface import RecordStore
from postroad.validation.queue_properties import DEFAULT_JOURNAL_QUOTA_KB, MAX_QUOTA_KB

log = logging.getLogger(__name__)

JOINED_STATE = "published/id"  # the id that the directory has given this manager
_MADE = (QueueType.PRIVATE, QueueType.PUBLIC, QueueType.OUTGOING)


@dataclass(frozen=True, slots=True)
class Membership:
    """A manager that may publish. `written` is None if the directory could not be asked at this start."""

    identifier: UUID
    publisher: Publisher
    written: OwnObject | None
    created: bool = False

    def publish(self, manager: Manager, config: Configuration, refresh: Callable[[], object]) -> None:
        """From now on, the manager publishes."""
        protection = manager.core.protection
        manager.core.tick.set_state(JOINED_STATE, self.identifier.bytes)
        manager.commit_soon()
        server = config.directory.ldap[0].partition("://")[2]
        own = lambda: own_object(config, protection.ring)  # noqa: E731
        manager.publish(Publishing(manager, self.publisher, own, self.written, server, refresh))


async def join(config: Configuration, store: RecordStore, ring: KeyRing) -> Membership:
    """Joins, or brings the manager's object up to date. Raises ConfigurationError if the manager cannot join.

    A manager that has joined before starts without the directory: it tries again while it runs.
    """
    publisher = Publisher(ldap_settings(config), config.manager.name)
    known, own = _stored(store, IDENTITY_STATE), own_object(config, ring)
    try:
        joined = await asyncio.to_thread(publisher.join, own, known, empty=not holds_anything(store))
    except (DirectoryError, AccessDenied) as fault:
        if known is None or isinstance(fault, WrongIdentity) or _stored(store, JOINED_STATE) != known:
            config.fail("directory.publish", f"this manager cannot join the domain: {fault}")
        log.warning("the directory could not be told of this manager", extra={"reason": fault})
        return Membership(known, publisher, None)
    if joined.computer.lower() != config.manager.name.lower():
        log.warning(
            "the directory has another name for this manager's computer",
            extra={"computer": joined.computer, "do": f"set manager.name to {joined.computer}"},
        )
    if joined.created:
        log.info("joined the domain", extra={"object": joined.dn, "id": joined.identifier})
    return Membership(joined.identifier, publisher, own, joined.created)


async def check_join(config: Configuration, store: RecordStore) -> UUID | None:
    """The id that a start would get, as far as reading can tell. Raises ConfigurationError if it could not join."""
    publisher = Publisher(ldap_settings(config), config.manager.name)
    known = _stored(store, IDENTITY_STATE)
    try:
        found = await asyncio.to_thread(publisher.check, known, empty=not holds_anything(store))
    except (DirectoryError, AccessDenied) as fault:
        if known is None or isinstance(fault, WrongIdentity) or _stored(store, JOINED_STATE) != known:
            config.fail("directory.publish", f"this manager cannot join the domain: {fault}")
        return known
    return None if found is None else found.identifier


def own_object(config: Configuration, ring: KeyRing) -> OwnObject:
    quota_kb = config.manager.quota_kb
    return OwnObject(
        public_keys=ring.public_keys,
        signing_keys=ring.signing_keys,
        quota_kb=None if quota_kb == MAX_QUOTA_KB else quota_kb,
        journal_quota_kb=DEFAULT_JOURNAL_QUOTA_KB,
        routing_server=config.directory.routing_server,
        site=config.directory.site,
    )


def holds_anything(store: RecordStore) -> bool:
    """Whether anything in a data directory depends on the manager's id: queues that somebody made, or messages."""
    for name, stored in store.state(QUEUE_STATE).items():
        properties = QueueProperties.decode(stored, name)
        if properties.queue_type in _MADE and not is_internal(properties.path):
            return True
    return any(store.scan(int(name.removeprefix(COUNT_STATE)), limit=1) for name in store.state(COUNT_STATE))


def _stored(store: RecordStore, name: str) -> UUID | None:
    stored = store.state(name).get(name)
    return UUID(bytes=stored) if stored else None
