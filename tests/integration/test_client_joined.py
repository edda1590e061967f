"""Concurrent sends of one client travel together, keep their order, and each of them succeeds or fails by itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Barrier, Event, Thread

import pytest

import postroad
from postroad import aio
from postroad.client import payloads
from postroad.client.sync.backend import CallerThread
from postroad.client.sync.runtime import JoinedSends, _Waiting
from postroad.errors import (
    AccessDenied,
    InvalidHandle,
    ManagerUnavailable,
    MessageTooLarge,
    OperationCancelled,
    PostroadError,
    QueueNotFound,
)
from tests.served import PATIENCE_S, Served, served

QUEUE = r"private$\orders"
TOO_LARGE = bytes(5 << 20)


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


class Requests:
    """How many messages the requests of a server brought, in order. The first sets `came`, and is done after `go`."""

    def __init__(self, api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.came, self.go = Event(), Event()
        send, send_each = api.manager.send, api.manager.send_each

        async def one(destination: str, messages: list[postroad.Message], *rest: object) -> list[str]:
            if len(messages) == 1:
                self.sizes.append(1)
            if not self.came.is_set():
                self.came.set()
                await asyncio.to_thread(self.go.wait, PATIENCE_S)
            return await send(destination, messages, *rest)  # type: ignore[arg-type]

        async def each(destination: str, messages: list[postroad.Message], *rest: object) -> list[str | PostroadError]:
            self.sizes.append(len(messages))
            return await send_each(destination, messages, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(api.manager, "send_then", lambda *_: False)  # it could not be held
        monkeypatch.setattr(api.manager, "send", one)
        monkeypatch.setattr(api.manager, "send_each", each)


def test_sends_that_come_meanwhile_go_together_and_in_order(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)
    requests.go.set()

    async def main() -> list[str]:
        async with aio.connect(api.server.url) as manager:
            queue = manager.queue(QUEUE)
            return await asyncio.gather(*(queue.send(f"message {number}") for number in range(50)))

    ids = asyncio.run(main())
    assert requests.sizes == [1, 49]
    assert api.bodies() == [f"message {number}" for number in range(50)]
    assert [int(each.rpartition("\\")[2]) for each in ids] == sorted(int(each.rpartition("\\")[2]) for each in ids)
    assert len(set(ids)) == 50


def test_one_request_has_a_bound(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)
    requests.go.set()
    monkeypatch.setattr(payloads, "MAX_JOINED", 20)
    monkeypatch.setattr(payloads, "MAX_JOINED_BYTES", 10_000)

    async def main() -> None:
        async with aio.connect(api.server.url) as manager:
            queue = manager.queue(QUEUE)
            bodies = ["small"] * 46 + ["large" * 1000] * 3
            await asyncio.gather(*(queue.send(each) for each in bodies))

    asyncio.run(main())
    assert requests.sizes == [1, 20, 20, 6, 1, 1]


def test_a_bad_message_fails_alone(api: Served) -> None:
    async def main() -> list[str | BaseException]:
        async with aio.connect(api.server.url) as manager:
            queue = manager.queue(QUEUE)
            bodies = [b"first", b"second", TOO_LARGE, b"third", b"fourth"]
            labelled = postroad.Message("fifth", label="x" * 300)
            return await asyncio.gather(
                *(queue.send(each) for each in bodies),
                queue.send(labelled),
                queue.send("sixth"),
                return_exceptions=True,
            )

    outcomes = asyncio.run(main())
    assert [type(each) for each in outcomes[:5]] == [str, str, MessageTooLarge, str, str]
    assert isinstance(outcomes[5], PostroadError)
    assert "label" in str(outcomes[5])
    assert isinstance(outcomes[6], str)
    assert api.bodies() == ["first", "second", "third", "fourth", "sixth"]


def test_a_queue_that_is_missing_fails_its_own_senders(api: Served) -> None:
    async def main() -> list[str | BaseException]:
        async with aio.connect(api.server.url) as manager:
            names = [QUEUE, r"private$\nowhere"] * 10
            return await asyncio.gather(*(manager.queue(each).send("x") for each in names), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert {type(each) for each in outcomes[::2]} == {str}
    assert {type(each) for each in outcomes[1::2]} == {QueueNotFound}
    assert len(api.bodies()) == 10


def test_a_sender_that_leaves_in_time_sends_nothing(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)

    async def main() -> None:
        async with aio.connect(api.server.url) as manager:
            queue = manager.queue(QUEUE)
            first, left, last = (asyncio.ensure_future(queue.send(each)) for each in ("first", "left", "last"))
            await asyncio.to_thread(requests.came.wait, PATIENCE_S)
            left.cancel()
            requests.go.set()
            await asyncio.gather(first, last)

    asyncio.run(main())
    assert api.bodies() == ["first", "last"]


def test_when_the_first_sender_leaves_the_others_go_on(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)

    async def main() -> None:
        async with aio.connect(api.server.url) as manager:
            queue = manager.queue(QUEUE)
            first, *others = (asyncio.ensure_future(queue.send(each)) for each in ("first", "second", "third"))
            await asyncio.to_thread(requests.came.wait, PATIENCE_S)
            first.cancel()
            await asyncio.gather(*others)

    asyncio.run(main())
    assert api.bodies() == ["second", "third"]
    requests.go.set()


# Threads


def in_threads(number: int, work: object) -> None:
    threads = [Thread(target=work, args=(each,)) for each in range(number)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_share_requests_and_each_keeps_its_order(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)
    wait = JoinedSends._wait

    async def waits(joined: JoinedSends, name: str, waiting: _Waiting) -> payloads.Outcome:
        requests.go.set()
        return await wait(joined, name, waiting)

    monkeypatch.setattr(JoinedSends, "_wait", waits)
    ids: dict[str, str] = {}
    together = Barrier(8)
    with postroad.connect(api.server.url) as manager:
        queue = manager.queue(QUEUE)

        def work(thread: int) -> None:
            together.wait()
            for number in range(25):
                ids[f"{thread}/{number}"] = queue.send(f"{thread}/{number}")

        in_threads(8, work)
        found = {message.text: str(message.id) for message in queue.messages()}
    assert found == ids
    assert len(found) == 200
    order = list(found)
    for thread in range(8):
        own = [int(str(each).partition("/")[2]) for each in order if str(each).startswith(f"{thread}/")]
        assert own == list(range(25))
    assert sum(requests.sizes) == 200
    assert max(requests.sizes) > 1


def test_a_bad_message_of_one_thread_fails_alone(api: Served) -> None:
    faults: list[Exception] = []
    with postroad.connect(api.server.url) as manager:
        queue = manager.queue(QUEUE)

        def work(thread: int) -> None:
            for _ in range(5):
                try:
                    queue.send(TOO_LARGE if thread == 0 else "fits")
                except PostroadError as fault:
                    faults.append(fault)

        in_threads(4, work)
    assert [type(each) for each in faults] == [MessageTooLarge] * 5
    assert api.bodies() == ["fits"] * 15


# A manager that goes away


@contextmanager
def breaking() -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads a request and closes the connection without an answer. Gives its URL, and what it has
    read."""
    listener = socket.create_server(("127.0.0.1", 0))
    read: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    data = b""
                    while not data.endswith(b"}"):
                        data += connection.recv(65536)
                    read.append(data)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", read
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_every_sender_hears_that_its_message_may_have_been_sent() -> None:
    async def main(url: str) -> list[str | BaseException]:
        async with aio.connect(url) as manager:
            queue = manager.queue(QUEUE)
            return await asyncio.gather(*(queue.send(f"<{each}>") for each in range(10)), return_exceptions=True)

    with breaking() as (url, read):
        outcomes = asyncio.run(main(url))
    assert {type(each) for each in outcomes} == {ManagerUnavailable}
    assert all("it is not known whether the call was done" in str(each) for each in outcomes)
    sent = b"".join(read)
    assert [sent.count(f"<{each}>".encode()) for each in range(10)] == [1] * 10  # never twice


