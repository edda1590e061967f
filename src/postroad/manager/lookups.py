"""Asks the directory for accounts, in a thread of its own, so that neither the event loop nor other messages wait.

What the answers mean is in security/accounts.py, and how to ask is in directory/account_reader.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from postroad.directory.account_reader import Reader
from postroad.errors import DirectoryError, IllegalIdentifier, InvalidArgument, PostroadError, RemoteProtocolError
from postroad.runtime.supervision import Running
from postroad.security.accounts import Account, Accounts
from postroad.security.descriptors import Sid
from postroad.security.guard import claimed_sid
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)

READ_AT_ONCE: Final = 16  # accounts, before newly wanted ones get their turn
PAUSE_S: Final = 0.1  # after that many: whoever makes up SIDs causes at most 160 reads a second, on one connection
LOOK_S: Final = 0.5  # how often to look for accounts that somebody needed and could not wait for
WAIT_S: Final = 15.0  # how long one message waits for its sender's account
RETRY_S: Final = 5.0  # after a directory has not answered, until it is asked again
_T = TypeVar("_T")


class Lookups:
    """Fills `accounts` for those who need them. `problem` says why the directory does not answer."""

    def __init__(
        self,
        accounts: Accounts,
        reader: Reader,
        clock: Callable[[], float],
        administrators: Sequence[str] = (),
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        """`administrators` are names and SIDs of accounts, usually groups, whose members may do everything. `clock`
        never goes back."""
        self.accounts = accounts
        self.problem: str | None = None
        self._reader = reader
        self._clock = clock
        self._administrators = tuple(administrators)
        self._retry_s = retry_s
        self._thread = ThreadPoolExecutor(1, "postroad-accounts")
        self._waiting: dict[Sid, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self._retry_at = self._domain_at = -float("inf")
        self._unresolved: frozenset[str] = frozenset()

    # For those who can wait

    async def know(self, sids: Iterable[Sid]) -> None:
        """Returns once the directory has said what these accounts are, or has not answered in time."""
        due = {sid for sid in sids if self.accounts.is_due(sid)}
        if not due:
            return
        for sid in due.difference(self._waiting):
            self._waiting[sid] = asyncio.get_running_loop().create_future()
        self._wake.set()
        await asyncio.wait([self._waiting[sid] for sid in due], timeout=WAIT_S)

    async def know_senders(self, packets: Iterable[bytes | MessageView]) -> None:
        """Like `know`, for the senders that these packets name."""
        found = []
        for packet in packets:
            try:
                sid = claimed_sid(packet if isinstance(packet, MessageView) else MessageView(packet))
            except RemoteProtocolError:
                continue
            if sid is not None:
                found.append(sid)
        if found:
            await self.know(found)

    async def named(self, name: str) -> Account | None:
        r"""The account that `CORP\ann` or `ann@corp.local` names. Raises DirectoryError if the directory does not
        answer, and InvalidArgument if the name is not unique."""
        return self._keep(await self._ask(lambda: self._reader.by_name(name)))

    async def certified(self, certificate: bytes) -> Account | None:
        """The account that has registered a certificate. Raises DirectoryError."""
        return self._keep(await self._ask(lambda: self._reader.by_certificate(certificate)))

    def _keep(self, account: Account | None) -> Account | None:
        if account is not None:
            self.accounts.answered(account.sid, account)
        return account

    # The task

    async def run(self, running: Running, changed: Callable[[], None]) -> None:
        """Asks until it is cancelled. Calls `changed` when somebody's rights or certificates have changed."""
        while True:
            try:
                if await self._read_some():
                    changed()
            except DirectoryError:
                self._give_up()
            running()
            await asyncio.sleep(PAUSE_S)
            if not self._waiting:
                self._wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), LOOK_S)

    def stop(self) -> None:
        self._give_up()
        self._thread.submit(self._reader.close)
        self._thread.shutdown(wait=False)

    async def _read_some(self) -> bool:
        """Reads what is due. Returns whether that changes anything."""
        changed = await self._read_domain()
        # Accounts that exist come first: strangers can only make up others.
        order = sorted(self._waiting, key=lambda sid: self.accounts.is_absent(sid))
        batch = (order or self.accounts.due())[:READ_AT_ONCE]
        if not batch:
            return changed
        for sid, account in await self._ask(lambda: [(each, self._reader.by_sid(each)) for each in batch]):
            changed |= self.accounts.answered(sid, account)
            waiter = self._waiting.pop(sid, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        return changed

    async def _read_domain(self) -> bool:
        """Reads the domain's SID, and who its administrators are, once in each refresh."""
        if self._clock() < self._domain_at:
            return False
        domain, administrators, unresolved = await self._ask(self._find_administrators)
        self._domain_at = self._clock() + self.accounts.refresh_s
        for name in sorted(unresolved - self._unresolved):
            log.error(
                "an administrator is not in the directory",
                extra={
                    "setting": "directory.administrators",
                    "account": name,
                    "do": "correct the name, or use the SID",
                },
            )
        self._unresolved = unresolved
        return self.accounts.use(administrators, domain)

    def _find_administrators(self) -> tuple[Sid, list[Sid], frozenset[str]]:
        found, unresolved = [], []
        for name in self._administrators:
            try:
                found.append(Sid.parse(name))
                continue
            except IllegalIdentifier:
                pass
            try:
                account = self._reader.by_name(name)
            except InvalidArgument:
                account = None
            if account is None:
                unresolved.append(name)
            else:
                found.append(account.sid)
        return self._reader.domain(), found, frozenset(unresolved)

    def _give_up(self) -> None:
        """Lets everybody who waits go on with what is known."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_result(None)

    async def _ask(self, question: Callable[[], _T]) -> _T:
        if self._clock() < self._retry_at:
            raise DirectoryError(self.problem or "the directory does not answer")
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except InvalidArgument:
            raise
        except PostroadError as fault:
            self._fail(str(fault))
            raise DirectoryError(str(fault)) from None
        if self.problem is not None:
            self.problem = None
            log.info("the directory answers for accounts again")
        self.accounts.resumed()
        return answer

    def _fail(self, sentence: str) -> None:
        self._retry_at = self._clock() + self._retry_s
        self.accounts.unanswered()
        if self.problem != sentence:
            self.problem = sentence
            log.error(
                "the directory cannot be asked for accounts: those that are known go on counting for a while",
                extra={"reason": sentence},
            )
