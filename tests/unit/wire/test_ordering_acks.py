"""OrderAck and FinalAck, [MS-MQQB] 2.2.4 and 2.2.5, written and read byte by byte."""

from __future__ import annotations

import re
from dataclasses import replace
from struct import unpack_from
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire import FinalAck, MessageView, OrderAck, QueueField, TxSequenceId, decode_packet
from postroad.wire.constants import MessageClass, QueueCode
from postroad.wire.ordering import OrderingAck, order_queue
from tests.frames import FINAL_ACK, ORDER_ACK

SOURCE = UUID("11223344-5566-7788-99aa-bbccddeeff00")
ADDRESS = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ACKNOWLEDGED = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")

ORDER = OrderAck(
    source_queue_manager=SOURCE,
    message_id=2,
    sent_time=0x65000000,
    destination_queue=order_queue(),
    queue_manager_address=ADDRESS,
    sequence_id=TxSequenceId(7, 9),
    sequence_number=5,
    previous_sequence_number=4,
)
FINAL = FinalAck(
    source_queue_manager=SOURCE,
    message_id=2,
    sent_time=0x65000000,
    destination_queue=order_queue("10.0.0.5"),
    sequence_id=TxSequenceId(7, 9),
    sequence_number=5,
    previous_sequence_number=3,
    final_class=MessageClass.ACK_RECEIVE,
    source_guid=ACKNOWLEDGED,
    acknowledged_message_id=6,
)
NEGATIVE_CLASSES = (0x8009, 0x8000, 0x8004, 0x8007, 0x800B, 0x8006, 0x8003, 0xC000, 0xC001, 0xC002)

# [MS-MQQB] 2.2.4 and 2.2.5, orderQueueName
ORDER_QUEUE_NAME = re.compile(r"(TCP:[0-9A-Fa-f.:]+|SPX:[0-9A-F]{8}\.[0-9A-F]{12})\\PRIVATE\$\\order_queue\$")
SPX_NAME = "SPX:0000000A.0000000BCDEF\\PRIVATE$\\order_queue$"
DIRECT_NAMES = (
    (order_queue("10.0.0.5"), "TCP:10.0.0.5\\PRIVATE$\\order_queue$"),
    (order_queue("fe80::1"), "TCP:fe80::1\\PRIVATE$\\order_queue$"),
    (QueueField(QueueCode.DIRECT, direct_name=SPX_NAME), SPX_NAME),
)
NOT_ORDER_QUEUES = (
    QueueField(QueueCode.PRIVATE_ON_DESTINATION, 5),
    QueueField(QueueCode.PUBLIC, guid=ADDRESS),
    QueueField(QueueCode.PRIVATE_ON_OTHER, 4, ADDRESS),
    QueueField(),
    QueueField(QueueCode.DIRECT, direct_name="OS:alpha\\PRIVATE$\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="TCP:alpha\\PRIVATE$\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="DIRECT=TCP:10.0.0.5\\PRIVATE$\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="SPX:a.b\\PRIVATE$\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\PRIVATE$\\orders"),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\PRIVATE$\\order_queue$\n"),
)


def u32(packet: bytes, offset: int) -> int:
    value: int = unpack_from("<I", packet, offset)[0]
    return value


def both_ways(ack: OrderingAck) -> tuple[tuple[bytes, int], ...]:
    """The packet to queue 4 and the packet to a direct name, with the offset of MessagePropertiesHeader in each."""
    to_number = replace(ack, destination_queue=order_queue()).encode()
    to_direct = replace(ack, destination_queue=order_queue("10.0.0.5")).encode()
    assert unpack_from("<H", to_direct, 64) == (2 * len("TCP:10.0.0.5\\PRIVATE$\\order_queue$") + 2,)
    return (to_number, 64 + 4), (to_direct, 64 + 72)


def test_our_own_packets_are_written_and_read() -> None:
    assert ORDER.encode() == ORDER_ACK
    assert decode_packet(ORDER_ACK) == ORDER
    assert FINAL.encode() == FINAL_ACK
    assert decode_packet(FINAL_ACK) == FINAL


# What both have in common


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4-01"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5-02"), id="final"),
    ],
)
def test_base_flags_are_zero(ack: OrderingAck) -> None:
    for packet, _ in both_ways(ack):
        assert packet[2:4] == b"\0\0"