def test_a_blocking_sender_hears_it_too_and_nothing_is_sent_twice() -> None:
    faults: list[Exception] = []

    with breaking() as (url, read), postroad.connect(url) as manager:
        queue = manager.queue(QUEUE)

        def work(thread: int) -> None:
            with pytest.raises(ManagerUnavailable, match="it is not known whether the call was done") as caught:
                queue.send(f"<{thread}>")
            faults.append(caught.value)

        in_threads(6, work)
    assert len(faults) == 6
    sent = b"".join(read)
    assert [sent.count(f"<{each}>".encode()) for each in range(6)] == [1] * 6


def test_without_a_manager_every_sender_hears_it() -> None:
    async def main() -> list[str | BaseException]:
        async with aio.connect("http://127.0.0.1:9") as manager:
            queue = manager.queue(QUEUE)
            return await asyncio.gather(*(queue.send("x") for _ in range(5)), return_exceptions=True)

    assert {type(each) for each in asyncio.run(main())} == {ManagerUnavailable}


def test_a_wrong_token_is_told_to_every_sender() -> None:
    async def main(url: str) -> list[str | BaseException]:
        async with aio.connect(url, token="wrong") as manager:
            queue = manager.queue(QUEUE)
            return await asyncio.gather(*(queue.send("x") for _ in range(3)), return_exceptions=True)

    with served(token="right") as api:
        assert {type(each) for each in asyncio.run(main(api.server.url))} == {AccessDenied}


