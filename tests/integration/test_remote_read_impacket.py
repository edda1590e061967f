"""Remote read as other software sees it: an impacket client in a process of its own and our server, [MS-MQQP] 3.1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count, product
from typing import Any

import pytest

from postroad.message import Message
from postroad.remote_read.qm2qm import START_RECEIVE2
from postroad.rpc.ndr import Format
from postroad.wire.view import MessageView
from tests.remote.station import HOST, PASSWORD, USER, Station, station
from tests.remote.stranger import Reply, Stranger, StrangeReader, label, stranger, view

RECEIVE, PEEK, PEEK_NEXT = 0, 0x80000000, 0x80000001
NACK, ACK = 1, 2
CANCELLED = 0x400E03E9
INVALID_PARAMETER, INVALID_HANDLE, TIMEOUT = 0xC00E0006, 0xC00E0007, 0xC00E001B
BAD_STUB, OP_RANGE, CONTEXT_MISMATCH = 0x6F7, 0x1C010002, 0x1C00001A
NO_CONTEXT = "00" * 20
INFINITE = 0xFFFFFFFF
SOON_S = 20

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
    """A queue for one test, and readers of it."""

    def __init__(self, running: Station, client: Stranger) -> None:
        self.running = running
        self.client = client
        self.path = rf"private$\test{next(_numbers)}"
        self.name = rf"OS:alpha\{self.path}"
        running.run(running.manager.create_queue(self.path))

    def reader(self, client: Stranger | None = None, **options: object) -> StrangeReader:
        return StrangeReader(client or self.client, self.running.address, self.name, **options)  # type: ignore[arg-type]

    def send(self, *labels: str, **properties: object) -> None:
        self.running.send(*labels, queue=self.path, **properties)

    def labels(self) -> list[str]:
        return self.running.labels(self.path)


@pytest.fixture
def target(running: Station, client: Stranger) -> Target:
    return Target(running, client)


# Binding


@pytest.mark.spec("QP-2.1-01", "QP-2.1-07", "QP-3.1.3-01", "QP-5-01", "QP-2.1-04")
def test_anybody_binds_at_the_port_that_the_server_tells_of(target: Target) -> None:
    host, port = target.running.address
    target.client.call("bind", "connect", host=host, port=port, interface="qm2qm")
    told = target.client.call("bind", "port", kind=1)["port"]
    target.client.call("bind again", "connect", host=host, port=told, interface="qm2qm")
    assert target.client.call("bind again", "version")["version"] == [6, 1, 7600]


@pytest.mark.spec("QP-2.1-03")
@pytest.mark.parametrize("interface", ["qm2qm", "qmcomm"])
def test_the_endpoint_mapper_tells_where_the_interfaces_are(target: Target, interface: str) -> None:
    address = target.running.server.mapper_address
    assert address is not None
    host, _, port = address.rpartition(":")
    binding = target.client.call("mapper", "map", host=host, port=int(port), interface=interface)["binding"]
    assert binding == f"ncacn_ip_tcp:{HOST}[{target.running.address[1]}]"
    found = int(binding.partition("[")[2].rstrip("]"))
    target.client.call(f"mapped {interface}", "connect", host=host, port=found, interface=interface)


@pytest.mark.spec("QP-1.9-01", "QP-1.9-02")
@pytest.mark.parametrize(
    ("uuid", "version", "taken"),
    [
        ("1088a980-eae5-11d0-8d9b-00a02453c337", "1.0", True),
        ("1088a980-eae5-11d0-8d9b-00a02453c337", "2.0", False),
        ("1088a980-eae5-11d0-8d9b-00a02453c338", "1.0", False),
    ],
)
def test_only_our_interface_in_our_version_can_be_bound(target: Target, uuid: str, version: str, taken: bool) -> None:
    host, port = target.running.address
    answer = target.client.call(f"bind {uuid} {version}", "bind_to", host=host, port=port, uuid=uuid, version=version)
    assert ("text" not in answer) is taken


@pytest.mark.spec("QP-2.2-01", "QP-3.1.4.10-03")
@pytest.mark.parametrize("ndr64", [False, True], ids=["ndr", "ndr64"])
@pytest.mark.parametrize("verb", ["start", "start2"])
def test_a_message_is_received_in_either_syntax_by_either_method(target: Target, ndr64: bool, verb: str) -> None:
    target.send("one", "two")
    reader = target.reader(ndr64=ndr64)
    reply = reader.read(RECEIVE, verb)
    assert label(reply) == "one"
    assert reply["context"] != NO_CONTEXT
    assert reader.end(ACK) == {"status": 0, "context": NO_CONTEXT}
    assert target.labels() == ["two"]


@pytest.mark.parametrize("level", [5, 6])
def test_an_authenticated_reader_reads_at_every_level(target: Target, level: int) -> None:
    target.send("one")
    reader = target.reader(user=USER, password=PASSWORD, level=level)
    assert [each.user for each in target.running.server.readers() if each.queue == target.path] == [USER]
    assert label(reader.read(RECEIVE)) == "one"
    assert reader.end(ACK)["status"] == 0
    assert target.labels() == []


def test_a_wrong_password_opens_nothing(target: Target) -> None:
    host, port = target.running.address
    connection = "wrong password"
    options = {"user": USER, "password": "a guess", "level": 6}
    first = target.client.start(connection, "connect", host=host, port=port, interface="qmcomm", **options).result(
        SOON_S
    )
    second = target.client.start(connection, "open", name=target.name).result(SOON_S)
    assert "text" in first or "error" in first or "text" in second or "error" in second
    assert [each for each in target.running.server.readers() if each.queue == target.path] == []


# qmcomm


def test_an_opened_queue_has_one_number_three_times(target: Target) -> None:
    host, port = target.running.address
    target.client.call("open", "connect", host=host, port=port, interface="qmcomm")
    answer = target.client.call("open", "open", name=target.name)
    assert answer["status"] == 0
    assert len(set(answer["handles"])) == 1
    assert answer["handles"][0] != 0
    assert target.client.call("open", "close_context")["context"] == NO_CONTEXT


@pytest.mark.parametrize(
    ("name", "access", "status"),
    [
        (r"OS:alpha\private$\nowhere", 1, 0xC00E0003),
        (r"OS:alpha\private$\nowhere", 2, 0xC00E0045),
        ("nonsense", 1, 0xC00E001E),
    ],
)
def test_a_queue_that_cannot_be_opened(target: Target, name: str, access: int, status: int) -> None:
    host, port = target.running.address
    target.client.call("refused", "connect", host=host, port=port, interface="qmcomm")
    assert target.client.call("refused", "open", name=name, access=access)["status"] == status


def test_an_exclusive_reader_keeps_others_out(target: Target) -> None:
    reader = target.reader(share=1)
    host, port = target.running.address
    target.client.call("second", "connect", host=host, port=port, interface="qmcomm")
    assert target.client.call("second", "open", name=target.name)["status"] == 0xC0000043
    reader.call("qm2qm", "close_queue")
    assert target.client.call("second", "open", name=target.name)["status"] == 0


def test_an_obsolete_method_is_an_illegal_operation(target: Target) -> None:
    host, port = target.running.address
    target.client.call("obsolete", "connect", host=host, port=port, interface="qmcomm")
    assert target.client.call("obsolete", "remote_queue_name")["fault"] == 0xC00E0064


@pytest.mark.spec("QP-3.1.4.8-06", "QP-3.1.4.8-08")
def test_both_interfaces_report_the_ports_and_spx_has_none(target: Target) -> None:
    reader = target.reader()
    port = target.running.address[1]
    assert [reader.call("qm2qm", "port", kind=kind)["port"] for kind in range(4)] == [port, port, 0, 0]
    assert [reader.call("qmcomm", "rt_port", kind=kind)["port"] for kind in range(5)] == [port, port, 0, 0, 0]


@pytest.mark.spec("QP-3.1.4.8-02")
def test_a_port_type_out_of_range_is_bad_stub_data(target: Target) -> None:
    assert target.reader().call("qm2qm", "port", kind=4)["fault"] == BAD_STUB


@pytest.mark.spec("QP-3.1.4.3-20")
def test_the_qmcomm_context_may_close_while_the_queue_is_read(target: Target) -> None:
    target.send("one")
    reader = target.reader()
    reader.call("qmcomm", "close_context")
    reader.call("qmcomm", "disconnect")
    assert label(reader.read(PEEK)) == "one"


# Opening by qm2qm


@pytest.mark.spec("QP-3.1.4.3-05", "QP-3.1.4.3-08", "QP-3.1.4.3-09", "QP-3.1.4.3-10")
@pytest.mark.parametrize("mqs", [0, 1, 16])
@pytest.mark.parametrize("handle", [0, 0x12345678])
def test_neither_dwmqs_nor_hqueue_matter(target: Target, mqs: int, handle: int) -> None:
    reader = target.reader()
    answer = reader.call("qm2qm", "open_queue", queue=reader.handle, handle=handle, mqs=mqs, keep="second")
    assert answer["status"] == 0
    assert answer["context"] != NO_CONTEXT


@pytest.mark.spec("QP-3.1.4.3-17")
def test_the_queue_that_dwpcontext_names_is_open_and_not_that_of_hqueue(target: Target) -> None:
    other = Target(target.running, target.client)
    other.send("other")
    reader = target.reader()
    handle = reader.call("qmcomm", "open", name=other.name, access=1, share=0, keep="other")["handles"][0]
    fields = {"queue_handle": handle, "queue": handle, "action": PEEK, "request_id": 1}
    assert reader.call("qm2qm", "start2", **fields)["status"] == INVALID_PARAMETER
    assert reader.call("qm2qm", "open_queue", queue=handle, handle=reader.handle, keep="second")["status"] == 0
    assert label(reader.call("qm2qm", "start2", **fields)) == "other"


@pytest.mark.spec("QP-3.1.4.3-07", "QP-3.1.4-04")
def test_a_dwmqs_of_17_is_bad_stub_data(target: Target) -> None:
    reader = target.reader()
    assert reader.call("qm2qm", "open_queue", queue=reader.handle, mqs=17)["fault"] == BAD_STUB


@pytest.mark.spec("QP-3.1.4.3-12", "QP-3.1.4.3-14", "QP-3.1.4.3-15", "QP-3.1.4.3-16", "QP-3.1.4.3-21")
def test_numbers_that_do_not_fit_are_an_invalid_parameter(target: Target) -> None:
    reader = target.reader()
    handle = reader.handle
    for queue, context in ((0, handle), (handle, 0), (handle + 1, handle), (0x7A7A, 0x7A7A)):
        answer = reader.call("qm2qm", "open_queue", queue=queue, context=context, keep="none")
        assert answer == {"status": INVALID_PARAMETER, "context": NO_CONTEXT}


@pytest.mark.spec("QP-3.1.4-03", "QP-1.7-01")
def test_there_is_no_twelfth_method(target: Target) -> None:
    assert target.reader().call("qm2qm", "beyond")["fault"] == OP_RANGE


# Reading


@pytest.mark.spec("QP-2.2.2.1-15", "QP-2.2.2.1-24", "QP-3.1.4.1-36", "QP-3.1.4.1-37", "QP-3.1.4.10-18")
@pytest.mark.parametrize("verb", ["start", "start2"])
def test_the_answer_is_the_packet_and_its_size(target: Target, verb: str) -> None:
    target.send("one", priority=5, app_tag=77)
    reply = target.reader().read(PEEK, verb)
    packet = bytes.fromhex(reply["packet"])
    assert reply["size"] == len(packet) == int.from_bytes(packet[8:12], "little")
    message = view(reply)
    assert (message.label, message.body, message.priority, message.application_tag) == ("one", b"one", 5, 77)


@pytest.mark.spec("QP-2.2.2.1-21")
def test_the_answer_says_when_the_message_arrived(target: Target) -> None:
    before = int(time.time())
    target.send("one")
    after = int(time.time())
    time.sleep(1.1)  # or the time of reading could not be told from it
    assert before <= target.reader().read(PEEK)["arrived"] <= after


@pytest.mark.spec("QP-3.1.4.1-12", "QP-3.1.4.10-08", "QP-3.1.4.1-11")
@pytest.mark.parametrize("verb", ["start", "start2"])
def test_only_a_receive_gives_a_handle(target: Target, verb: str) -> None:
    reader = target.reader()
    failed = reader.read(RECEIVE, verb)
    assert (failed["status"], failed["context"], failed["size"]) == (TIMEOUT, NO_CONTEXT, 0)
    target.send("one")
    assert reader.read(PEEK, verb)["context"] == NO_CONTEXT
    assert reader.read(RECEIVE, verb)["context"] != NO_CONTEXT


@pytest.mark.spec("QP-3.1.4.10-05", "QP-2.2.2.2-03", "QP-1.3.1-01")
def test_every_message_has_a_sequential_id_of_seven_octets(target: Target) -> None:
    target.send("a", "b", "c", priority=3)
    target.send("d", priority=7)
    reader = target.reader()
    found: dict[str, int] = {}
    for _ in range(4):
        reply = reader.read(RECEIVE, sequential=0x7777777777777777)
        found[label(reply)] = reply["sequential"]
        behind_message_id = bytes.fromhex(reply["packet"])[60:]  # ids count up as well, and may be the same number
        assert reply["sequential"].to_bytes(8, "little") not in behind_message_id
    assert list(found) == ["d", "a", "b", "c"]
    assert len(set(found.values())) == 4
    assert all(number >> 56 == 0 for number in found.values())


@pytest.mark.spec("QP-2.2.2.1-20", "QP-2.2.2.1-22")
def test_reserved_members_change_nothing(target: Target) -> None:
    target.send("one")
    reader = target.reader()
    reply = reader.read(RECEIVE, reserved=0xDEADBEEF, ack_nack=2, arrive_time=5)
    assert label(reply) == "one"
    assert reader.end(NACK)["status"] == 0
    assert target.labels() == ["one"]
    reader.read(RECEIVE, ack_nack=1)
    assert target.labels() == []


@pytest.mark.spec("QP-3.1.4.10-10", "QP-3.1.4.11-12")
def test_a_null_descriptor_is_an_invalid_handle_and_no_fault(target: Target) -> None:
    reader = target.reader()
    assert reader.call("qm2qm", "start2", null=True) == {"status": INVALID_HANDLE}
    assert reader.call("qm2qm", "lookup", lookup_id=0, null=True) == {"status": INVALID_HANDLE}


@pytest.mark.spec("QP-3.1.4.1-21", "QP-3.1.4.1-41", "QP-3.1.4.10-11", "QP-3.1.4.10-13", "QP-3.1.4.10-15")
@pytest.mark.parametrize("verb", ["start", "start2"])
def test_faults_of_a_read_are_hresults(target: Target, verb: str) -> None:
    target.send("one")
    reader = target.reader()
    other = target.reader()
    expected: list[tuple[int, dict[str, object]]] = [
        (INVALID_PARAMETER, {"queue": 0}),
        (INVALID_PARAMETER, {"queue": reader.handle + 1}),
        (INVALID_PARAMETER, {"queue": 77, "queue_handle": 77}),
        (0xC000000D, {"action": PEEK_NEXT}),
        (0xC000000D, {"cursor": other.cursor()}),
        (INVALID_PARAMETER, {"action": 0x40000010}),
    ]
    for status, fields in expected:
        reply = reader.call("qm2qm", verb, **{**reader.fields(RECEIVE), **fields})
        assert reply["status"] == status, fields
    assert target.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.1-15", "QP-3.1.4.1-17", "QP-3.1.4.1-19", "QP-3.1.4.5-05")
def test_a_cursor_walks_through_the_queue(target: Target) -> None:
    target.send("one", "two", "three")
    reader = target.reader()
    cursor = reader.cursor()
    assert reader.read(PEEK_NEXT, cursor=cursor)["status"] == 0xC00E001C
    walk = [PEEK, PEEK, PEEK_NEXT, PEEK_NEXT, PEEK]
    assert [label(reader.read(action, cursor=cursor)) for action in walk] == ["one", "one", "two", "three", "three"]
    assert label(reader.read(RECEIVE, cursor=cursor)) == "three"
    assert reader.end(ACK)["status"] == 0
    assert target.labels() == ["one", "two"]
    assert reader.call("qm2qm", "close_cursor", handle=reader.handle, cursor=cursor)["status"] == 0
    assert reader.read(PEEK, cursor=cursor)["status"] == 0xC000000D
    assert reader.call("qm2qm", "close_cursor", handle=reader.handle, cursor=cursor)["status"] == INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.11-05", "QP-3.1.4.11-06", "QP-3.1.4.11-07", "QP-3.1.4.11-08", "QP-3.1.4.11-09")
@pytest.mark.parametrize("receive", [False, True], ids=["peek", "receive"])
def test_messages_are_found_in_all_directions(target: Target, receive: bool) -> None:
    target.send("one", "two", "three", "four", "five", priority=3)
    reader = target.reader()
    current, following, previous = (0x40000020 + n if receive else 0x40000010 + n for n in range(3))
    top = 4 << 56  # of priority 3

    def found(action: int, lookup_id: int) -> Reply:
        reply = reader.call(
            "qm2qm", "lookup", lookup_id=lookup_id, queue_handle=reader.handle, action=action, keep=str(lookup_id)
        )
        assert (reply["context"] != NO_CONTEXT) is receive
        return reply

    first = found(following, 0)
    last = found(previous, 0xFFFFFFFFFFFFFFFF)
    assert (label(first), label(last)) == ("one", "five")
    second = found(following, top | first["sequential"])
    fourth = found(previous, top | last["sequential"])
    assert (label(second), label(fourth)) == ("two", "four")
    third = found(current, top | second["sequential"] + 1)
    assert label(third) == "three"
    assert target.labels() == ([] if receive else ["one", "two", "three", "four", "five"])


@pytest.mark.spec("QP-3.1.4.11-23", "QP-3.1.4.11-26", "QP-3.1.4.11-25", "QP-3.1.4.11-27")
def test_a_message_received_by_its_lookup_id_can_be_given_back(target: Target) -> None:
    target.send("one", "two")
    reader = target.reader()
    lookup = {"lookup_id": 0, "queue_handle": reader.handle, "action": 0x40000021}
    reply = reader.call("qm2qm", "lookup", **lookup)
    assert label(reply) == "one"
    assert reply["size"] == int.from_bytes(bytes.fromhex(reply["packet"])[8:12], "little")
    assert target.labels() == ["two"]
    assert reader.end(NACK)["status"] == 0
    assert target.labels() == ["one", "two"]
    reader.call("qm2qm", "lookup", **lookup)
    assert reader.end(ACK)["status"] == 0
    assert target.labels() == ["two"]


@pytest.mark.spec("QP-3.1.4.11-13", "QP-3.1.4.11-14", "QP-3.1.4.11-15", "QP-3.1.4.11-24", "QP-3.1.4.11-04")
def test_faults_of_a_lookup_are_hresults(target: Target) -> None:
    reader = target.reader()
    peek = 0x40000011
    expected: list[tuple[int, dict[str, object]]] = [
        (INVALID_PARAMETER, {"queue_handle": 0, "action": peek}),
        (INVALID_PARAMETER, {"queue_handle": 77, "action": peek}),
        (INVALID_PARAMETER, {"timeout": 1, "action": peek}),
        (INVALID_PARAMETER, {"timeout": INFINITE, "action": peek}),
        (INVALID_PARAMETER, {"cursor": reader.cursor(), "action": peek}),
        (INVALID_PARAMETER, {"action": RECEIVE}),
        (0xC00E0088, {"action": peek}),
    ]
    for status, fields in expected:
        reply = reader.call("qm2qm", "lookup", **{"lookup_id": 0, "queue_handle": reader.handle, **fields})
        assert reply["status"] == status, fields


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (Format.NDR, {}),
        (Format.NDR64, {"ndr64": True}),
        (Format.NDR, {"user": USER, "password": PASSWORD, "level": 6}),
    ],
    ids=["ndr", "ndr64", "sealed"],
)
def test_a_message_of_4_mb_comes_whole(target: Target, layout: Format, options: dict[str, Any]) -> None:
    body = bytes(range(256)) * 16000  # 4,096,000 bytes, in some 70 fragments
    target.running.run(target.running.manager.send(target.path, [Message(body, label="large", recoverable=True)]))
    reader = target.reader(**options)
    stub = bytes.fromhex(reader.call("qm2qm", "start2_raw", **reader.fields(RECEIVE))["stub"])
    answer = START_RECEIVE2.reply.decode(stub, layout)
    desc = answer.remote_read_desc2.remote_read_desc
    assert desc is not None
    assert desc.buffer is not None
    assert MessageView(desc.buffer).body == body
    assert reader.end(ACK)["status"] == 0
    assert target.labels() == []


# Acknowledging


@pytest.mark.spec("QP-3.1.4.2-06", "QP-3.1.4.2-16", "QP-3.1.4.2-13")
def test_a_negative_acknowledgment_wakes_whoever_waits(target: Target) -> None:
    target.send("one")
    reader, other = target.reader(), target.reader()
    reader.read(RECEIVE)
    waiting = other.start("qm2qm", "start2", **other.fields(RECEIVE, timeout=60_000))
    target.running.run(_waits(target, 1))
    assert reader.end(NACK) == {"status": 0, "context": NO_CONTEXT}
    assert label(waiting.result(SOON_S)) == "one"
    assert other.end(ACK)["status"] == 0
    assert target.labels() == []


@pytest.mark.spec("QP-3.1.4.2-13", "QP-2.2.1.1-04")
def test_a_handle_is_good_for_one_acknowledgment(target: Target) -> None:
    target.send("one", "two")
    reader = target.reader()
    context = reader.read(RECEIVE)["context"]
    assert reader.end(ACK)["status"] == 0
    assert reader.call("qm2qm", "end", ack=ACK, context=context)["fault"] == CONTEXT_MISMATCH
    assert target.labels() == ["two"]


@pytest.mark.spec("QP-2.2.1.1-04")
def test_a_handle_means_nothing_to_another_client(target: Target) -> None:
    target.send("one")
    reader, thief = target.reader(), target.reader()
    context = reader.read(RECEIVE)["context"]
    assert thief.call("qm2qm", "end", ack=ACK, context=context)["fault"] == CONTEXT_MISMATCH
    assert thief.call("qm2qm", "close_queue", context=context)["fault"] == CONTEXT_MISMATCH
    assert reader.end(ACK)["status"] == 0


def test_a_handle_of_another_kind_is_refused(target: Target) -> None:
    target.send("one")
    reader = target.reader()
    context = reader.read(RECEIVE)["context"]
    assert reader.call("qm2qm", "close_queue", context=context)["fault"] == CONTEXT_MISMATCH
    assert reader.end(ACK)["status"] == 0


@pytest.mark.spec("QP-3.1.4.2-05", "QP-3.1.4-04")
@pytest.mark.parametrize("ack", [0, 3])
def test_an_acknowledgment_out_of_range_leaves_the_message_locked(target: Target, ack: int) -> None:
    target.send("one")
    reader = target.reader()
    reader.read(RECEIVE)
    assert reader.end(ack)["fault"] == BAD_STUB
    assert target.labels() == []
    assert reader.end(ACK)["status"] == 0


@pytest.mark.spec("QP-3.1.4.2-09", "QP-3.1.4.4-04", "QP-6-04", "QP-3.1.4.4-09")
def test_a_null_handle_reaches_the_method(target: Target) -> None:
    reader = target.reader()
    nothing = {"status": INVALID_HANDLE, "context": NO_CONTEXT}
    assert reader.call("qm2qm", "end", ack=ACK, context=NO_CONTEXT) == nothing
    assert reader.call("qm2qm", "close_queue", context=NO_CONTEXT) == nothing
    assert reader.call("qm2qm", "close_queue") == {"status": 0, "context": NO_CONTEXT}


@pytest.mark.spec("QP-3.1.6.2-01", "QP-3.1.6.1-01", "QP-3.1.6.1-02")
def test_a_connection_that_drops_gives_everything_back(target: Target) -> None:
    target.send("one", "two")
    other = target.reader()
    reader = target.reader()
    reader.read(RECEIVE)
    reader.read(RECEIVE, keep="second")
    waiting = other.start("qm2qm", "start2", **other.fields(RECEIVE, timeout=60_000))
    target.running.run(_waits(target, 1))
    reader.call("qm2qm", "disconnect")
    assert label(waiting.result(SOON_S)) == "one"
    other.end(NACK)
    assert target.labels() == ["one", "two"]


@pytest.mark.spec("QP-3.1.6.1-01", "QP-3.1.6.1-02", "QP-3.1.6.2-01")
def test_a_reader_that_is_killed_gives_everything_back(target: Target) -> None:
    target.send("one", "two", "three")
    with stranger() as doomed:
        reader = target.reader(doomed, share=1)
        reader.read(RECEIVE)
        assert label(reader.read(RECEIVE, keep="second")) == "two"
        doomed.kill()
    target.running.run(_gone(target))
    assert target.labels() == ["one", "two", "three"]
    survivor = target.reader(share=1)
    assert label(survivor.read(RECEIVE)) == "one"


@pytest.mark.spec("QP-3.1.6.1-02")
def test_a_killed_reader_that_waited_takes_no_message_with_it(target: Target) -> None:
    with stranger() as doomed:
        reader = target.reader(doomed)
        reader.start("qm2qm", "start2", **reader.fields(RECEIVE, timeout=INFINITE))
        target.running.run(_waits(target, 1))
        doomed.kill()
    target.running.run(_gone(target))
    target.send("one")
    assert target.labels() == ["one"]


# Waiting and cancelling


@pytest.mark.spec("QP-3.1.4-06", "QP-3.1.4.6-09", "QP-3.1.4.6-10", "QP-3.1.4.10-16", "QP-3.1.4.1-32")
@pytest.mark.parametrize("verb", ["start", "start2"])
def test_a_read_is_cancelled_from_a_second_connection(target: Target, verb: str) -> None:
    reader = target.reader()
    fields = reader.fields(RECEIVE, timeout=INFINITE)
    waiting: Future[Reply] = reader.start("qm2qm", verb, **fields)
    target.running.run(_waits(target, 1))
    host, port = target.running.address
    target.client.call("canceller", "connect", host=host, port=port, interface="qm2qm")
    cancel = {"handle": reader.handle, "request_id": fields["request_id"]}
    assert target.client.call("canceller", "cancel", **{**cancel, "request_id": 99})["status"] == 0xC00E0001
    assert target.client.call("canceller", "cancel", **cancel, queue=0)["status"] == INVALID_PARAMETER
    assert target.client.call("canceller", "cancel", **cancel)["status"] == 0
    answer = waiting.result(SOON_S)
    assert (answer["status"], answer["size"], answer["context"]) == (CANCELLED, 0, NO_CONTEXT)
    assert target.client.call("canceller", "cancel", **cancel)["status"] == INVALID_HANDLE


@pytest.mark.spec("QP-3.1.4.10-12", "QP-3.1.4.1-25")
def test_both_methods_share_the_request_ids(target: Target) -> None:
    reader = target.reader()
    fields = reader.fields(RECEIVE, timeout=INFINITE)
    reader.start("qm2qm", "start", **fields)
    target.running.run(_waits(target, 1))
    host, port = target.running.address
    target.client.call("doubler", "connect", host=host, port=port, interface="qm2qm")
    assert target.client.call("doubler", "start2", **fields)["status"] == INVALID_PARAMETER


@pytest.mark.spec("QP-3.1.4.10-17", "QP-3.1.4.6-13")
def test_the_second_method_reads_as_the_first_does(target: Target) -> None:
    """A receive waits under its request id, and so does a peek. The next message is the cursor's."""
    target.send("one", "two")
    walker = target.reader()
    cursor = walker.cursor()
    assert [label(walker.read(action, cursor=cursor)) for action in (PEEK, PEEK_NEXT)] == ["one", "two"]
    walker.call("qm2qm", "purge", handle=walker.handle)
    host, port = target.running.address
    target.client.call("tags", "connect", host=host, port=port, interface="qm2qm")
    for verb, action in product(("start", "start2"), (RECEIVE, PEEK)):
        reader = target.reader()
        fields = reader.fields(action, timeout=INFINITE)
        waiting: Future[Reply] = reader.start("qm2qm", verb, **fields)
        target.running.run(_waits(target, 1))
        answer = target.client.call("tags", "cancel", handle=reader.handle, request_id=fields["request_id"])
        assert answer["status"] == 0
        assert waiting.result(SOON_S)["status"] == CANCELLED
        target.running.run(_waits(target, 0))


