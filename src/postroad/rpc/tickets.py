"""Whose account a Kerberos ticket belongs to: a user of the configuration, or the account that the domain names in the
ticket's PAC, [MS-PAC] 2.5.

The PAC spares a question to the directory at each login, and its groups are those of the login itself. GSSAPI has
verified its signature with the server's own key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from postroad.errors import AuthenticationFailed, InvalidArgument, PostroadError, RemoteProtocolError
from postroad.rpc import ndr
from postroad.security.access import is_account
from postroad.security.descriptors import Sid
from postroad.security.kerberos import Ticket
from postroad.security.users import User, Users

MAX_GROUPS: Final = 4096  # of one ticket; Windows puts at most 1,015 into one
_SERIALIZATION: Final = bytes.fromhex("01100800")  # [MS-RPCE] 2.2.6.1: version 1, little-endian, a header of 8 octets
_BODY: Final = 16  # after the common and the private header
_EXTRA_SIDS: Final = 0x20  # of UserFlags
_RESOURCE_GROUPS: Final = 0x200
_ENABLED: Final = 0x04  # SE_GROUP_ENABLED
_DOMAIN_ACCOUNTS: Final = 21  # S-1-5-21-...: the accounts and groups of a domain


class Accounts(Protocol):
    """The accounts of a directory."""

    def by_principal(self, principal: str) -> User | None:
        """The account with this Kerberos name, such as `ann@CORP.LOCAL`, as far as it is known without a wait."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has logged in. `account` is None for a user of the configuration, who is looked up by `name` at each call."""

    name: str
    account: User | None = None


class Principals:
    """Finds the owner of a ticket. Users of the configuration come first; then the ticket's PAC; then `accounts`."""

    def __init__(self, users: Callable[[], Users], accounts: Accounts | None = None) -> None:
        self._users = users
        self._accounts = accounts

    def owner(self, ticket: Ticket) -> Owner:
        """Raises AuthenticationFailed for somebody who is in none of the three: such a caller is nobody."""
        users, principal = self._users(), ticket.principal
        name, _, realm = principal.rpartition("@")
        found = users.with_principal(principal)
        if found is None and realm == ticket.realm:
            # A user of another realm is somebody else, whatever the name; so is one with a principal of its own.
            found = users.named(name)
            found = None if found is not None and found.principal is not None else found
        if found is not None:
            return Owner(found.name)
        account = None
        if ticket.logon_info is not None:
            sid, groups = read_logon_info(ticket.logon_info)
            found = users.with_sid(sid)
            if found is not None:
                return Owner(found.name)
            account = _account(principal, sid, groups)
        if account is None and self._accounts is not None:
            account = self._accounts.by_principal(principal)
        if account is None:
            raise AuthenticationFailed(
                f"{principal} is nobody here: add a [[user]] with principal = {principal!r}", who=principal
            )
        return Owner(account.name, account)


def _account(principal: str, sid: Sid, groups: frozenset[Sid]) -> User | None:
    try:
        return User(principal, sid, groups) if is_account(sid) else None
    except InvalidArgument:
        return None


# KERB_VALIDATION_INFO, [MS-PAC] 2.5


