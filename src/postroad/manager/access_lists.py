"""The access lists of queues: show, replace, edit. A change is durable when its call returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from postroad.errors import AccessDenied, UnsupportedFormatNameOperation
from postroad.manager.durable import DurableCore
from postroad.manager.reads import Name
from postroad.queues.local import TRUSTED
from postroad.queues.permissions import descriptor_of
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.security.access import Token, allowed, deny, grant, revoke
from postroad.security.descriptors import SecurityDescriptor, Sid
from postroad.security.rights import QUEUE_MAPPING, QueueRight, parse_queue_rights
from postroad.security.sddl import format_sddl, parse_sddl

EDITS: Mapping[str, Callable[[SecurityDescriptor, Sid, int], SecurityDescriptor]] = MappingProxyType(
    {"grant": grant, "deny": deny, "revoke": revoke}
)
_WITH_LIST = (QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR)


class AccessLists:
    """The calls for access lists. The listener checks whether its caller may use them; only ownership is checked
    here."""

    def __init__(self, durable: DurableCore) -> None:
        self._core = durable.core
        self._clock = durable.clock
        self._durably = durable.durably

    def show(self, name: Name) -> str:
        """The descriptor that applies to the queue, in SDDL."""
        return format_sddl(self._core.access.descriptor(self._core.queues.get(name)))

    async def set(self, name: Name, sddl: str | None, token: Token = TRUSTED) -> str:
        """Replaces the list, and keeps the owner if `sddl` names none. None restores the default.

        If `sddl` has no `D:`, everyone may do everything.
        """
        new = descriptor_of(None) if sddl is None else parse_sddl(sddl).mapped(QUEUE_MAPPING)

        def changed(queue: Queue, old: SecurityDescriptor) -> str | None:
            given = new if new.owner is not None else replace(new, owner=old.owner)
            if given.owner != old.owner:
                _check_owner(old, given, token)
            return None if sddl is None else format_sddl(given)

        return await self._change(name, changed)

    async def edit(self, name: Name, edit: str, who: str, rights: Sequence[str]) -> str:
        """Edits the list. `edit` is a word of EDITS; `who` is a user, a SID, `everyone` or `anonymous`; `rights` are
        words."""
        sid, mask = self._core.access.users.resolve(who), parse_queue_rights(rights)
        return await self._change(name, lambda queue, old: format_sddl(EDITS[edit](old, sid, mask)))

    async def _change(self, name: Name, changed: Callable[[Queue, SecurityDescriptor], str | None]) -> str:
        queue = self._core.queues.get(name)
        if queue.properties.queue_type not in _WITH_LIST:
            raise UnsupportedFormatNameOperation(
                f"{queue.name} has no access list of its own: journals and subqueues have their queue's, other queues "
                "the queue manager's"
            )

        def change() -> None:
            old = self._core.access.descriptor(queue)
            self._core.change_queue(queue, self._clock(), acl=changed(queue, old))

        await self._durably(change)
        return format_sddl(self._core.access.descriptor(queue))


def _check_owner(old: SecurityDescriptor, new: SecurityDescriptor, token: Token) -> None:
    """[MS-DTYP] 2.5.3.4: the right to take ownership lets callers make themselves the owner, and no one else."""
    if token.everything:
        return
    if new.owner != token.user or not allowed(old, token, QueueRight.TAKE_QUEUE_OWNERSHIP.value):
        raise AccessDenied("only administrators may give a queue to another owner; take-ownership is for oneself")
