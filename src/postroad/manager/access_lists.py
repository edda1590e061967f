"""The access lists of queues: show, replace, edit. A change is durable when its call returns."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from postroad.errors import AccessDenied, InvalidArgument, UnsupportedFormatNameOperation
from postroad.manager.durable import DurableCore
from postroad.manager.lookups import Lookups
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
# Changes properties of a queue that the function gives at the moment of the change.
ChangeProperties = Callable[[Queue, Callable[[], dict[str, object]]], Coroutine[Any, Any, None]]
_WITH_LIST = (QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR)


class AccessLists:
    """The calls for access lists. The listener checks whether its caller may use them; only ownership is checked
    here."""

    def __init__(self, durable: DurableCore, change: ChangeProperties, lookups: Lookups | None = None) -> None:
        """`lookups` finds accounts of the domain by name."""
        self._lookups = lookups
        self._core = durable.core
        self._change_properties = change

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
        r"""Edits the list. `edit` is a word of EDITS; `who` is a user, a SID, `everyone` or `anonymous`, or an account
        of the domain, such as `CORP\ann` or `ann@corp.local`; `rights` are words."""
        mask = parse_queue_rights(rights)
        sid = await self._resolve(who)
        return await self._change(name, lambda queue, old: format_sddl(EDITS[edit](old, sid, mask)))

    async def _resolve(self, who: str) -> Sid:
        """Raises InvalidArgument for somebody whom neither the configuration nor the directory knows."""
        users = self._core.access.users
        if self._lookups is None or users.named(who) is not None or not ("\\" in who or "@" in who):
            return users.resolve(who)
        account = await self._lookups.named(who)
        if account is None:
            raise InvalidArgument(f"who must be an account of the domain or a [[user]], got {who!r}, which is neither")
        return account.sid

    async def _change(self, name: Name, changed: Callable[[Queue, SecurityDescriptor], str | None]) -> str:
        queue = self._core.queues.get(name)
        if queue.properties.queue_type not in _WITH_LIST:
            raise UnsupportedFormatNameOperation(
                f"{queue.name} has no access list of its own: journals and subqueues have their queue's, other queues "
                "the queue manager's"
            )

        await self._change_properties(queue, lambda: {"acl": changed(queue, self._core.access.descriptor(queue))})
        return format_sddl(self._core.access.descriptor(queue))


def _check_owner(old: SecurityDescriptor, new: SecurityDescriptor, token: Token) -> None:
    """[MS-DTYP] 2.5.3.4: the right to take ownership lets callers make themselves the owner, and no one else."""
    if token.everything:
        return
    if new.owner != token.user or not allowed(old, token, QueueRight.TAKE_QUEUE_OWNERSHIP.value):
        raise AccessDenied("only administrators may give a queue to another owner; take-ownership is for oneself")
