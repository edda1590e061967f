"""Which sessions the console keeps: everybody who has logged in, even in a flood of others."""

from __future__ import annotations

import asyncio

from postroad.console.jobs import Job
from postroad.console.manager_client import NO_CREDENTIALS, Credentials, ManagerClient
from postroad.console.sessions import MAX_LOGINS, Access, Logins, Session, Sessions

API = "http://127.0.0.1:1"  # nobody is asked


async def visit(sessions: Sessions, credentials: Credentials | None = None, address: str = "192.0.2.1") -> Session:
    session = await sessions.find(None)
    if credentials is not None:
        session.access[0] = Access(ManagerClient(API, credentials), administrator=False)
        session.renewed = True
    assert sessions.keep(session, address)
    return session


def test_nobody_is_remembered_before_a_login() -> None:
    async def main() -> None:
        sessions = Sessions(32)
        ann = await visit(sessions, Credentials(user="ann", password="x"))
        for _ in range(1000):
            await visit(sessions)
        assert len(sessions) == 1
        assert await sessions.find(ann.identifier) is ann
        await sessions.close()

    asyncio.run(main())


def test_visitors_of_an_open_manager_and_other_users_end_no_login_and_no_job() -> None:
    async def main() -> None:
        sessions = Sessions(32)
        ann = await visit(sessions, Credentials(user="ann", password="x"))
        mover = await visit(sessions, Credentials(user="eve", password="x"), "198.51.100.1")
        never = asyncio.Event()

        async def work(job: Job) -> None:
            await never.wait()

        job = mover.jobs.start(Job("move", "Move", 0, "queue"), work)
        for _ in range(200):
            await visit(sessions, NO_CREDENTIALS)
            await visit(sessions, Credentials(user="eve", password="x"), "198.51.100.1")
            assert len(sessions) <= 32
        assert await sessions.find(ann.identifier) is ann
        assert await sessions.find(mover.identifier) is mover
        assert job.running
        never.set()
        await sessions.close()

    asyncio.run(main())


def test_the_token_of_a_visitors_forms_follows_from_the_cookie() -> None:
    async def main() -> None:
        sessions = Sessions()
        first = await visit(sessions)
        again = await sessions.find(first.identifier)
        other = await visit(sessions)
        assert again.csrf == first.csrf != other.csrf
        assert first.csrf
        strange = await sessions.find("short")
        assert strange.identifier != "short"

    asyncio.run(main())


def test_a_login_gets_another_cookie_and_another_token() -> None:
    async def main() -> None:
        sessions = Sessions()
        before = await visit(sessions)
        cookie, csrf = before.identifier, before.csrf
        session = await sessions.find(cookie)
        session.access[0] = Access(ManagerClient(API, Credentials(token="x")), administrator=True)
        session.renewed = True
        assert sessions.keep(session, "192.0.2.1")
        assert session.identifier != cookie
        assert session.csrf != csrf
        assert await sessions.find(cookie) is not session
        await sessions.close()

    asyncio.run(main())


def test_people_behind_one_address_log_in_one_after_the_other() -> None:
    async def main() -> int:
        logins, done = Logins(), 0

        async def log_in() -> None:
            nonlocal done
            async with logins.place("192.0.2.1"):
                await asyncio.sleep(0)
                done += 1

        await asyncio.gather(*(log_in() for _ in range(50)))
        return done

    assert asyncio.run(main()) == 50


def test_wrong_logins_that_wait_leave_a_place_for_another_address() -> None:
    async def main() -> bool:
        logins = Logins()

        async def wait(address: str) -> None:
            async with logins.place(address):
                await asyncio.Event().wait()

        attackers = [f"198.51.100.{number}" for number in range(MAX_LOGINS // 2)] * 4
        waiting = [asyncio.create_task(wait(each)) for each in attackers]
        await asyncio.sleep(0.01)
        async with logins.place("192.0.2.1"):
            found = True
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return found

    assert asyncio.run(main())