@pytest.mark.parametrize(
    ("ack", "delivery"),
    [
        pytest.param(ORDER, 0, marks=pytest.mark.spec("QB-2.2.4-02", "QB-2.2.4-03", "QB-2.2.4-04"), id="order"),
        pytest.param(
            FINAL, 1, marks=pytest.mark.spec("QB-2.2.5-03", "QB-2.2.5-04", "QB-2.2.5-05", "QB-2.2.5-06"), id="final"
        ),
    ],
)
def test_user_flags_hold_nothing_but_mp_dm_and_dq(ack: OrderingAck, delivery: int) -> None:
    to_number, to_direct = (u32(packet, 60) for packet, _ in both_ways(ack))
    assert to_number == 0x00200000 | delivery << 5 | 3 << 10
    assert to_direct == 0x00200000 | delivery << 5 | 7 << 10


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4-04", "QB-2.2.4-06"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5-06", "QB-2.2.5-08"), id="final"),
    ],
)
@pytest.mark.parametrize("queue", NOT_ORDER_QUEUES, ids=str)
def test_no_other_destination_is_written(ack: OrderingAck, queue: QueueField) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape("order_queue$")):
        replace(ack, destination_queue=queue).encode()


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4-05"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5-07"), id="final"),
    ],
)
def test_the_order_queue_is_private_queue_4(ack: OrderingAck) -> None:
    packet = replace(ack, destination_queue=order_queue()).encode()
    assert packet[64:68] == bytes.fromhex("04000000")
    assert decode_packet(packet) == replace(ack, destination_queue=QueueField(QueueCode.PRIVATE_ON_DESTINATION, 4))


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4-06"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5-08"), id="final"),
    ],
)
@pytest.mark.parametrize(("queue", "name"), DIRECT_NAMES, ids=("IPv4", "IPv6", "IPX"))
def test_the_order_queue_by_a_direct_name(ack: OrderingAck, queue: QueueField, name: str) -> None:
    packet = replace(ack, destination_queue=queue).encode()
    (count,) = unpack_from("<H", packet, 64)
    written = packet[66 : 66 + count].decode("utf-16-le")
    assert written == name + "\0"
    assert ORDER_QUEUE_NAME.fullmatch(name)
    assert decode_packet(packet) == replace(ack, destination_queue=queue)


@pytest.mark.spec("QB-2.2.4-07")
def test_ipx_addresses_are_upper_case_hexadecimal() -> None:
    for address in ("0000000a.0000000bcdef", "A.BCDEF", "0000000A:0000000BCDEF"):
        name = SPX_NAME.replace("0000000A.0000000BCDEF", address)
        with pytest.raises(LocalProtocolError, match="must start with TCP: or SPX: and an address"):
            replace(ORDER, destination_queue=QueueField(QueueCode.DIRECT, direct_name=name)).encode()


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4-09"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5-10"), id="final"),
    ],
)
def test_label(ack: OrderingAck) -> None:
    for packet, properties in both_ways(ack):
        assert packet[properties + 1] == 0x10
        label = packet[properties + 56 : properties + 56 + 32]
        assert label == "QM Ordering Ack\0".encode("utf-16-le")


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(
            ORDER, marks=pytest.mark.spec("QB-2.2.4-10", "QB-2.2.4-11", "QB-2.2.4-13", "QB-2.2.4-14"), id="order"
        ),
        pytest.param(
            FINAL, marks=pytest.mark.spec("QB-2.2.5-11", "QB-2.2.5-12", "QB-2.2.5-16", "QB-2.2.5-17"), id="final"
        ),
    ],
)
def test_body_size_flags_and_body_type(ack: OrderingAck) -> None:
    for packet, properties in both_ways(ack):
        assert packet[properties] == 0
        assert u32(packet, properties + 24) == 0
        assert u32(packet, properties + 32) == 36
        body = properties + 56 + 32
        assert len(packet) == body + 36
        assert unpack_from("<IIII", packet, body) == (7, 9, 5, ack.previous_sequence_number)


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(ORDER, marks=pytest.mark.spec("QB-2.2.4.1-04", "QB-2.2.4.1-06"), id="order"),
        pytest.param(FINAL, marks=pytest.mark.spec("QB-2.2.5.1-04", "QB-2.2.5.1-06"), id="final"),
    ],
)
def test_ranges_of_sequence_numbers(ack: OrderingAck) -> None:
    for number, previous in ((1, 0), (0xFFFFFFFF, 0xFFFFFFFE), (1, 0xFFFFFFFE)):
        legal = replace(ack, sequence_number=number, previous_sequence_number=previous)
        assert decode_packet(legal.encode()) == legal
    for number, previous in ((0, 0), (1, 0xFFFFFFFF), (0x100000000, 1), (1, -1)):
        with pytest.raises(LocalProtocolError, match="sequence number"):
            replace(ack, sequence_number=number, previous_sequence_number=previous).encode()

    packet = ack.encode()
    body = len(packet) - 36
    with pytest.raises(RemoteProtocolError, match=r"TxSequenceNumber .* must not be 0"):
        decode_packet(packet[: body + 8] + bytes(4) + packet[body + 12 :])
    with pytest.raises(RemoteProtocolError, match=r"TxPreviousSequenceNumber .* must not be 0xFFFFFFFF"):
        decode_packet(packet[: body + 12] + b"\xff" * 4 + packet[body + 16 :])


# OrderAck


@pytest.mark.spec("QB-2.2.4-12")
def test_the_class_of_an_order_ack() -> None:
    for packet, properties in both_ways(ORDER):
        assert packet[properties + 2 : properties + 4] == bytes.fromhex("ff00")


