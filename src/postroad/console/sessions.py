"""Sessions of people: one for each browser, with credentials in memory only.

Cookies do not distinguish the ports of a host, so a browser sends them to every program that it visits on this
computer. Without TLS, the cookie of a login is therefore bound to `base`, a path that only this browser knows.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hmac import compare_digest
from ipaddress import IPv4Network, IPv6Network, ip_address
from itertools import islice
from weakref import WeakValueDictionary

from postroad.console.jobs import Jobs
from postroad.console.manager_client import NO_CREDENTIALS, Credentials, ManagerClient
from postroad.net.endpoints import is_address, plain_address
from postroad.reports.info import QueueInfo
from postroad.runtime.bounded import BoundedTable, Standing, owner_of

COOKIE = "postroad_console"  # of a login
VISITOR = "postroad_visitor"  # of a browser without a login: it ties forms to their browser, and identifies nobody
MAX_LOGINS = 64  # under way at a time: each holds a connection to a manager, which delays wrong ones
RESERVED_LOGINS = 64  # more, for addresses without one; a manager takes 256 connections of one address
MAX_LOGINS_OF_ADDRESS = 4
LOGIN_WAIT_S = 10.0  # for earlier logins of the same address
IDLE_S = 8 * 3600.0  # without a request, after which a session ends
MAX_SESSIONS = 1000
IDENTIFIER_BYTES = 32
IDENTIFIER_LENGTH = 43  # in base64
ENDED_AT_ONCE = 100  # idle sessions that one request removes

Connect = Callable[[Credentials], ManagerClient]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the next page: what has been done or what went wrong."""

    text: str
    is_error: bool = False


@dataclass(slots=True)
class Access:
    """One manager in one session."""

    client: ManagerClient
    administrator: bool | None = None  # None: not asked yet
    queues: list[QueueInfo] = field(default_factory=list)  # as the user sees them, and when they were read
    queues_at: float = float("-inf")


@dataclass(slots=True)
class Session:
    """Every form of the session's pages has `csrf`, and a request that changes something must send it. `base` is the
    path to which the cookie is bound, or "" if it is for the whole console."""

    identifier: str = field(default_factory=lambda: secrets.token_urlsafe(IDENTIFIER_BYTES))
    csrf: str = ""
    base: str = ""
    access: dict[int, Access] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    notices: list[Notice] = field(default_factory=list)
    used_at: float = field(default_factory=time.monotonic)
    renewed: bool = False  # it gets a new identifier with this answer
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)  # only one of two concurrent requests opens a manager

    def notify(self, text: str, is_error: bool = False) -> None:
        self.notices.append(Notice(text, is_error))

    @property
    def logged_in(self) -> bool:
        return any(each.client.credentials != NO_CREDENTIALS for each in self.access.values())

    def take_notices(self) -> list[Notice]:
        taken, self.notices = self.notices, []
        return taken

    async def log_in(self, manager: int, connect: Connect, credentials: Credentials) -> Access:
        """Asks the manager to check the credentials. Raises LoginNeeded if they are wrong, and then leaves the session
        as it was."""
        client = connect(credentials)
        try:
            administrator = await client.is_administrator()
        except BaseException:
            await client.close()
            raise
        await self._close(manager)
        self.access[manager] = Access(client, administrator)
        return self.access[manager]

    async def on(self, manager: int, connect: Connect) -> Access:
        """The manager with the session's credentials, or without any if the manager needs none."""
        async with self.opening:
            access = self.access.get(manager)
            if access is None:
                access = await self.log_in(manager, connect, NO_CREDENTIALS)
            return access

    async def _close(self, manager: int) -> None:
        access = self.access.pop(manager, None)
        if access is not None:
            await access.client.close()

    def renew(self, base: str) -> None:
        """Gives the session a new identity after a login."""
        self.renewed, self.base = True, base

    async def close(self) -> None:
        self.jobs.stop()
        for manager in list(self.access):
            await self._close(manager)


