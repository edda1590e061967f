"""The message packet of [MS-MQRR] 2.2.5 in octets, and its sections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import RemoteProtocolError
from postroad.message import Message
from postroad.remote_read.message_packet import Trailers, message_in, sections_of, trailers_of
from postroad.remote_read.remoteread import SectionType
from postroad.store.interface import NEVER, Record
from postroad.wire.patch import arrived_by_http
from postroad.wire.view import MessageView, is_local_part, moves, with_dead_letter_queue, with_move, with_sender
from tests.unit.queues.harness import ORDERS
from tests.unit.queues.harness import Harness as QueueHarness

WHOLE = 0xFFFFFFFF


@pytest.fixture(scope="module")
def packet() -> bytes:
    queues = QueueHarness()
    queues.create(ORDERS)
    queues.send(ORDERS, "one")
    return queues.queue(ORDERS).available(1)[0].packet


def record(packet: bytes, *, aborts: int = 0, reason: int = 0) -> Record:
    return Record(1, 1, 0, NEVER, aborts, packet, reason)


def whole(packet: bytes, subqueue: str = "", **fields: int) -> bytes:
    (only,) = sections_of(record(packet, **fields), subqueue, WHOLE)
    assert only.section is not None
    return only.section


def read(octets: bytes) -> Trailers:
    return trailers_of(octets[int.from_bytes(octets[8:12], "little") :])


@pytest.mark.spec("RR-2.2.5.4-01", "RR-2.2.5.2-01", "RR-2.2.5.2-03")
@pytest.mark.parametrize("name", ["DIRECT=OS:a\\private$\\dead", "DIRECT=OS:a\\private$\\deadx"])
def test_the_dead_letter_queue_of_the_sender_has_a_header(packet: bytes, name: str) -> None:
    rest = whole(with_dead_letter_queue(packet, name))[len(packet) :]
    text = (name + "\0").encode("utf-16-le")
    padded = text + bytes(-len(text) % 4)
    header = (4 + len(padded)).to_bytes(4, "little") + padded
    assert rest[:9] == bytes.fromhex("0c000000") + (148 + len(header) + 28).to_bytes(4, "little") + b"\x13"
    assert rest[160 : 160 + len(header)] == header
    assert len(rest) == 160 + len(header) + 28
    assert read(whole(with_dead_letter_queue(packet, name))).dead_letter_queue == name


@pytest.mark.spec("RR-2.2.5.3-05", "RR-2.2.5.3-03", "RR-2.2.5.3-06")
def test_the_header_of_a_subqueue_counts(packet: bytes) -> None:
    moved = with_move(with_move(with_sender(packet, "S-1-5-7"), 7), 1 << 32)
    assert is_local_part(moved[len(packet) :])
    assert MessageView(moved).local_sender == "S-1-5-7"
    assert moves(moved[len(packet) :]) == (2, 1 << 32)
    found = read(whole(moved, "sub", aborts=3, reason=0x8003))
    assert (found.subqueue, found.aborts, found.moves) == ("sub", 3, 2)
    assert found.last_move_ms == 1  # the low 32 bits, and never 0 once it was moved
    assert found.acknowledgment_class == 0x8003
    assert read(whole(packet)) == read(whole(packet, ""))
    assert read(whole(packet, "x" * 40)).subqueue == "x" * 31
    assert whole(moved)[: len(packet)] == whole(packet)[: len(packet)]


@pytest.mark.spec("RR-2.2.5.2-04")
def test_unused_bits_and_reserved_octets_do_not_count(packet: bytes) -> None:
    octets = bytearray(whole(with_move(packet, 7), "sub", aborts=2))
    expected = read(bytes(octets))
    octets[len(packet) + 8] |= 0xE4
    octets[len(packet) + 9 : len(packet) + 12] = b"\xff" * 3
    assert read(bytes(octets)) == expected
    octets[len(packet) + 8] |= 0x08  # DI without a DeadLetterHeader
    assert read(bytes(octets)) == expected
    for end in range(len(packet), len(octets) - 28):
        with pytest.raises(RemoteProtocolError):
            read(bytes(octets[:end]))


@pytest.mark.spec("RR-2.2.5.1-04", "RR-2.2.5.1.1-01")
def test_a_message_that_came_by_http_is_a_binary_one(packet: bytes) -> None:
    """Neither its envelope nor its compound message was kept."""
    by_http = packet[:63] + bytes((packet[63] | 0x02,)) + packet[64:]
    assert arrived_by_http(by_http)
    assert not arrived_by_http(whole(by_http))
    assert len(whole(by_http)) == len(packet) + 12 + 148 + 28
    first, _ = sections_of(record(by_http), "", 0)
    assert first.section_type == SectionType.BINARY_FIRST


@given(st.binary(max_size=40), st.integers(0, 60))
def test_cut_sections_put_together_are_the_packet_with_less_of_its_body(body: bytes, size: int) -> None:
    queues = QueueHarness()
    queues.create(ORDERS)
    queues.send(ORDERS, Message(body, label="some label"))
    stored = queues.queue(ORDERS).available(1)[0]
    sections = sections_of(stored, "", size)
    assert len(sections) == (2 if size < len(body) else 1)
    found = MessageView(message_in(sections)[0])
    original = MessageView(stored.packet)
    kept = body[:size]
    assert found.body == kept + bytes(len(body) - len(kept))
    assert (found.label, found.packet_size) == (original.label, original.packet_size)
    assert found.time_to_reach_queue == original.time_to_reach_queue
