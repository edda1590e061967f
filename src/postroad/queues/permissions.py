"""Who may use a queue: which descriptor counts, and which rights of [MS-MQMQ] 2.2.23 and 2.2.24 an action needs.

A journal and a subqueue have the descriptor of their queue. The manager's journal and dead letters have the manager's
descriptor. Outgoing queues are for administrators, but anyone may send.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from uuid import UUID

from postroad.errors import AccessDenied, IllegalIdentifier, PostroadError, RemoteProtocolError
from postroad.queues.collection import JOURNAL, QueueCollection
from postroad.queues.core_settings import CoreSettings
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.security.access import (
    ADMINISTRATORS,
    Token,
    allowed,
    default_manager_descriptor,
    default_queue_descriptor,
)
from postroad.security.accounts import Accounts, is_domain_account
from postroad.security.descriptors import EVERYONE, Acl, SecurityDescriptor, Sid
from postroad.security.guard import arrived_encrypted, claimed_sid
from postroad.security.refusals import BODY_ENCRYPTED, BODY_NOT_ENCRYPTED, NO_ACCESS, NOT_AUTHENTICATED, Refused
from postroad.security.rights import QUEUE_MAPPING, QueueManagerRight, QueueRight
from postroad.security.sddl import parse_sddl
from postroad.security.users import User, Users
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.constants import SecurityFlags, SenderIdType
from postroad.wire.security_patch import security_parts
from postroad.wire.view import MessageView

_log = logging.getLogger(__name__)


class Action(Enum):
    """What somebody wants to do with a queue. A purge removes messages as a receive does."""

    SEND = "send to"
    PEEK = "look at the messages of"
    RECEIVE = "receive from"
    GET_PROPERTIES = "see the properties of"
    SET_PROPERTIES = "change the properties of"
    DELETE = "delete"
    GET_PERMISSIONS = "see the access list of"
    SET_PERMISSIONS = "change the access list of"


# The words of `postroad queue acl`. For a journal, `receive` means receive-journal.
ACTION_WORDS = {
    Action.SEND: "write",
    Action.PEEK: "peek",
    Action.RECEIVE: "receive",
    Action.GET_PROPERTIES: "get-properties",
    Action.SET_PROPERTIES: "set-properties",
    Action.DELETE: "delete",
    Action.GET_PERMISSIONS: "get-permissions",
    Action.SET_PERMISSIONS: "set-permissions",
}
_QUEUE_RIGHTS = {
    Action.SEND: QueueRight.WRITE_MESSAGE.value,
    Action.PEEK: QueueRight.PEEK_MESSAGE.value,
    Action.RECEIVE: QueueRight.RECEIVE_MESSAGE.value,
    Action.GET_PROPERTIES: QueueRight.GET_QUEUE_PROPERTIES.value,
    Action.SET_PROPERTIES: QueueRight.SET_QUEUE_PROPERTIES.value,
    Action.DELETE: QueueRight.DELETE_QUEUE.value,
    Action.GET_PERMISSIONS: QueueRight.GET_QUEUE_PERMISSIONS.value,
    Action.SET_PERMISSIONS: QueueRight.CHANGE_QUEUE_PERMISSIONS.value,
}
_JOURNAL_RIGHTS = _QUEUE_RIGHTS | {Action.RECEIVE: QueueRight.RECEIVE_JOURNAL_MESSAGE.value}
_MANAGER_RIGHTS = {
    Action.GET_PROPERTIES: QueueManagerRight.GET_MACHINE_PROPERTIES.value,
    Action.SET_PROPERTIES: QueueManagerRight.SET_MACHINE_PROPERTIES.value,
    Action.GET_PERMISSIONS: QueueManagerRight.GET_MACHINE_PERMISSIONS.value,
    Action.SET_PERMISSIONS: QueueManagerRight.CHANGE_MACHINE_PERMISSIONS.value,
}
_MANAGER_JOURNAL_RIGHTS = _MANAGER_RIGHTS | {
    Action.PEEK: QueueManagerRight.PEEK_JOURNAL_QUEUE_MESSAGE.value,
    Action.RECEIVE: QueueManagerRight.RECEIVE_JOURNAL_QUEUE_MESSAGE.value,
}
_DEAD_LETTER_RIGHTS = _MANAGER_RIGHTS | {
    Action.PEEK: QueueManagerRight.PEEK_DEADLETTER_MESSAGE.value,
    Action.RECEIVE: QueueManagerRight.RECEIVE_DEADLETTER_MESSAGE.value,
}
_WRITE = QueueRight.WRITE_MESSAGE.value
_DEFAULT = default_queue_descriptor()
_CLOSED = SecurityDescriptor(owner=ADMINISTRATORS, dacl=Acl())
_ANONYMOUS, _EVERYONE = Token.anonymous(), Token.everyone()
_SENDER_ID_TYPE = SecurityFlags.SENDER_ID_TYPE.value
_NULL_SID = "S-1-0-0"
_SIGNATURE_TYPE = SecurityFlags.SIGNATURE_TYPE.value  # 0 until a Guard has checked the signature


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known of a message's sender and of its security, after the check of signature and key.

    If the manager writes something because of a message, it acts with the credentials of that message. `own` are those
    of the manager itself, and of applications here that may do everything. `local` are those of other users here.
    `origin` is the address that a message of another manager came from, if known.
    """

    token: Token
    authenticated: bool = False
    encrypted: bool = False
    own: bool = False
    local: bool = False
    origin: str | None = None


