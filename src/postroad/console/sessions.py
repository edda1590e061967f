"""People who use the console: one session for each browser, with its credentials in memory only."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from postroad.console.client import NO_CREDENTIALS, Credentials, ManagerClient
from postroad.console.jobs import Jobs
from postroad.values.info import QueueInfo

COOKIE = "postroad_console"
IDLE_S = 8 * 3600.0  # a session without a request for so long ends
MAX_SESSIONS = 1000  # the one that was idle longest ends first

Connect = Callable[[Credentials], ManagerClient]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the next page: what was done, or what went wrong."""

    text: str
    is_error: bool = False


@dataclass(slots=True)
class Access:
    """One manager in one session."""

    client: ManagerClient
    administrator: bool | None = None  # None: not asked yet
    queues: list[QueueInfo] = field(default_factory=list)  # what the user sees, and when it was asked
    queues_at: float = float("-inf")


@dataclass(slots=True)
class Session:
    """`csrf` is in every form of the session's pages; a request that changes something must bring it."""

    identifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    access: dict[int, Access] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    notices: list[Notice] = field(default_factory=list)
    used_at: float = field(default_factory=time.monotonic)
    renewed: bool = False  # it must get a new identifier with this answer
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)  # two requests at a time must not both open a manager

    def notify(self, text: str, is_error: bool = False) -> None:
        self.notices.append(Notice(text, is_error))

    def take_notices(self) -> list[Notice]:
        taken, self.notices = self.notices, []
        return taken

    async def log_in(self, manager: int, connect: Connect, credentials: Credentials) -> Access:
        """Asks the manager whether the credentials are right. LoginNeeded if not; the session stays as it was."""
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
        """The manager with the credentials of the session; without any, if the manager needs none."""
        async with self.opening:
            access = self.access.get(manager)
            if access is None:
                access = await self.log_in(manager, connect, NO_CREDENTIALS)
            return access

    async def _close(self, manager: int) -> None:
        access = self.access.pop(manager, None)
        if access is not None:
            await access.client.close()

    async def close(self) -> None:
        self.jobs.stop()
        for manager in list(self.access):
            await self._close(manager)


class Sessions:
    """All sessions by the value of their cookie."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}  # the longest idle first

    async def find(self, identifier: str | None) -> Session | None:
        now = time.monotonic()
        for each in list(self._sessions.values()):
            if now - each.used_at < IDLE_S:
                break
            await self.end(each)
        session = self._sessions.pop(identifier, None) if identifier else None
        if session is not None:
            session.used_at = now
            self._sessions[session.identifier] = session
        return session

    async def start(self) -> Session:
        if len(self._sessions) >= MAX_SESSIONS:
            await self.end(next(iter(self._sessions.values())))
        session = Session()
        self._sessions[session.identifier] = session
        return session

    def renew(self, session: Session) -> None:
        """After a login: who knew the identifier before, does not know it any more."""
        self._sessions.pop(session.identifier, None)
        fresh = Session()
        session.identifier, session.csrf, session.renewed = fresh.identifier, fresh.csrf, False
        self._sessions[session.identifier] = session

    async def end(self, session: Session) -> None:
        self._sessions.pop(session.identifier, None)
        await session.close()

    async def close(self) -> None:
        for each in list(self._sessions.values()):
            await self.end(each)