def test_closing_the_manager_ends_the_sends_that_wait(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)
    faults: list[Exception] = []
    manager = postroad.connect(api.server.url)
    queue = manager.queue(QUEUE)

    def work(thread: int) -> None:
        try:
            queue.send(f"{thread}")
        except PostroadError as fault:
            faults.append(fault)

    threads = [Thread(target=work, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    manager.close()
    requests.go.set()
    for thread in threads:
        thread.join()
    assert all(isinstance(each, OperationCancelled | InvalidHandle) for each in faults)


def test_closing_the_manager_ends_the_tasks_that_wait(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(api, monkeypatch)

    async def main() -> list[str | BaseException]:
        manager = await aio.connect(api.server.url)
        queue = manager.queue(QUEUE)
        sending = [asyncio.ensure_future(queue.send(f"{number}")) for number in range(4)]
        await asyncio.to_thread(requests.came.wait, PATIENCE_S)
        await manager.close()
        requests.go.set()
        return await asyncio.gather(*sending, return_exceptions=True)

    first, *others = asyncio.run(main())
    assert isinstance(first, ManagerUnavailable)  # its request was under way
    assert {type(each) for each in others} == {InvalidHandle}
    assert api.bodies() in ([], ["0"])


def test_an_interrupted_thread_passes_its_turn_on() -> None:
    """Its turn to send for all comes after it is gone."""
    posted: list[list[bytes]] = []

    async def post(name: str, messages: object) -> list[payloads.Outcome]:
        posted.append(list(messages))  # type: ignore[call-overload]
        return [str(each) for each in messages]  # type: ignore[attr-defined]

    joined = JoinedSends(post)
    lane = joined._lanes["q"]
    lane.busy = True  # a request is under way
    gone, stays = _Waiting(b"gone"), _Waiting(b"stays")
    lane.waiting.extend([gone, stays])
    joined._hand_over("q")
    assert gone.batch == [gone, stays]
    joined._leave("q", gone)
    assert stays.batch == [stays]
    assert CallerThread().run(joined._wait("q", stays)) == "b'stays'"
    assert posted == [[b"stays"]]
    assert not joined._lanes