NOBODY = Credentials(_ANONYMOUS)
OWN = Credentials(Token.administrator(), authenticated=True, encrypted=True, own=True, local=True)


@lru_cache(maxsize=4096)
def descriptor_of(acl: str | None) -> SecurityDescriptor:
    """The descriptor in the queue's property. A stored list that this version cannot read must neither stop the manager
    nor open the queue: only administrators may use the queue then."""
    if acl is None:
        return _DEFAULT
    try:
        return parse_sddl(acl).mapped(QUEUE_MAPPING)
    except PostroadError as fault:
        _log.error("access list not understood: only administrators may use the queue", extra={"reason": str(fault)})
        return _CLOSED


@dataclass(frozen=True, slots=True)
class _Listed:
    """The descriptor of a public queue, and the bytes that the directory has; None if it was changed here."""

    data: bytes | None
    descriptor: SecurityDescriptor


def _listed(queue: UUID, data: bytes, before: _Listed | None) -> _Listed:
    if before is not None and before.data == data:
        return before
    try:
        return _Listed(data, SecurityDescriptor.decode(data).mapped(QUEUE_MAPPING))
    except PostroadError as fault:
        reason = str(fault) if data else "it is hidden: let this manager read the queue's permissions in the directory"
        _log.error(
            "access list in the directory cannot be read: only administrators may use the queue",
            extra={"queue": queue, "reason": reason},
        )
        return _Listed(data, _CLOSED)


def no_right(action: Action, queue: Queue) -> str:
    fixed = queue.properties.queue_type in (QueueType.SYSTEM, QueueType.OUTGOING)  # the manager's list counts there
    how = "only administrators have it" if fixed else "an administrator grants it with `postroad queue acl grant`"
    return f"no right to {action.value} {queue.name}: {how}"


