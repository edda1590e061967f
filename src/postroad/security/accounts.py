"""Accounts of a domain, and what is remembered of them: whose a SID is, its groups, and its registered certificates.

This module asks nobody. `Accounts` says whom to ask for, and takes the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from postroad.errors import InvalidArgument
from postroad.security.access import Token, is_account
from postroad.security.descriptors import Sid
from postroad.security.users import User

MAX_ACCOUNTS: Final = 4096  # known at a time
MAX_ABSENT: Final = 4096  # SIDs that the domain does not have; anybody can make up more
MAX_KNOWN_GROUPS: Final = 200_000  # of all known accounts together
MAX_GROUPS: Final = 4096  # of one account; Windows gives a login at most 1,015
OFFLINE_S: Final = 36_000.0  # as long as a Kerberos ticket usually lives
_DOMAIN_ACCOUNTS: Final = 21  # S-1-5-21-A-B-C-D: account D of the domain A-B-C
_OWN_ACCOUNTS: Final = 0x80000000  # see users.py: SIDs of users of the configuration that have none


@dataclass(frozen=True, slots=True)
class Account:
    r"""A user, a computer or a group of a domain. `name` is like `CORP\ann`. `groups` are direct and nested ones.

    `fault` says why the account may do nothing, such as that it is disabled.
    """

    sid: Sid
    name: str
    principal: str | None = None
    groups: frozenset[Sid] = frozenset()
    certificates: tuple[bytes, ...] = ()
    fault: str | None = None


@dataclass(slots=True)
class _Answer:
    account: Account | None  # None: the domain has no such account
    at: float
    used: bool = True
    token: Token | None = field(default=None, init=False)


def is_domain_account(sid: Sid) -> bool:
    """Whether a domain can have this account. Users of the configuration without a SID have others."""
    parts = sid.sub_authorities
    is_one = sid.identifier_authority == 5 and parts[0] == _DOMAIN_ACCOUNTS and len(parts) == 5
    return is_one and parts[-1] < _OWN_ACCOUNTS


class Accounts:
    """What is known of a domain's accounts.

    An answer counts for two refreshes: it is renewed after one, if somebody has used it since. While the directory does
    not answer, it counts for `offline_s`. Another thread may call `certificates` while one changes what is known.
    """

    def __init__(self, clock: Callable[[], float], refresh_s: float, offline_s: float = OFFLINE_S) -> None:
        """`clock` never goes back."""
        self._clock = clock
        self.refresh_s = refresh_s
        self._offline_s = offline_s
        self._known: dict[Sid, _Answer] = {}
        self._absent: dict[Sid, _Answer] = {}
        self._by_principal: dict[str, Sid] = {}
        self._groups = 0
        self.administrators: frozenset[Sid] = frozenset()
        self.domain: Sid | None = None
        self.offline_since: float | None = None
        self.wanted: dict[Sid, None] = {}  # somebody needed these, and could not wait

    # Questions

    def is_known(self, sid: Sid) -> bool:
        """Whether there is an answer that counts, so that nobody needs to ask the directory."""
        return not is_domain_account(sid) or self._answer(sid) is not None

    def is_due(self, sid: Sid) -> bool:
        """Whether somebody who can wait should ask the directory first."""
        if not is_domain_account(sid):
            return False
        answer = self._known.get(sid) or self._absent.get(sid)
        return answer is None or self._clock() - answer.at >= self.refresh_s

    def is_absent(self, sid: Sid) -> bool:
        """Whether the domain is not known to have this account."""
        return sid not in self._known

    def is_user(self, sid: Sid) -> bool:
        """Whether the account is known, and may do something."""
        account = self.find(sid)
        return account is not None and account.fault is None

    def find(self, sid: Sid) -> Account | None:
        """The account, if it is known. If it is not, it will be asked for."""
        answer = self._answer(sid)
        if answer is None:
            self._want(sid)
            return None
        answer.used = True
        return answer.account

    def name(self, sid: Sid) -> str | None:
        account = self.find(sid)
        return None if account is None else account.name

    def certificates(self, sid: Sid) -> tuple[bytes, ...]:
        answer = self._answer(sid)
        return () if answer is None or answer.account is None else answer.account.certificates

    def token(self, sid: Sid) -> Token:
        """The token of an authenticated SID. While nothing is known of it, it may do what everyone may."""
        if not is_domain_account(sid):
            return Token.of_user(sid)
        answer = self._answer(sid)
        if answer is None:
            self._want(sid)
            return Token.everyone()
        answer.used = True
        if answer.token is None:
            answer.token = self._token(sid, answer.account)
        return answer.token

    def _token(self, sid: Sid, account: Account | None) -> Token:
        if account is None:
            # Our domain has deleted it, or never had it. Nobody can tell the groups of another domain's account.
            return Token.nobody() if self._is_ours(sid) else Token.of_user(sid)
        return Token.nobody() if account.fault is not None else self._full_token(sid, account.groups)

    def _full_token(self, sid: Sid, groups: frozenset[Sid]) -> Token:
        if not self.administrators.isdisjoint({sid, *groups}):
            return Token.administrator(sid, groups)
        return Token.of_user(sid, groups)

    def login_token(self, user: User) -> Token:
        """The token of somebody whose login has proved SID and groups, as a Kerberos ticket does. A ticket outlives
        its account, so what is known of the account counts too."""
        if is_domain_account(user.sid):
            answer = self._answer(user.sid)
            if answer is None:
                self._want(user.sid)
            else:
                return self.token(user.sid)
        return self._full_token(user.sid, user.groups)

    def by_principal(self, principal: str) -> User | None:
        """The account with this name in Kerberos, if it is known."""
        sid = self._by_principal.get(principal.casefold())
        account = None if sid is None else self.find(sid)
        if account is None or account.fault is not None or not is_account(account.sid):
            return None
        try:
            return User(account.name, account.sid, account.groups)
        except InvalidArgument:
            return None

    def _is_ours(self, sid: Sid) -> bool:
        return self.domain is not None and sid.sub_authorities[:-1] == self.domain.sub_authorities

    def _answer(self, sid: Sid) -> _Answer | None:
        answer = self._known.get(sid) or self._absent.get(sid)
        if answer is None:
            return None
        lifetime = 2 * self.refresh_s if self.offline_since is None else self._offline_s
        return answer if self._clock() - answer.at < lifetime else None

    def _want(self, sid: Sid) -> None:
        if is_domain_account(sid) and len(self.wanted) < MAX_ABSENT:
            self.wanted[sid] = None

    # Answers

    def due(self) -> list[Sid]:
        """The accounts whose answers are to be renewed, and those that somebody needed: the longest unknown first."""
        now = self._clock()
        found = list(self.wanted)
        self.wanted.clear()
        stale = [(each.at, sid) for sid, each in self._known.items() if each.used and now - each.at >= self.refresh_s]
        found += [sid for _, sid in sorted(stale, key=lambda each: each[0]) if sid not in found]
        return found

    def answered(self, sid: Sid, account: Account | None) -> bool:
        """Takes the directory's answer. Returns whether it changes what the account may do."""
        self.wanted.pop(sid, None)
        before = self._known.get(sid)
        old_token = None if before is None else self._token(sid, before.account)
        old_certificates = () if before is None or before.account is None else before.account.certificates
        self._forget(sid)
        answer = _Answer(account, self._clock(), used=True)
        if account is None:
            self._absent[sid] = answer
            while len(self._absent) > MAX_ABSENT:
                del self._absent[next(iter(self._absent))]
        else:
            self._known[sid] = answer
            self._groups += len(account.groups)
            if account.principal is not None:
                self._by_principal[account.principal.casefold()] = sid
            while len(self._known) > MAX_ACCOUNTS or (self._groups > MAX_KNOWN_GROUPS and len(self._known) > 1):
                self._forget(self._least())
        certificates = () if account is None else account.certificates
        return before is not None and (old_token != self._token(sid, account) or old_certificates != certificates)

    def unanswered(self) -> None:
        """The directory does not answer."""
        if self.offline_since is None:
            self.offline_since = self._clock()

    def resumed(self) -> None:
        """The directory answers again."""
        self.offline_since = None

    def use(self, administrators: Iterable[Sid], domain: Sid | None) -> bool:
        """Takes the SIDs of administrators, and the domain's own. Returns whether they are others than before."""
        new = frozenset(administrators)
        if new == self.administrators and domain == self.domain:
            return False
        self.administrators, self.domain = new, domain
        for answer in [*self._known.values(), *self._absent.values()]:
            answer.token = None
        return True

    def _least(self) -> Sid:
        """The account to forget: the first that nobody has used since it was read, or the one read first."""
        return next((sid for sid, each in self._known.items() if not each.used), next(iter(self._known)))

    def _forget(self, sid: Sid) -> None:
        self._absent.pop(sid, None)
        answer = self._known.pop(sid, None)
        if answer is not None and answer.account is not None:
            self._groups -= len(answer.account.groups)
            principal = answer.account.principal
            if principal is not None and self._by_principal.get(principal.casefold()) == sid:
                del self._by_principal[principal.casefold()]