class Logins:
    """Limits the logins under way. A right login takes no time, a wrong one takes seconds. So the logins of one address
    wait for each other, and places are reserved for addresses without a login under way."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # only while somebody uses them
        self._under_way: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """A place for a login. Raises TimeoutError if there is none, even after a wait."""
        owner = owner_of(address)
        own = self._of.setdefault(owner, asyncio.Semaphore(MAX_LOGINS_OF_ADDRESS))
        async with asyncio.timeout(LOGIN_WAIT_S) as limit, own:
            limit.reschedule(None)
            most = MAX_LOGINS if self._under_way[owner] else MAX_LOGINS + RESERVED_LOGINS
            if self._under_way.total() >= most:
                raise TimeoutError
            self._under_way[owner] += 1
            try:
                yield
            finally:
                self._under_way[owner] -= 1
                self._under_way += Counter()  # drops those at zero


class Sessions:
    """The sessions with something to remember, a login or a sentence for the next page, by the value of their cookie.

    Visitors without a login are not remembered: the token of their forms is computed from their cookie.
    """

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self.logins = Logins()
        self._secret = secrets.token_bytes(32)
        self._sessions: BoundedTable[str, Session] = BoundedTable(limit, in_use=_is_busy, dropped=self._dropped)
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: Session) -> bool:
        return self._sessions.get(session.identifier) is session

    async def find(self, identifier: str | None) -> Session:
        now = time.monotonic()
        for each in list(islice(self._sessions.values(), ENDED_AT_ONCE)):
            if now - each.used_at < IDLE_S:
                break
            await self._end(each)
        session = self._sessions.get(identifier) if identifier else None
        if session is None:
            known = identifier is not None and len(identifier) == IDENTIFIER_LENGTH
            session = Session(identifier) if known and identifier else Session()
            session.csrf = self._csrf(session)
        else:
            session.used_at = now
            self._sessions.touch(session.identifier)
        return session

    def _csrf(self, session: Session) -> str:
        return hmac.digest(self._secret, session.identifier.encode("utf-8", "replace"), "sha256").hex()

    def keep(self, session: Session, address: str) -> bool:
        """Keeps a session after an answer to `address`. Returns False if there is no room for a login."""
        if session.renewed:  # nobody who knew the old identifier knows the new one
            self._sessions.pop(session.identifier)
            session.identifier, session.renewed = Session().identifier, False
            session.csrf = self._csrf(session)
        if not (session.access or session.notices):
            self._sessions.pop(session.identifier)
            return True
        standing = Standing.PROVEN if session.logged_in else Standing.STRANGER
        kept = self._sessions.get(session.identifier)
        if kept is session:
            self._sessions.rise(session.identifier, standing)
            return True
        if kept is not None:  # two first requests at the same time
            self._dropped(session.identifier, kept)
        return self._sessions.put(session.identifier, session, owner_of(address), standing)

    def _dropped(self, identifier: str, session: Session) -> None:
        task = asyncio.get_running_loop().create_task(session.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, session: Session) -> None:
        self._sessions.pop(session.identifier)
        await session.close()

    async def close(self) -> None:
        for each in list(self._sessions.values()):
            await self._end(each)
        await asyncio.gather(*self._ending)


def _is_busy(identifier: str, session: Session) -> bool:
    return session.jobs.running


# What keeps other web pages out of the console: checks of host and origin, a token in every form, and headers. Also the
# address of a browser.


Networks = Iterable[IPv4Network | IPv6Network]

# Allows only the console's own files: no inline script or style, nothing from elsewhere, no frames.
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_SAFE = frozenset({"GET", "HEAD"})
_OWN_PAGES = frozenset({"same-origin", "none"})


class Guard:
    """`names` are the host names of the console, besides addresses and localhost."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def refusal(self, method: str, headers: Mapping[bytes, str]) -> str | None:
        """Why a request is refused; None if it is not. Checks the host name too, because a foreign name may resolve to
        this server."""
        host = headers.get(b"host", "")
        if not self._is_ours(_without_port(host)):
            return f"Host: {host} must be an address, localhost or a name that --name lists"
        if method in _SAFE:
            return None
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin: {origin} is another page, and only the console's own pages may change something"
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in _OWN_PAGES:
            return f"Sec-Fetch-Site: {site}: only the console's own pages may change something"
        return None

    @staticmethod
    def is_browser(headers: Mapping[bytes, str]) -> bool:
        """Whether a browser sent the request. Browsers say where a request comes from; other programs do not."""
        return b"sec-fetch-site" in headers

    def _is_ours(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def same(given: str, expected: str) -> bool:
    return compare_digest(given.encode(), expected.encode())


def client_address(peer: str, forwarded: str, proxies: Networks) -> str:
    """The address of a browser: that of the connection or, if that is a proxy, the last address in `X-Forwarded-For`
    that is no proxy. Anybody could have made up the addresses before it."""
    address = plain_address(peer)
    for each in reversed(forwarded.split(",")):
        if not is_address(each.strip()) or not any(ip_address(address) in proxy for proxy in proxies):
            break
        address = plain_address(each.strip())
    return address


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
