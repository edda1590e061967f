"""Users by name and by SID: the users of the configuration, and what a name in a command means.

Passwords are not here. The RPC server and the API check them, and then ask for the user's token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from struct import unpack_from
from types import MappingProxyType
from uuid import UUID

from postroad.errors import IllegalIdentifier, InvalidArgument
from postroad.security.access import ADMINISTRATORS, ANONYMOUS, Token, is_account
from postroad.security.descriptors import EVERYONE, Sid

RESERVED: Mapping[str, Sid] = MappingProxyType({"everyone": EVERYONE, "anonymous": ANONYMOUS})
_NON_UNIQUE = 21  # S-1-5-21: the numbers that follow identify a domain or computer, and then an account
_OWN_ACCOUNTS = 0x80000000  # Windows numbers accounts from 1000 up and does not reach this number


def derive_sid(manager: UUID, name: str) -> Sid:
    """The SID of a user without one: S-1-5-21-A-B-C-D, from SHA-256 of the manager's id and the casefolded name.

    It depends only on the manager's id and the name. With 127 bits, equal SIDs for two names are unlikely.
    """
    digest = sha256(b"postroad user\0" + manager.bytes + name.casefold().encode()).digest()
    *domain, account = unpack_from("<4I", digest)
    return Sid(5, (_NON_UNIQUE, *domain, account | _OWN_ACCOUNTS))


@dataclass(frozen=True, slots=True)
class User:
    """`administrator` is also true for a member of S-1-5-32-544. A monitor may look but not read messages. `principal`
    is the user's name in Kerberos; without one, it is the name in the realm of the manager."""

    name: str
    sid: Sid
    groups: frozenset[Sid] = frozenset()
    administrator: bool = False
    monitor: bool = False
    principal: str | None = None

    def __post_init__(self) -> None:
        if self.name.casefold() in RESERVED:
            raise InvalidArgument(f"name must not be {' or '.join(RESERVED)}, got {self.name!r}")
        if not is_account(self.sid):
            raise InvalidArgument(f"sid must belong to an account, got {self.sid}, which is a well-known group")
        if ADMINISTRATORS in self.groups:
            object.__setattr__(self, "administrator", True)
        if self.monitor and self.administrator:
            raise InvalidArgument("monitor must not be true for an administrator, who may do everything")

    @property
    def token(self) -> Token:
        if self.monitor:
            return Token.monitor(self.sid, self.groups)
        make = Token.administrator if self.administrator else Token.of_user
        return make(self.sid, self.groups)


class Users:
    """The users of one manager. Upper and lower case in names does not matter, as with NTLM."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        """Raises InvalidArgument if two users have the same name, SID or principal."""
        self._by_name: dict[str, User] = {}
        self._by_sid: dict[Sid, tuple[User, Token]] = {}
        self._by_principal: dict[str, User] = {}
        for user in users:
            if user.name.casefold() in self._by_name:
                raise InvalidArgument(f"name must be unique, but two users have {user.name!r}")
            if user.sid in self._by_sid:
                other = self._by_sid[user.sid][0].name
                raise InvalidArgument(f"sid must be unique, but {other!r} and {user.name!r} have {user.sid}")
            if user.principal is not None:
                other = self._by_principal.setdefault(user.principal.casefold(), user).name
                if other != user.name:
                    raise InvalidArgument(
                        f"principal must be unique, but {other!r} and {user.name!r} have {user.principal!r}"
                    )
            self._by_name[user.name.casefold()] = user
            self._by_sid[user.sid] = (user, user.token)

    def __iter__(self) -> Iterator[User]:
        return iter(self._by_name.values())

    def named(self, name: str) -> User | None:
        return self._by_name.get(name.casefold())

    def with_principal(self, principal: str) -> User | None:
        return self._by_principal.get(principal.casefold())

    def with_sid(self, sid: Sid) -> User | None:
        known = self._by_sid.get(sid)
        return known[0] if known else None

    def token(self, sid: Sid) -> Token:
        """The token of an authenticated SID. A SID that is not in the list belongs to no groups of its own."""
        known = self._by_sid.get(sid)
        return known[1] if known else Token.of_user(sid)

    def resolve(self, who: str) -> Sid:
        """WHO of `postroad queue acl`: everyone, anonymous, a user's name, or a SID. Raises InvalidArgument
        otherwise."""
        if (reserved := RESERVED.get(who.casefold())) is not None:
            return reserved
        if (user := self.named(who)) is not None:
            return user.sid
        try:
            return Sid.parse(who)
        except IllegalIdentifier as error:
            if who[:4].upper() == "S-1-":
                raise InvalidArgument(f"who must be a valid SID: {error}") from None
        raise InvalidArgument(
            f"who must be everyone, anonymous, the name of a [[user]] or a SID (S-1-5-...), got {who!r}"
        )