@pytest.mark.spec("QP-3.1.4.4-07", "QP-3.1.4-06")
def test_closing_the_queue_ends_a_read_that_waits(target: Target) -> None:
    reader = target.reader()
    waiting = reader.start("qm2qm", "start2", **reader.fields(RECEIVE, timeout=INFINITE))
    target.running.run(_waits(target, 1))
    host, port = target.running.address
    target.client.call("closer", "connect", host=host, port=port, interface="qm2qm")
    assert target.client.call("closer", "open_queue", queue=reader.handle)["status"] == 0
    assert target.client.call("closer", "close_queue")["status"] == 0
    assert waiting.result(SOON_S)["status"] == CANCELLED


@pytest.mark.spec("QP-3.1.4.1-08", "QP-2.2.2.1-11")
def test_time_is_counted_in_milliseconds(target: Target) -> None:
    started = time.monotonic()
    assert target.reader().read(RECEIVE, timeout=1500)["status"] == TIMEOUT
    assert time.monotonic() - started >= 1.5


# Purging


@pytest.mark.spec("QP-3.1.4.7-06", "QP-3.1.4.7-04", "QP-3.1.4.7-05")
def test_a_purge_empties_the_queue(target: Target) -> None:
    target.send(*(str(number) for number in range(50)))
    reader = target.reader()
    assert reader.call("qm2qm", "purge", handle=77)["status"] == INVALID_HANDLE
    assert reader.call("qm2qm", "purge", handle=reader.handle)["status"] == 0
    assert target.labels() == []