@pytest.mark.spec("QB-2.2.4-03")
def test_a_recoverable_order_ack_is_tolerated() -> None:
    flags = u32(ORDER_ACK, 60) | 1 << 5
    assert decode_packet(ORDER_ACK[:60] + flags.to_bytes(4, "little") + ORDER_ACK[64:]) == ORDER


@pytest.mark.spec("QB-2.2.4.1-01", "QB-2.2.4.1-07")
def test_order_ack_body_layout() -> None:
    ack = replace(
        ORDER, sequence_id=TxSequenceId(0x01020304, 0x05060708), sequence_number=0x090A0B0C, previous_sequence_number=1
    )
    packet = ack.encode()
    assert packet[-36:] == bytes.fromhex("0403020108070605" + "0c0b0a09" + "01000000") + bytes(20)
    assert decode_packet(packet) == ack


@pytest.mark.spec("QB-2.2.4.1-08", "QB-6-09")
def test_order_ack_reserved_is_ignored() -> None:
    noisy = decode_packet(ORDER_ACK[:-20] + bytes(range(1, 21)))
    assert noisy == ORDER
    assert noisy.encode() == ORDER_ACK[:-20] + bytes(range(1, 21))


# FinalAck


@pytest.mark.spec("QB-2.2.5-13")
def test_the_class_of_a_positive_final_ack() -> None:
    assert FINAL.positive
    for packet, properties in both_ways(FINAL):
        assert packet[properties + 2 : properties + 4] == bytes.fromhex("0040")
        positive = decode_packet(packet)
        assert isinstance(positive, FinalAck)
        assert positive.positive


@pytest.mark.parametrize(
    "message_class",
    [
        *(pytest.param(value, marks=pytest.mark.spec("QB-2.2.5-14")) for value in NEGATIVE_CLASSES),
        pytest.param(0x8005, marks=pytest.mark.spec("QB-2.2.5-15")),
        pytest.param(0xC004, marks=pytest.mark.spec("QB-2.2.5-15")),
    ],
)
def test_the_classes_of_a_negative_final_ack(message_class: int) -> None:
    for packet, properties in both_ways(replace(FINAL, final_class=message_class)):
        assert packet[properties + 2 : properties + 4] == message_class.to_bytes(2, "little")
        negative = decode_packet(packet)
        assert isinstance(negative, FinalAck)
        assert negative.final_class == message_class
        assert not negative.positive


@pytest.mark.spec("QB-2.2.5-13", "QB-2.2.5-14")
@pytest.mark.parametrize("message_class", [0x0000, 0x0001, 0x0002, 0x00FF, 0x3FFF])
def test_a_final_ack_needs_a_final_class(message_class: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"must be final, got {message_class:#06x}"):
        replace(FINAL, final_class=message_class).encode()


@pytest.mark.spec("QB-2.2.5.1-01")
def test_final_ack_body_layout() -> None:
    ack = replace(
        FINAL,
        sequence_id=TxSequenceId(0x01020304, 0x05060708),
        sequence_number=0x090A0B0C,
        previous_sequence_number=0x0D0E0F10,
        acknowledged_message_id=0x11121314,
    )
    packet = ack.encode()
    numbers = bytes.fromhex("0403020108070605" + "0c0b0a09" + "100f0e0d")
    assert packet[-36:] == numbers + ACKNOWLEDGED.bytes_le + bytes.fromhex("14131211")
    assert decode_packet(packet) == ack


def test_a_final_ack_of_another_size_is_malformed() -> None:
    view = MessageView(FINAL_ACK)
    size_at = len(FINAL_ACK) - 36 - 32 - 56 + 32
    assert view.message_size == u32(FINAL_ACK, size_at) == 36
    with pytest.raises(RemoteProtocolError, match="must have 36 bytes, got 35"):
        decode_packet(FINAL_ACK[:size_at] + (35).to_bytes(4, "little") + FINAL_ACK[size_at + 4 :])


@pytest.mark.parametrize("ack", [ORDER, FINAL], ids=("order", "final"))
def test_an_encrypted_ack_is_malformed(ack: OrderingAck) -> None:
    """The body region of an encrypted message may be larger than its MessageSize of 36."""
    packet = replace(ack, destination_queue=order_queue()).encode()
    flags = u32(packet, 60) | 0x00080000
    security = bytes.fromhex("20000000040000000000000000000000" + "beefbeef")
    header = packet[68:]
    grown = header[:36] + (40).to_bytes(4, "little") + header[40:] + bytes(4)
    data = packet[:60] + flags.to_bytes(4, "little") + packet[64:68] + security + grown
    data = data[:8] + len(data).to_bytes(4, "little") + data[12:]
    assert MessageView(data).encrypted
    with pytest.raises(RemoteProtocolError, match="must not be encrypted"):
        decode_packet(data)
