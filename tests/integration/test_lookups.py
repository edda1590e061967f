"""Who waits for the directory and who does not: lookups of accounts while strangers ask much and controllers fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from postroad.errors import DirectoryError, InvalidArgument, LdapError, LdapFault
from postroad.manager import lookups as rules
from postroad.manager.lookups import Lookups
from postroad.security.access import Token
from postroad.security.accounts import Account, Accounts
from postroad.security.descriptors import Sid

DOMAIN = Sid(5, (21, 1, 2, 3))
ANN, READERS = Sid(5, (21, 1, 2, 3, 1001)), Sid(5, (21, 1, 2, 3, 2001))


class Recorded:
    """A directory that remembers what it was asked. `fault` is what it answers instead, and `gate` lets it answer."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.accounts = {ANN: Account(ANN, r"CORP\ann", groups=frozenset({READERS}))}

    def by_sid(self, sid: Sid) -> Account | None:
        self._ask(sid)
        return self.accounts.get(sid)

    def by_name(self, name: str) -> Account | None:
        self._ask(name)
        return next((each for each in self.accounts.values() if each.name == name), None)

    def by_certificate(self, certificate: bytes) -> Account | None:
        self._ask(certificate)
        return next((each for each in self.accounts.values() if certificate in each.certificates), None)

    def domain(self) -> Sid:
        self._ask("domain")
        return DOMAIN

    def close(self) -> None:
        self.asked.append("closed")

    def _ask(self, question: object) -> None:
        self.gate.wait(60)
        if self.fault is not None:
            raise self.fault
        self.asked.append(question)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(
    reader: Recorded, clock: Callable[[], float], changed: Callable[[], None] = lambda: None, *administrators: str
) -> AsyncIterator[Lookups]:
    found = Lookups(Accounts(clock, 60.0), reader, clock, administrators)
    task = asyncio.get_running_loop().create_task(found.run(lambda: None, changed))
    try:
        yield found
    finally:
        reader.gate.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        found.stop()
        found._thread.shutdown()  # waits until the reader is closed


def made_up(count: int) -> list[Sid]:
    return [Sid(5, (21, 1, 2, 3, 5000 + number)) for number in range(count)]


def test_an_account_is_asked_for_once() -> None:
    reader = Recorded()

    async def work() -> None:
        async with running(reader, Clock()) as lookups:
            await asyncio.gather(*(lookups.know([ANN]) for _ in range(50)))
            await lookups.know([ANN])
            assert lookups.accounts.token(ANN) == Token.of_user(ANN, {READERS})

    asyncio.run(work())
    assert reader.asked.count(ANN) == 1
    assert reader.asked[-1] == "closed"


def test_an_account_that_exists_is_renewed_before_what_strangers_make_up() -> None:
    reader, clock = Recorded(), Clock()

    async def work() -> None:
        async with running(reader, clock) as lookups:
            await lookups.know([ANN])
            clock.now += 60
            reader.gate.clear()
            strangers = asyncio.gather(lookups.know(made_up(100)), lookups.know([ANN]))
            await asyncio.sleep(0)
            reader.gate.set()
            await strangers
            assert all(lookups.accounts.token(each) == Token.nobody() for each in made_up(100))

    asyncio.run(work())
    assert reader.asked.index(ANN, reader.asked.index(ANN) + 1) <= rules.READ_AT_ONCE + 3


def test_while_no_controller_answers_nobody_waits_and_it_is_left_alone() -> None:
    reader, clock = Recorded(), Clock()

    async def work() -> None:
        async with running(reader, clock) as lookups:
            await lookups.know([ANN])
            reader.fault = LdapError(LdapFault.NO_ANSWER, "dc1 does not answer")
            clock.now += 120
            await lookups.know([ANN])
            assert lookups.problem == "dc1 does not answer"
            assert lookups.accounts.token(ANN).groups > {READERS}
            asked = len(reader.asked)
            reader.fault = None
            for sid in made_up(5):
                await lookups.know([sid])
                assert lookups.accounts.token(sid) == Token.everyone()
            with pytest.raises(DirectoryError, match="dc1 does not answer"):
                await lookups.named(r"CORP\ann")
            assert len(reader.asked) == asked  # it is asked again only after a while
            clock.now += rules.RETRY_S
            await lookups.know([ANN])
            assert lookups.problem is None

    asyncio.run(work())


def test_who_loses_a_group_is_told_of_and_who_keeps_it_is_not() -> None:
    reader, clock, changes = Recorded(), Clock(), []

    async def work() -> None:
        async with running(reader, clock, lambda: changes.append(clock.now)) as lookups:
            await lookups.know([ANN])
            before = len(changes)
            clock.now += 60
            await lookups.know([ANN])
            assert len(changes) == before
            reader.accounts[ANN] = Account(ANN, r"CORP\ann")
            clock.now += 60
            await lookups.know([ANN])
            clock.now += 60
            await lookups.know([ANN])  # in the next round
            assert len(changes) == before + 1

    asyncio.run(work())


def test_administrators_by_name_and_by_sid_count_and_an_unknown_name_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, clock = Recorded(), Clock()
    admins = Sid(5, (21, 1, 2, 3, 3001))
    reader.accounts[admins] = Account(admins, r"CORP\MSMQ Admins")
    reader.accounts[ANN] = Account(ANN, r"CORP\ann", groups=frozenset({admins}))

    async def work() -> None:
        async with running(reader, clock, lambda: None, r"CORP\MSMQ Admins", r"CORP\gone", str(READERS)) as lookups:
            for _ in range(3):
                clock.now += 60
                await lookups.know([ANN])
            assert lookups.accounts.token(ANN).everything
            assert lookups.accounts.administrators == {admins, READERS}

    asyncio.run(work())
    assert [each.message for each in caplog.records] == ["an administrator is not in the directory"]


def test_a_name_that_is_not_unique_is_refused_and_the_directory_is_not_to_blame() -> None:
    reader = Recorded()

    async def work() -> None:
        async with running(reader, Clock()) as lookups:
            await lookups.know([ANN])
            reader.fault = InvalidArgument("ann@corp.local must be of one account")
            with pytest.raises(InvalidArgument):
                await lookups.named("ann@corp.local")
            assert lookups.problem is None

    asyncio.run(work())