def _text() -> ndr.NdrType:
    return ndr.unique(
        ndr.array(ndr.ushort, size_is=lambda scope: scope["most"] // 2, length_is=lambda scope: scope["length"] // 2)
    )


@dataclass(frozen=True, slots=True)
class FileTime:
    low: ndr.Dword
    high: ndr.Dword


@dataclass(frozen=True, slots=True)
class UnicodeString:
    """RPC_UNICODE_STRING: sizes in octets, and the characters as numbers, since nobody reads them."""

    length: ndr.Ushort
    most: ndr.Ushort
    buffer: Annotated[tuple[int, ...] | None, _text()]


@dataclass(frozen=True, slots=True)
class RpcSid:
    revision: Annotated[int, ndr.uchar]
    count: Annotated[int, ndr.uchar]
    authority: Annotated[bytes, ndr.fixed(ndr.byte, 6)]
    parts: Annotated[tuple[int, ...], ndr.array(ndr.ulong, size_is="count")]

    def sid(self) -> Sid:
        return Sid(int.from_bytes(self.authority, "big"), self.parts)


@dataclass(frozen=True, slots=True)
class Membership:
    """GROUP_MEMBERSHIP"""

    relative_id: ndr.Dword
    attributes: ndr.Dword


@dataclass(frozen=True, slots=True)
class SidAndAttributes:
    sid: Annotated[RpcSid | None, ndr.unique(ndr.struct(RpcSid))]
    attributes: ndr.Dword


_Time = Annotated[FileTime, ndr.struct(FileTime)]
_String = Annotated[UnicodeString, ndr.struct(UnicodeString)]
_Sid = Annotated[RpcSid | None, ndr.unique(ndr.struct(RpcSid))]


@dataclass(frozen=True, slots=True)
class ValidationInfo:
    logon_time: _Time
    logoff_time: _Time
    kick_off_time: _Time
    password_last_set: _Time
    password_can_change: _Time
    password_must_change: _Time
    effective_name: _String
    full_name: _String
    logon_script: _String
    profile_path: _String
    home_directory: _String
    home_directory_drive: _String
    logon_count: ndr.Ushort
    bad_password_count: ndr.Ushort
    user_id: ndr.Dword
    primary_group_id: ndr.Dword
    group_count: ndr.Dword
    group_ids: Annotated[
        tuple[Membership, ...] | None, ndr.unique(ndr.array(ndr.struct(Membership), size_is="group_count"))
    ]
    user_flags: ndr.Dword
    user_session_key: Annotated[bytes, ndr.fixed(ndr.byte, 16)]
    logon_server: _String
    logon_domain_name: _String
    logon_domain_id: _Sid
    reserved1: Annotated[tuple[int, ...], ndr.fixed(ndr.ulong, 2)]
    user_account_control: ndr.Dword
    sub_auth_status: ndr.Dword
    last_successful_logon: _Time
    last_failed_logon: _Time
    failed_logon_count: ndr.Dword
    reserved3: ndr.Dword
    sid_count: ndr.Dword
    extra_sids: Annotated[
        tuple[SidAndAttributes, ...] | None, ndr.unique(ndr.array(ndr.struct(SidAndAttributes), size_is="sid_count"))
    ]
    resource_group_domain: _Sid
    resource_group_count: ndr.Dword
    resource_group_ids: Annotated[
        tuple[Membership, ...] | None, ndr.unique(ndr.array(ndr.struct(Membership), size_is="resource_group_count"))
    ]


_INFO: Final = ndr.unique(ndr.struct(ValidationInfo))


def read_logon_info(data: bytes) -> tuple[Sid, frozenset[Sid]]:
    """The SID and the groups of an account. Only groups of domains count: a domain does not say who is in the groups
    that every computer has of its own, such as Administrators. Raises AuthenticationFailed for anything malformed."""
    try:
        if not data.startswith(_SERIALIZATION):
            raise RemoteProtocolError("it must be NDR in little-endian order", 0)
        reader = ndr.Reader(data[_BODY:])
        return _accounts_of(ndr.read(reader, _INFO, ndr.Scope(None)))
    except PostroadError as fault:
        raise AuthenticationFailed(f"the ticket's PAC cannot be read: {fault}") from None


def _accounts_of(info: ValidationInfo | None) -> tuple[Sid, frozenset[Sid]]:
    if info is None or info.logon_domain_id is None:
        raise RemoteProtocolError("the account's domain is missing")
    domain = info.logon_domain_id.sid()
    groups = [_within(domain, info.primary_group_id), *_members(domain, info.group_ids)]
    if info.user_flags & _EXTRA_SIDS:
        enabled = (each.sid for each in info.extra_sids or () if each.attributes & _ENABLED)
        groups += [each.sid() for each in enabled if each is not None]
    if info.user_flags & _RESOURCE_GROUPS and info.resource_group_domain is not None:
        groups += _members(info.resource_group_domain.sid(), info.resource_group_ids)
    if len(groups) > MAX_GROUPS:
        raise RemoteProtocolError(f"it must name at most {MAX_GROUPS} groups, got {len(groups)}")
    return _within(domain, info.user_id), frozenset(each for each in groups if _is_of_domain(each))


def _members(domain: Sid, memberships: tuple[Membership, ...] | None) -> list[Sid]:
    return [_within(domain, each.relative_id) for each in memberships or () if each.attributes & _ENABLED]


def _within(domain: Sid, relative_id: int) -> Sid:
    return Sid(domain.identifier_authority, (*domain.sub_authorities, relative_id))


def _is_of_domain(sid: Sid) -> bool:
    return sid.identifier_authority == 5 and sid.sub_authorities[0] == _DOMAIN_ACCOUNTS