def test_who_may_only_peek_neither_receives_nor_purges(target: Target) -> None:
    target.send("one")
    reader = target.reader(access=0x20)
    assert label(reader.read(PEEK)) == "one"
    assert reader.read(RECEIVE)["status"] == 0xC00E0025
    assert reader.call("qm2qm", "purge", handle=reader.handle)["status"] == 0xC00E0025
    assert target.labels() == ["one"]


# Nonsense


@pytest.mark.parametrize(
    "octets",
    [
        "00" * 64,
        "ff" * 64,
        "05000b03100000004800000001000000",  # a bind of which the rest never comes
        "0500000310000000ffff000001000000" + "41" * 100,
        "4745542f20485454502f312e310d0a0d0a",
    ],
)
def test_nonsense_ends_its_own_connection_at_the_most(target: Target, octets: str) -> None:
    target.send("one")
    reader = target.reader()
    host, port = target.running.address
    name = f"nonsense {octets[:8]}"
    target.client.call(name, "connect", host=host, port=port, interface="qm2qm")
    target.client.start(name, "send_raw", data=octets)
    assert label(reader.read(RECEIVE)) == "one"
    assert reader.end(ACK)["status"] == 0


async def _waits(target: Target, wanted: int) -> None:
    """Waits until so many reads of the queue wait."""
    queue = target.running.manager.core.queues.get(target.path)
    for _ in range(2000):
        if len(queue.waiting) == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(queue.waiting)} reads wait, not {wanted}")


async def _gone(target: Target) -> None:
    """Waits until nobody has the queue open."""
    queue = target.running.manager.core.queues.get(target.path)
    for _ in range(2000):
        if not queue.descriptors:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{queue.descriptors} are still there")