class Access:
    """Access checks of one queue manager. With `claimed`, it believes the sender named in an unsigned message, as
    MSMQ."""

    def __init__(self, queues: QueueCollection, accounts: Accounts | None = None) -> None:
        """`accounts` are those of a directory, for SIDs that are no user's here."""
        self._queues = queues
        self._accounts = accounts
        self._listed: dict[UUID, _Listed] = {}
        self._directory_first = False
        self.users = Users()
        self.claimed = False
        self._tickets = False
        self._gone: frozenset[str] = frozenset()
        self.manager_descriptor = default_manager_descriptor()

    def use(self, settings: CoreSettings) -> None:
        before, now = ({each.name.casefold() for each in some} for some in (self.users, settings.users))
        self._gone = (self._gone | before) - now
        self.users, self.claimed, self._tickets = settings.users, settings.claimed_senders, settings.tickets

    def is_gone(self, name: str) -> bool:
        """Whether somebody was a user and was removed. Such a user counts as nobody, not as somebody unknown."""
        return name.casefold() in self._gone

    def token(self, sid: Sid) -> Token:
        """The token of an authenticated SID: that of a user here, otherwise that of an account of the directory."""
        if self._accounts is None or self.users.with_sid(sid) is not None:
            return self.users.token(sid)
        return self._accounts.token(sid)

    def login_token(self, user: User) -> Token:
        """The token of somebody of the domain who has logged in."""
        return user.token if self._accounts is None else self._accounts.login_token(user)

    def is_pending(self, sid: Sid) -> bool:
        """Whether the directory has yet to say whose this SID is."""
        return self._accounts is not None and self.users.with_sid(sid) is None and not self._accounts.is_known(sid)

    def is_user(self, sid: Sid) -> bool:
        """Whether this is a user here or an account of the domain that may log in. What is pending counts as one."""
        if self._accounts is None or self.users.with_sid(sid) is not None:
            return self.users.with_sid(sid) is not None or (self._tickets and is_domain_account(sid))
        return self.is_pending(sid) or self._accounts.is_user(sid)

    def awaits(self, view: MessageView) -> bool:
        """Whether the directory has yet to say who the sender is that an unsigned message names."""
        if not self.claimed or self._accounts is None:
            return False
        sid = claimed_sid(view)
        return sid is not None and self.users.with_sid(sid) is None and self._accounts.is_due(sid)

    def use_directory(self, found: Mapping[UUID, bytes], *, first: bool) -> set[UUID]:
        """Takes Queue.Security of public queues, [MS-MQQB] 3.1.5.8.3. Returns the ids of those that changed.

        A list that was set here counts instead, unless the directory comes `first`: a manager that publishes its queues
        writes each change there. One that cannot be read leaves its queue to administrators.
        """
        before, self._directory_first = self._listed, first
        self._listed = {each: _listed(each, data, before.get(each)) for each, data in found.items()}
        return {each for each in before.keys() | found.keys() if before.get(each) != self._listed.get(each)}

    def published(self, queue: Queue) -> None:
        """The queue's list was changed here, and in the directory, which will be read again only later."""
        properties = queue.properties
        if self._directory_first and properties.identifier in self._listed:
            self._listed[properties.identifier] = _Listed(None, descriptor_of(properties.acl))

    def descriptor(self, queue: Queue) -> SecurityDescriptor:
        if queue.properties.queue_type in (QueueType.SYSTEM, QueueType.OUTGOING):
            return self.manager_descriptor
        return self._descriptor(queue)

    def _descriptor(self, queue: Queue) -> SecurityDescriptor:
        properties = self._whole(queue).properties
        if self._listed and (properties.acl is None or self._directory_first):
            found = self._listed.get(properties.identifier)
            if found is not None and properties.queue_type is QueueType.PUBLIC:
                return found.descriptor
        return descriptor_of(properties.acl)

    def _whole(self, queue: Queue) -> Queue:
        """The queue that a journal or subqueue belongs to; for any other queue, the queue itself."""
        owner = queue.properties.owner
        return queue if owner is None else self._queues.by_number[owner]

    def allows(self, queue: Queue, token: Token, action: Action) -> bool:
        if token.everything:
            return True
        kind = queue.properties.queue_type
        rights = _QUEUE_RIGHTS
        if kind is QueueType.OUTGOING:
            if action is Action.SEND:
                return token.only is None
            rights = _MANAGER_RIGHTS
        elif kind is QueueType.JOURNAL:
            rights = _JOURNAL_RIGHTS
        elif kind is QueueType.SYSTEM:
            rights = _MANAGER_JOURNAL_RIGHTS if queue.properties.path == JOURNAL else _DEAD_LETTER_RIGHTS
        mask = rights.get(action)
        return mask is not None and allowed(self.descriptor(queue), token, mask)

    def has_own_list(self, queue: Queue) -> bool:
        """Whether an access list was set for the queue, here or in the directory. Otherwise the default list counts."""
        return self._descriptor(queue) is not _DEFAULT

    def words(self, queue: Queue, token: Token) -> tuple[str, ...]:
        """The words for the rights that somebody has."""
        return tuple(word for action, word in ACTION_WORDS.items() if self.allows(queue, token, action))

    def require(self, queue: Queue, token: Token, action: Action) -> None:
        if not self.allows(queue, token, action):
            raise AccessDenied(no_right(action, queue))

    def may_create(self, token: Token) -> bool:
        return token.everything or allowed(self.manager_descriptor, token, QueueManagerRight.CREATE_QUEUE.value)

    def may_see_manager(self, token: Token) -> bool:
        right = QueueManagerRight.GET_MACHINE_PROPERTIES.value
        return token.everything or allowed(self.manager_descriptor, token, right)

    def may_send(self, queue: Queue, token: Token) -> bool:
        """The fast form of `allows`, for messages that arrive."""
        return allowed(self._descriptor(queue), token, _WRITE)

    def refusal(self, queue: Queue, credentials: Credentials) -> Refused | None:
        """[MS-MQQB] 3.1.5.8.3: why the queue accepts nothing from a sender with these credentials."""
        properties = queue.properties
        if properties.authenticate and not credentials.authenticated:
            return NOT_AUTHENTICATED
        if properties.privacy is not QueuePrivacy.OPTIONAL:
            if properties.privacy is QueuePrivacy.BODY and not credentials.encrypted:
                return BODY_NOT_ENCRYPTED
            if properties.privacy is QueuePrivacy.NONE and credentials.encrypted:
                return BODY_ENCRYPTED
        token = credentials.token
        has_list = properties.acl is not None or (self._listed and properties.identifier in self._listed)
        if (has_list or token.only is not None) and not self.may_send(queue, token):
            return NO_ACCESS  # the default list lets everyone send
        return None

    def may_cause(self, queue: Queue, credentials: Credentials) -> bool:
        """Whether the manager may write into the queue because of a message with these credentials. What it writes is
        never encrypted."""
        return credentials.own or self.refusal(queue, credentials) in (None, BODY_ENCRYPTED)

    def claimed_sender(self, view: MessageView, *, signed: bool = False) -> Token:
        """The token of the sender that a message names without proof by a certificate. It is anonymous, unless such
        names are believed. A message that a queue manager has `signed` counts as Everyone's, [MS-MQQB] 3.1.5.8.3,
        because anybody can claim to be a queue manager."""
        header = security_parts(view)
        if header is None:
            return _ANONYMOUS
        sender_id_type = header.flags & _SENDER_ID_TYPE
        if sender_id_type == SenderIdType.QUEUE_MANAGER:
            return _EVERYONE if signed or self.claimed else _ANONYMOUS
        if not self.claimed or sender_id_type != SenderIdType.SID:
            return _ANONYMOUS
        return self._token(header.security_id)

    def _token(self, security_id: bytes) -> Token:
        try:
            return self.token(Sid.decode(security_id))
        except RemoteProtocolError:
            return _ANONYMOUS

    # The credentials of stored messages

    def of_user(self, sid: str) -> Credentials:
        """Of an application's user here. What stays within this manager counts as encrypted."""
        try:
            parsed = Sid.parse(sid)
        except IllegalIdentifier:  # somebody has put it into the store by hand
            return Credentials(_ANONYMOUS, local=True)
        token = _EVERYONE if parsed == EVERYONE else self.token(parsed)
        return Credentials(token, authenticated=token not in (_EVERYONE, _ANONYMOUS), encrypted=True, local=True)

    def of_arrived(self, view: MessageView, origin: str | None) -> Credentials:
        """Of a message that a queue here has accepted: its header has the Guard's result."""
        header = security_parts(view)
        if header is None:
            return Credentials(_ANONYMOUS, origin=origin)
        authenticated = header.flags & _SIGNATURE_TYPE != 0
        if authenticated and header.flags & _SENDER_ID_TYPE == SenderIdType.SID:
            token = self._token(header.security_id)
        else:
            token = self.claimed_sender(view, signed=authenticated)
        return Credentials(token, authenticated, arrived_encrypted(view), origin=origin)


def sender_of(token: Token) -> str | None:
    """The sender, as `of_user` reads it. None for those who may do everything."""
    if token.everything:
        return None
    if token.only is not None:
        return _NULL_SID  # nobody sends anything
    return str(EVERYONE if token.user is None else token.user)
