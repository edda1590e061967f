"""A run of packets is checked in one pass, as strictly as each packet alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.errors import RemoteProtocolError
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.wire import (
    MessagePropertiesHeader,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
)
from postroad.wire.framer import decode_packet
from postroad.wire.headers import BaseHeader, SecurityHeader
from postroad.wire.patch import with_session_header
from postroad.wire.runs import Run, is_plain, plain_run
from postroad.wire.view import MessageView
from tests.messages import QUEUE
from tests.packets import ADDRESS, OTHER, SOURCE

DIRECT = parse_format_name(r"DIRECT=TCP:10.0.0.1\private$\orders")
SEQUENCE = TxSequenceId(7, 9)


def direct(number: int) -> bytes:
    message = Message(b"body" * number, label="label", recoverable=True, response_queue=DIRECT)
    return Composer(SOURCE, DIRECT).compose(message, number, 1000 + number)


def full(number: int) -> bytes:
    """A packet with every header that a plain message may have."""
    return UserMessage(
        BaseHeader(5),
        UserHeader(SOURCE, number, QUEUE, ADDRESS, sent_time=1000 - number, flags=0x20, connector_type=OTHER),
        MessagePropertiesHeader(b"body" * number, "label", b"more"),
        TransactionHeader(SEQUENCE, number, number - 1),
        SecurityHeader(1, b"sender"),
    ).encode()


def run_of(*packets: bytes) -> Run:
    first = decode_packet(packets[0])
    assert isinstance(first, MessageView)
    assert is_plain(first)
    return plain_run(first, packets, 0)


@pytest.mark.parametrize("make", [direct, full])
def test_messages_of_one_sender_to_one_queue_are_a_run(make: type[bytes]) -> None:
    packets = [make(number) for number in (1, 2, 3)]
    run = run_of(*packets)
    assert run.packets == packets
    assert run.identifiers == [MessageView(packet).identifier for packet in packets]
    assert run.size == sum(map(len, packets))
    assert run.oldest_s == min(MessageView(packet).sent_time for packet in packets)
    assert run.last_number == (3 if make is full else 0)


def test_it_begins_where_it_is_asked_to() -> None:
    packets = [direct(number) for number in range(1, 6)]
    assert plain_run(MessageView(packets[2]), packets, 2).packets == packets[2:]


def test_labels_may_differ() -> None:
    packets = [
        Composer(SOURCE, DIRECT).compose(Message(label=label), number, 5)
        for number, label in enumerate(("", "a", "", "a", "\u0100", "x" * 249))
    ]
    assert run_of(*packets).packets == packets


def test_a_label_may_not_be_too_long() -> None:
    packet = Composer(SOURCE, DIRECT).compose(Message(b"abcdef", label="label"), 1, 5)
    at = packet.index("label".encode("utf-16-le"))
    label = ("x" * 245).encode("utf-16-le")  # 251 units with those that are there
    longer = packet[:at] + label + packet[at:-2]  # a size that needs no padding
    size = len(longer).to_bytes(4, "little")
    longer = longer[:8] + size + longer[12 : at - 55] + bytes((251,)) + longer[at - 54 :]
    with pytest.raises(RemoteProtocolError, match="LabelLength must be at most 250, got 251"):
        MessageView(longer)
    assert run_of(packet, longer).packets == [packet]


@pytest.mark.parametrize("make", [direct, full])
def test_no_changed_bit_gets_in_that_a_packet_alone_would_not_have(make: type[bytes]) -> None:
    """A packet in a run is valid, plain, and equal to the first one in everything that a receiver asks only the first
    for."""
    first, second, third = (make(number) for number in (1, 2, 3))
    refused = taken = 0
    for bit in range(8 * len(second)):
        changed = bytearray(second)
        changed[bit // 8] ^= 1 << bit % 8
        run = run_of(first, bytes(changed), third)
        try:
            alone = decode_packet(bytes(changed))
        except RemoteProtocolError:
            assert run.packets == [first]
            refused += 1
            continue
        if len(run.packets) > 1:
            taken += 1
            assert isinstance(alone, MessageView)
            assert is_plain(alone)
            assert _common(alone) == _common(run.view)
            assert run.identifiers[1] == alone.identifier
    assert refused > 100
    assert taken > 100


def _common(view: MessageView) -> tuple[object, ...]:
    place = view.transaction_header
    return (
        view.base_flags,
        view.user_flags,
        view.queue_manager_address,
        view.source_queue_manager,
        view.time_to_reach_queue,
        view.time_to_be_received,
        view.destination_bytes,
        view.admin_queue,
        view.response_queue,
        view.connector_type,
        view.security_header,
        None if place is None else place.sequence_id,
    )


@pytest.mark.parametrize(
    ("number", "previous", "sequence"),
    [(3, 2, SEQUENCE), (2, 0, SEQUENCE), (2, 1, TxSequenceId(7, 10)), (1, 1, SEQUENCE)],
    ids=["gap", "again", "another sequence", "not above"],
)
def test_transactional_messages_that_do_not_follow_each_other_are_none(
    number: int, previous: int, sequence: TxSequenceId
) -> None:
    second = replace(UserMessage.decode(full(2)), transaction=TransactionHeader(sequence, number, previous)).encode()
    assert run_of(full(1), second).packets == [full(1)]


@pytest.mark.parametrize(
    "packet",
    [
        with_session_header(direct(1), SessionHeader()),
        Composer(SOURCE, DIRECT).compose(Message(trace=OTHER), 1, 5),
        Composer(SOURCE, DIRECT).compose(Message(journal=True), 1, 5),
        Composer(SOURCE, DIRECT).compose(Message(ack="reach-queue", admin_queue=DIRECT), 1, 5),
        Composer(SOURCE, DIRECT).compose(Message(message_class=2), 1, 5),
        replace(UserMessage.decode(full(1)), transaction=TransactionHeader(SEQUENCE, 1, 0, 1, OTHER)).encode(),
        direct(1)[:63] + b"\x02" + direct(1)[64:],
    ],
    ids=["session header", "traced", "journal", "acknowledgment", "class", "connector", "by HTTP"],
)
def test_a_message_with_more_to_do_is_not_plain(packet: bytes) -> None:
    assert is_plain(MessageView(direct(1)))
    assert not is_plain(MessageView(packet))
