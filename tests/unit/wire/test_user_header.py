"""UserHeader, [MS-MQMQ] 2.2.19.2: its layout and its flags. The queue names in it have their own file."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError
from postroad.names import MessageId
from postroad.wire import MessageView, QueueField, UserHeader, UserMessage
from postroad.wire.constants import BASE_HEADER_SIZE, Delivery, QueueCode, UserFlags
from postroad.wire.octets import NULL_GUID, Reader, Writer
from tests.messages import FULL, OURS, PLAIN
from tests.packets import (
    ADDRESS,
    MESSAGE_ID,
    OTHER,
    SENT_TIME,
    SOURCE,
    TAG,
    by_hand,
    direct_name,
    meaning,
    patched,
    refusal,
    u32,
    user_flags,
    with_bits,
)
from tests.vectors import FRAME_7, V1, V2

RESERVED_BITS = [7, 24, 26, 27, 29, 30, 31]
CONNECTOR = UUID("c0c1c2c3-c4c5-c6c7-c8c9-cacbcccdcecf")
USER_MESSAGES = [packet for packet in OURS if not packet[2] & 0x08]


def encoded(header: UserHeader) -> bytes:
    writer = Writer()
    writer.size = BASE_HEADER_SIZE
    header.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.19.2-01")
def test_the_layout_of_the_fixed_part() -> None:
    header = UserHeader(
        source_queue_manager=SOURCE,
        queue_manager_address=ADDRESS,
        time_to_be_received=0x04030201,
        sent_time=0x08070605,
        message_id=0x0C0B0A09,
        flags=0x0000_0100,
        destination_queue=QueueField(),
    )
    wire = SOURCE.bytes_le + ADDRESS.bytes_le + bytes(range(1, 13)) + b"\0\1\0\0"
    assert encoded(header) == wire
    assert UserHeader.decode(Reader(wire, 0, len(wire))) == header


@pytest.mark.spec("MQ-2.2.19.2-01")
def test_the_fixed_part_of_frame_7() -> None:
    view = MessageView(FRAME_7)
    assert view.source_queue_manager.bytes_le == FRAME_7[16:32]
    assert view.queue_manager_address == NULL_GUID
    assert view.time_to_be_received == 0xFFFFFFFF
    assert view.sent_time == 0x524F494C
    assert view.message_id == 0x08EE
    assert view.user_flags == 0x0028_1C00
    assert view.destination_queue.direct_name == r"OS:a04bm02\q"


@pytest.mark.spec("MQ-2.2.18-02")
def test_bit_0_is_the_least_significant_one() -> None:
    flags = MessageView(FRAME_7).user_flags
    assert (flags & UserFlags.DESTINATION_QUEUE) >> 10 == 7
    assert flags & UserFlags.SECURITY_HEADER
    assert flags & UserFlags.MESSAGE_PROPERTIES_HEADER
    assert flags == 7 << 10 | 1 << 19 | 1 << 21


@pytest.mark.spec("MQ-2.2.19.2-02", "MQ-2.2.19.2-38")
def test_the_names_and_the_connector_type_follow_in_order() -> None:
    names = direct_name("OS:a") + OTHER.bytes_le + u32(6) + u32(5) + CONNECTOR.bytes_le
    packet = by_hand(names, 0x0040_0000 | 7 << 10 | 6 << 13 | 2 << 16)
    view = MessageView(packet)
    assert view.destination_queue == QueueField(QueueCode.DIRECT, direct_name="OS:a")
    assert view.admin_queue == QueueField(QueueCode.PRIVATE_ON_OTHER, 6, OTHER)
    assert view.response_queue == QueueField(QueueCode.PRIVATE_ON_SOURCE, 5)
    assert view.connector_type == CONNECTOR
    assert view.application_tag == TAG

    header = UserHeader(
        SOURCE,
        MESSAGE_ID,
        view.destination_queue,
        ADDRESS,
        sent_time=SENT_TIME,
        admin_queue=view.admin_queue,
        response_queue=view.response_queue,
        connector_type=CONNECTOR,
    )
    written = replace(PLAIN, user=header).encode()
    assert written[64 : 64 + len(names)] == names.replace(b"\xbe", b"\0")
    assert user_flags(written) == user_flags(packet)


@pytest.mark.spec("MQ-2.2.18.1.3-01", "MQ-2.2.8-02")
def test_source_and_message_id_are_the_message_identifier() -> None:
    identifier = MessageId.from_bytes(MessageView(by_hand()).identifier)
    assert identifier == MessageId(SOURCE, MESSAGE_ID)
    assert MessageView(by_hand()).identifier == SOURCE.bytes_le + u32(MESSAGE_ID)


@pytest.mark.spec("MQ-2.2.19.2-10")
@pytest.mark.parametrize("hops", [0, 1, 0x1D, 0x1F])
def test_rc_is_bits_0_to_4(hops: int) -> None:
    packet = by_hand(user_flags=hops)
    assert MessageView(packet).hop_count == UserMessage.decode(packet).user.flags & 0x1F == hops
    assert MessageView(with_bits(packet, 60, 0x20)).hop_count == hops
    assert user_flags(UserMessage.decode(packet).encode()) & 0x1F == hops


@pytest.mark.spec("MQ-2.2.19.2-12")
@pytest.mark.parametrize(("bits", "delivery"), [(0x00, Delivery.EXPRESS), (0x20, Delivery.RECOVERABLE)])
def test_dm_is_express_or_recoverable(bits: int, delivery: Delivery) -> None:
    packet = by_hand(user_flags=bits)
    assert UserMessage.decode(packet).user.flags >> 5 & 3 == delivery
    assert MessageView(packet).recoverable is (delivery is Delivery.RECOVERABLE)


@pytest.mark.spec("MQ-2.2.19.2-12")
@pytest.mark.parametrize("bits", [0x40, 0x60])
def test_no_other_delivery_mode(bits: int) -> None:
    assert refusal(by_hand(user_flags=bits)).offset == 60


@pytest.mark.spec("MQ-2.2.19.2-15", "MQ-2.2.19.2-41", "MQ-2.2.19.2-44", "MQ-2.2.19.2-47")
@pytest.mark.parametrize("bit", RESERVED_BITS)
def test_a_reserved_flag_is_ignored(bit: int) -> None:
    for packet in (FRAME_7, V1, V2, FULL.encode()):
        assert meaning(with_bits(packet, 60, 1 << bit)) == meaning(packet)


@pytest.mark.spec("MQ-2.2.19.2-46")
@pytest.mark.parametrize("packet", USER_MESSAGES)
def test_no_reserved_flag_is_sent(packet: bytes) -> None:
    assert user_flags(packet) & 0xED00_0080 == 0


@pytest.mark.spec("MQ-2.2.19.2-16", "MQ-2.2.19.2-18")
@pytest.mark.parametrize(
    ("flag", "bit", "negative", "positive"),
    [
        (0, 0, False, False),
        (UserFlags.NEGATIVE_JOURNALING, 0x100, True, False),
        (UserFlags.POSITIVE_JOURNALING, 0x200, False, True),
    ],
)
def test_jn_is_bit_8_and_jp_is_bit_9(flag: int, bit: int, negative: bool, positive: bool) -> None:
    packet = replace(PLAIN, user=replace(PLAIN.user, flags=flag)).encode()
    assert user_flags(packet) & 0x300 == bit
    view, header = MessageView(packet), UserMessage.decode(packet).user
    assert (view.negative_journaling, view.positive_journaling) == (negative, positive)
    assert header.flags & 0x300 == bit


@pytest.mark.spec("MQ-2.2.19.2-10", "MQ-2.2.19.2-16", "MQ-2.2.19.2-18", "MQ-2.2.19.2-42")
@pytest.mark.parametrize(
    ("bits", "name"),
    [
        (0x0000001F, "hop_count"),
        (0x00000020, "recoverable"),
        (0x00000100, "negative_journaling"),
        (0x00000200, "positive_journaling"),
        (0x02000000, "arrived_by_http"),
    ],
)
def test_a_flag_is_read_from_its_own_bits_alone(bits: int, name: str) -> None:
    every = 0xEF0003BF  # all that brings no header and no name with it
    assert getattr(MessageView(by_hand(user_flags=bits)), name)
    assert not getattr(MessageView(by_hand(user_flags=every & ~bits)), name)


@pytest.mark.spec("MQ-2.2.19.2-34")
def test_a_transactional_message_is_recoverable() -> None:
    assert MessageView(V2).recoverable
    assert refusal(patched(V2, 60, u32(user_flags(V2) & ~0x20))).offset == 60
    with pytest.raises(LocalProtocolError, match="recoverable"):
        replace(FULL, user=replace(FULL.user, flags=0)).encode()


@pytest.mark.spec("MQ-2.2.19.2-35", "MQ-2.2.19.2-36", "MQ-2.2.20-02")
def test_mp_is_bit_21_and_always_set() -> None:
    for others in (0, 0x1F, 0xED00_0080):
        assert refusal(patched(V1, 60, u32(user_flags(V1) & ~0x0020_0000 | others))).offset == 60
    for packet in USER_MESSAGES:
        assert user_flags(packet) & 0x0020_0000


@pytest.mark.spec("MQ-2.2.19.2-37", "MQ-2.2.19.2-38")
def test_cq_is_bit_22_and_brings_a_connector_type() -> None:
    with_connector = by_hand(user_flags=0x0040_0000, after_names=CONNECTOR.bytes_le)
    assert MessageView(with_connector).connector_type == CONNECTOR
    assert MessageView(with_connector).application_tag == TAG
    assert MessageView(by_hand()).connector_type is None
    assert UserMessage.decode(with_connector).encode() == with_connector
    assert refusal(by_hand(user_flags=0x0040_0000))
    assert refusal(by_hand(after_names=CONNECTOR.bytes_le))
    without = UserMessage.decode(with_connector)
    written = replace(without, user=replace(without.user, connector_type=None)).encode()
    assert not user_flags(written) & 0x0040_0000
    assert len(written) == len(with_connector) - 16


@pytest.mark.spec("MQ-2.2.19.2-42")
def test_ah_is_bit_25() -> None:
    assert MessageView(by_hand(user_flags=0x0200_0000)).arrived_by_http
    assert not MessageView(by_hand()).arrived_by_http


@pytest.mark.spec("MQ-2.2.19.2-43")
@pytest.mark.parametrize("packet", USER_MESSAGES)
def test_ah_is_not_sent(packet: bytes) -> None:
    assert user_flags(packet) & 0x0200_0000 == 0
