"""RemoteRead as other software sees it: an impacket client in a process of its own and our server, [MS-MQRR] 3.1."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from postroad.wire.view import MessageView
from tests.remote.station import HOST, PASSWORD, USER, Station, station
from tests.remote.stranger import Reply, Stranger, stranger

RECEIVE, PEEK, PEEK_NEXT, LOOKUP_PEEK_NEXT, LOOKUP_RECEIVE = 0, 0x80000000, 0x80000001, 0x40000011, 0x40000020
NACK, ACK = 1, 2
INFINITE = 0xFFFFFFFF
TIMEOUT, CANCELLED, NOT_FOUND, USAGE = 0xC00E001B, 0xC00E0008, 0xC00E0088, 0xC00E0050
SOON_S = 30
_numbers = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[Station]:
    with station(mapper_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[Stranger]:
    with stranger() as made:
        yield made


class Target:
    """A queue for one test, and a connection with it open."""

    def __init__(self, running: Station, client: Stranger, **bind: object) -> None:
        self.running = running
        self.client = client
        self.path = rf"private$\imp{next(_numbers)}"
        self.name = rf"OS:alpha\{self.path}"
        running.run(running.manager.create_queue(self.path))
        self.bind = bind
        self.context = self.opened("main")

    def opened(self, connection: str, **options: object) -> str:
        """A further connection, with the queue open."""
        self.connect(connection)
        return str(self.call("rr_open", on=connection, name=self.name, **options)["context"])

    def connect(self, connection: str, **more: object) -> int:
        host, port = self.running.address
        options = {**self.bind, **more}
        return int(
            self.call("connect", on=connection, host=host, port=port, interface="remoteread", **options)["association"]
        )

    def call(self, verb: str, *, on: str = "main", **arguments: Any) -> Reply:
        return self.client.call(f"{self.path} {on}", verb, **arguments)

    def start(self, verb: str, *, on: str = "main", **arguments: object) -> Future[Reply]:
        return self.client.start(f"{self.path} {on}", verb, **arguments)

    def read(self, action: int, request: int, **more: Any) -> Reply:
        return self.call("rr_start", action=action, request=request, **more)

    def status(self, verb: str, **arguments: Any) -> int:
        return int(self.call(verb, **arguments)["status"])

    def send(self, *labels: str, **properties: object) -> None:
        self.running.send(*labels, queue=self.path, **properties)

    def labels(self, suffix: str = "") -> list[str]:
        return self.running.labels(self.path + suffix)


def label(reply: Reply) -> str:
    assert reply["status"] == 0, hex(reply["status"])
    octets = b"".join(bytes.fromhex(each[3]) for each in reply["sections"])
    return MessageView(octets[: int.from_bytes(octets[8:12], "little")]).label


@pytest.fixture(params=[False, True], ids=["ndr", "ndr64"])
def target(running: Station, client: Stranger, request: pytest.FixtureRequest) -> Target:
    return Target(running, client, ndr64=request.param)


@pytest.mark.spec("RR-2.2-01", "RR-3.1.4.1-01", "RR-3.1.4.2-01", "RR-3.1.4.7-42", "RR-3.1.4.9-01", "RR-3.1.4.3-01")
def test_every_method(target: Target) -> None:
    assert target.call("rr_port")["port"] == target.running.address[1]
    target.send("one", "two", "three")
    assert label(target.read(PEEK, 1)) == "one"
    assert label(target.read(RECEIVE, 1)) == "one"
    assert target.status("rr_end", ack=NACK, request=1) == 0
    first = target.read(RECEIVE, 2)
    assert label(first) == "one"
    assert target.labels() == ["two", "three"]
    assert target.status("rr_end", ack=ACK, request=2) == 0
    cursor = target.call("rr_cursor")["cursor"]
    assert [label(target.read(action, 3, cursor=cursor)) for action in (PEEK, PEEK_NEXT)] == ["two", "three"]
    assert target.status("rr_close_cursor", cursor=cursor) == 0
    second = 4 << 56 | target.read(PEEK, 4)["sequence"]
    assert label(target.read(LOOKUP_PEEK_NEXT, 5, lookup=second)) == "three"
    assert target.status("rr_class", lookup=second, number=0xC004) == USAGE
    moved = target.call("rr_open", name=target.name + ";sub", move=True, keep="sub")
    assert target.status("rr_move", target=moved["move"], lookup=second) == 0
    assert (target.labels(), target.labels(";sub")) == (["three"], ["two"])
    target.call("rr_open", name=target.name + ";sub", keep="reader")
    assert label(target.read(LOOKUP_RECEIVE, 6, lookup=second, keep="reader")) == "two"
    assert target.status("rr_end", ack=ACK, request=6, keep="reader") == 0
    assert target.status("rr_purge") == 0
    assert target.labels() == target.labels(";sub") == []
    assert target.call("rr_close") == {"status": 0, "context": "00" * 20}
    assert target.call("rr_purge")["fault"] == 0x1C00001A


@pytest.mark.spec("RR-2.2.6-01", "RR-2.2.6-02", "RR-3.1.4.7-25")
def test_sections(target: Target) -> None:
    target.send("a label")
    (whole,) = target.read(PEEK, 1)["sections"]
    assert whole[:3] == [0, len(whole[3]) // 2, len(whole[3]) // 2]
    first, second = target.read(PEEK, 1, body=3)["sections"]
    assert (first[0], second[0]) == (1, 2)
    assert first[1] - first[2] == len("a label") - 3
    assert first[1] + second[1] == whole[1]
    assert whole[3].startswith(first[3])
    assert whole[3].endswith(second[3])
    assert target.read(RECEIVE, 9, lookup=0, timeout=0, cursor=7)["sections"] == []


@pytest.mark.spec("RR-3.1.4.2-02", "RR-3.1.4.11-02")
def test_a_failed_open_is_a_fault(target: Target) -> None:
    for move in (False, True):
        refused = target.call("rr_open", name=r"OS:alpha\private$\nowhere", move=move)
        assert refused["fault"] == 0xC00E0003


@pytest.mark.spec("RR-3.1.4.7-40", "RR-3.1.4.8-01", "RR-3.1.4.8-04", "RR-2.2.4.1-01", "RR-3.1.6.2-02")
def test_parallel_and_cancelled_calls(target: Target) -> None:
    """Each connection of impacket makes one call at a time, so several share the handle in one association."""
    association = target.connect("second")
    context = target.call("rr_open", on="second", name=target.name)["context"]
    for each in ("third", "fourth", "fifth"):
        target.connect(each, association=association)
        target.call("rr_keep", on=each, context=context)
    blocked = [
        target.start("rr_start", on="second", action=RECEIVE, request=1, timeout=INFINITE),
        target.start("rr_start", on="third", action=PEEK, request=2, timeout=INFINITE),
        target.start("rr_start", on="fourth", action=RECEIVE, request=3, timeout=INFINITE),
    ]
    target.running.wait_until("waiting", 3)
    assert [target.status("rr_cancel", on="fifth", request=number) for number in (1, 2)] == [0, 0]
    assert [each.result(SOON_S)["status"] for each in blocked[:2]] == [CANCELLED] * 2
    target.send("one")
    assert label(blocked[2].result(SOON_S)) == "one"
    assert target.status("rr_end", on="second", ack=ACK, request=3) == 0
    assert target.labels() == []


@pytest.mark.spec("RR-3.1.6.1-01", "RR-3.1.6.2-01")
def test_a_killed_process_gives_back_what_it_had(running: Station, client: Stranger) -> None:
    target = Target(running, client)
    target.send("one", "two")
    with stranger() as doomed:
        lost = Target(running, doomed)
        lost.call("connect", on="x", host=running.address[0], port=running.address[1], interface="remoteread")
        lost.call("rr_open", on="x", name=target.name)
        assert label(lost.call("rr_start", on="x", action=RECEIVE, request=1)) == "one"
        waits = lost.start("rr_start", on="main", action=RECEIVE, request=1, timeout=INFINITE)
        running.wait_until("waiting", 1)
        doomed.kill()
        assert not waits.done()
    running.wait_until("unacknowledged", 0)
    running.wait_until("waiting", 0)
    assert target.labels() == ["one", "two"]


@pytest.mark.spec("RR-1.7-02")
@pytest.mark.parametrize("ndr64", [False, True])
@pytest.mark.parametrize("level", [5, 6])
def test_an_authenticated_reader_reads_at_every_level(
    running: Station, client: Stranger, level: int, ndr64: bool
) -> None:
    target = Target(running, client, user=USER, password=PASSWORD, level=level, ndr64=ndr64)
    target.send("one")
    assert [each.user for each in running.readers_of(target.path)] == [USER]
    assert label(target.read(RECEIVE, 1)) == "one"
    assert target.status("rr_end", ack=ACK, request=1) == 0
    assert target.labels() == []


@pytest.mark.spec("RR-2.1-02", "RR-1.9-01", "RR-1.9-02")
def test_the_endpoint_mapper_and_the_interface(running: Station, client: Stranger) -> None:
    host, port = running.address
    address = running.server.mapper_address
    assert address is not None
    mapper = int(address.rpartition(":")[2])
    binding = client.call("rr mapper", "map", host=host, port=mapper, interface="remoteread")["binding"]
    assert binding == f"ncacn_ip_tcp:{HOST}[{port}]"
    uuid = "1a9134dd-7b39-45ba-ad88-44d01ca47f28"
    for each, version, taken in ((uuid, "1.0", True), (uuid, "2.0", False), (uuid[:-1] + "9", "1.0", False)):
        answer = client.call(f"rr {each} {version}", "bind_to", host=host, port=port, uuid=each, version=version)
        assert ("text" not in answer) is taken
