"""Queue names in a UserHeader, [MS-MQMQ] 2.2.18.1.5, 2.2.18.1.7 and 2.2.19.2: their codes, sizes and meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.errors import IllegalFormatName, LocalProtocolError
from postroad.names import DirectName, FormatName, PrivateName, PublicName, parse_format_name
from postroad.wire import MessageView, QueueField, UserMessage
from postroad.wire.constants import QueueCode
from postroad.wire.octets import NULL_GUID, Writer
from postroad.wire.queue_names import (
    admin_name,
    destination_field,
    destination_name,
    other_field,
    response_name,
    written_name,
)
from tests.messages import PLAIN
from tests.packets import ADDRESS, OTHER, SOURCE, TAG, by_hand, direct_name, meaning, patched, refusal, u16, u32, utf16
from tests.vectors import FRAME_7, V1

DIRECT = r"TCP:10.0.0.5\q"
# How each code appears in a packet, and how it is read.
WIRE = {
    0: b"",
    1: b"",
    2: u32(31),
    3: u32(31),
    4: u32(31),
    5: OTHER.bytes_le,
    6: OTHER.bytes_le + u32(31),
    7: direct_name(DIRECT),
}
FIELDS = {
    0: QueueField(),
    1: QueueField(QueueCode.SAME_AS_ADMIN),
    2: QueueField(QueueCode.PRIVATE_ON_SOURCE, 31),
    3: QueueField(QueueCode.PRIVATE_ON_DESTINATION, 31),
    4: QueueField(QueueCode.PRIVATE_ON_ADMIN, 31),
    5: QueueField(QueueCode.PUBLIC, guid=OTHER),
    6: QueueField(QueueCode.PRIVATE_ON_OTHER, 31, OTHER),
    7: QueueField(QueueCode.DIRECT, direct_name=DIRECT),
}


def one_name(code: int, shift: int) -> bytes:
    return by_hand(WIRE[code], code << shift)


def encoded(field: QueueField) -> bytes:
    writer = Writer()
    field.encode(writer)
    return writer.getvalue()


@pytest.mark.spec(
    "MQ-2.2.18.1.5-01",
    "MQ-2.2.18.1.5.1-01",
    "MQ-2.2.18.1.7.1-01",
    "MQ-2.2.19.2-20",
    "MQ-2.2.19.2-22",
)
@pytest.mark.parametrize("code", [0, 3, 5, 7])
def test_dq_is_bits_10_to_12_and_gives_the_layout_of_the_destination(code: int) -> None:
    packet = one_name(code, 10)
    view = MessageView(packet)
    assert view.destination_queue == UserMessage.decode(packet).user.destination_queue == FIELDS[code]
    assert (view.admin_queue, view.response_queue) == (FIELDS[0], FIELDS[0])
    assert view.application_tag == TAG  # exactly the bytes of the name were taken
    assert UserMessage.decode(packet).encode() == packet


@pytest.mark.spec("MQ-2.2.19.2-21")
@pytest.mark.parametrize("code", [1, 2, 4, 6])
def test_no_other_kind_of_destination(code: int) -> None:
    assert refusal(one_name(code, 10)).offset == 60
    with pytest.raises(LocalProtocolError, match="destination queue"):
        replace(PLAIN, user=replace(PLAIN.user, destination_queue=FIELDS[code])).encode()


@pytest.mark.spec(
    "MQ-2.2.18.1.5-01",
    "MQ-2.2.18.1.7.2-01",
    "MQ-2.2.19.2-23",
    "MQ-2.2.19.2-25",
    "MQ-2.2.19.2-26",
)
@pytest.mark.parametrize("code", [0, 2, 3, 5, 6, 7])
def test_aq_is_bits_13_to_15_and_gives_the_layout_of_the_administration_queue(code: int) -> None:
    packet = one_name(code, 13)
    view = MessageView(packet)
    assert view.admin_queue == UserMessage.decode(packet).user.admin_queue == FIELDS[code]
    assert (view.destination_queue, view.response_queue) == (FIELDS[0], FIELDS[0])
    assert view.application_tag == TAG
    assert UserMessage.decode(packet).encode() == packet


@pytest.mark.spec("MQ-2.2.19.2-24")
@pytest.mark.parametrize("code", [1, 4])
def test_no_other_kind_of_administration_queue(code: int) -> None:
    assert refusal(one_name(code, 13)).offset == 60
    with pytest.raises(LocalProtocolError, match="administration queue"):
        replace(PLAIN, user=replace(PLAIN.user, admin_queue=FIELDS[code])).encode()


@pytest.mark.spec("MQ-2.2.18.1.5-01", "MQ-2.2.18.1.7.2-01", "MQ-2.2.19.2-28", "MQ-2.2.19.2-29")
@pytest.mark.parametrize("code", range(8))
def test_rq_is_bits_16_to_18_and_gives_the_layout_of_the_response_queue(code: int) -> None:
    packet = one_name(code, 16)
    view = MessageView(packet)
    assert view.response_queue == UserMessage.decode(packet).user.response_queue == FIELDS[code]
    assert (view.destination_queue, view.admin_queue) == (FIELDS[0], FIELDS[0])
    assert view.application_tag == TAG
    assert UserMessage.decode(packet).encode() == packet


@pytest.mark.spec("MQ-2.2.19.2-30")
def test_a_response_queue_that_is_the_administration_queue_takes_no_bytes() -> None:
    view = MessageView(by_hand(WIRE[6], 6 << 13 | 1 << 16))
    assert view.application_tag == TAG
    assert response_name(view) == admin_name(view) == PrivateName(OTHER, 31)
    assert encoded(FIELDS[0]) == encoded(FIELDS[1]) == b""


@pytest.mark.spec("MQ-2.2.18.1.5.2-01", "MQ-2.2.18.1.5.2-02")
def test_a_direct_name_is_a_count_of_bytes_and_a_terminated_string() -> None:
    assert FRAME_7[64:92] == u16(26) + utf16(r"OS:a04bm02\q")
    assert MessageView(FRAME_7).destination_queue.direct_name == r"OS:a04bm02\q"
    assert encoded(QueueField(QueueCode.DIRECT, direct_name=r"OS:a04bm02\q")) == FRAME_7[64:92]


@pytest.mark.spec("MQ-2.2.18.1.5.2-02")
@pytest.mark.parametrize("count", [0, 1, 15, 17])
def test_a_count_that_does_not_end_at_the_terminator_is_refused(count: int) -> None:
    assert V1[68:70] == u16(16)
    assert refusal(patched(V1, 68, u16(count))).offset == 70


@pytest.mark.spec("MQ-2.2.18.1.5.2-02")
def test_a_terminator_before_the_end_is_refused() -> None:
    assert refusal(patched(V1, 74, b"\0\0")).offset == 70


def test_a_name_longer_than_its_packet_is_refused() -> None:
    assert refusal(patched(V1, 68, u16(0xFFFE))).offset == 68
    assert refusal(by_hand(user_flags=7 << 10, properties=b"")).fault == "DestinationQueue is cut off"


@pytest.mark.spec("MQ-2.2.18.1.5.2-03")
@pytest.mark.parametrize(("text", "count", "padding"), [(r"OS:a04bm0\q", 24, 2), (r"OS:a04bm02\q", 26, 0)])
def test_a_direct_name_is_padded_to_four_bytes(text: str, count: int, padding: int) -> None:
    wire = u16(count) + utf16(text) + b"\xab" * padding
    view = MessageView(by_hand(wire, 7 << 10))
    assert view.destination_queue.direct_name == text
    assert view.application_tag == TAG
    assert encoded(QueueField(QueueCode.DIRECT, direct_name=text)) == wire.replace(b"\xab", b"\0")


@pytest.mark.spec("MQ-2.2.18.1.5.2-04")
@pytest.mark.parametrize("padding", [b"\x01\x00", b"\xff\xff", b"a\0"])
def test_the_padding_of_a_direct_name_means_nothing(padding: bytes) -> None:
    assert meaning(patched(V1, 86, padding)) == meaning(V1)


@pytest.mark.spec("MQ-2.2.18.1.5.2-05")
def test_a_direct_name_travels_without_its_prefix() -> None:
    field, _ = destination_field(parse_format_name(r"DIRECT=OS:a04bm02\q"))
    assert encoded(field) == FRAME_7[64:92]
    assert destination_name(MessageView(FRAME_7)) == parse_format_name(r"DIRECT=OS:a04bm02\q")


def test_a_name_that_does_not_fit_its_count_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encoded(QueueField(QueueCode.DIRECT, direct_name="x" * 0x8000))
    with pytest.raises(LocalProtocolError, match="NUL"):
        encoded(QueueField(QueueCode.DIRECT, direct_name="OS:a\0b"))


def test_names_of_every_alphabet_survive() -> None:
    for text in ("OS:ĀĀ\\Ā", "OS:日本\\語", "OS:\U0001f4ee\\q", "OS:a\\\ud800"):
        packet = by_hand(direct_name(text), 7 << 10)
        assert MessageView(packet).destination_queue.direct_name == text
        assert UserMessage.decode(packet).encode() == packet


def test_destinations_compare_by_their_bytes() -> None:
    keys = {MessageView(one_name(code, 10)).destination_bytes for code in (0, 3, 5, 7)}
    assert keys == {bytes([code]) + WIRE[code] for code in (0, 3, 5, 7)}


# What a name means


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, None),
        (3, PrivateName(ADDRESS, 31)),
        (5, PublicName(OTHER)),
        (7, DirectName.from_wire(DIRECT)),
    ],
)
def test_a_destination_as_a_format_name(code: int, name: FormatName | None) -> None:
    assert destination_name(MessageView(one_name(code, 10))) == name


@pytest.mark.spec("MQ-2.2.18.1.7.2-02")
def test_a_private_queue_of_another_host_names_its_own_manager() -> None:
    view = MessageView(one_name(6, 13))
    assert view.source_queue_manager != OTHER
    assert admin_name(view) == parse_format_name(f"PRIVATE={OTHER}\\1f")


@pytest.mark.parametrize(
    ("code", "name"),
    [(2, PrivateName(SOURCE, 31)), (3, PrivateName(ADDRESS, 31)), (5, PublicName(OTHER)), (6, PrivateName(OTHER, 31))],
)
def test_administration_and_response_queues_as_format_names(code: int, name: FormatName) -> None:
    assert admin_name(MessageView(one_name(code, 13))) == name
    assert response_name(MessageView(one_name(code, 16))) == name


@pytest.mark.spec("MQ-2.2.19.2-31")
@pytest.mark.parametrize(("code", "manager"), [(2, SOURCE), (3, ADDRESS), (6, OTHER)])
def test_a_response_queue_on_the_host_of_the_administration_queue(code: int, manager: object) -> None:
    view = MessageView(by_hand(WIRE[code] + u32(0xAB), code << 13 | 4 << 16))
    assert str(response_name(view)) == f"PRIVATE={manager}\\ab"


def test_a_direct_name_that_no_grammar_admits() -> None:
    view = MessageView(by_hand(direct_name("nonsense"), 7 << 10))
    with pytest.raises(IllegalFormatName):
        destination_name(view)


@pytest.mark.spec("MQ-2.2.19.2-05")
def test_a_direct_destination_has_no_queue_manager_address() -> None:
    assert MessageView(FRAME_7).queue_manager_address_bytes == bytes(16)
    assert destination_field(DirectName.from_wire(DIRECT)) == (FIELDS[7], NULL_GUID)


def test_a_private_destination_is_on_the_manager_of_the_packets_address() -> None:
    assert destination_field(PrivateName(OTHER, 31)) == (FIELDS[3], OTHER)
    assert destination_field(PublicName(OTHER)) == (FIELDS[5], NULL_GUID)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (None, 0),
        (PrivateName(SOURCE, 31), 2),
        (PrivateName(ADDRESS, 31), 3),
        (PublicName(OTHER), 5),
        (PrivateName(OTHER, 31), 6),
        (DirectName.from_wire(DIRECT), 7),
    ],
)
def test_another_queue_is_written_relative_to_source_and_destination(name: FormatName | None, code: int) -> None:
    assert other_field(name, SOURCE, ADDRESS) == FIELDS[code]


@pytest.mark.parametrize(
    "text",
    [
        f"MACHINE={OTHER};JOURNAL",
        f"DL={OTHER}",
        f"PUBLIC={OTHER};JOURNAL",
        f"PRIVATE={OTHER}\\1f;JOURNAL",
    ],
)
def test_names_that_no_user_header_can_hold(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        destination_field(parse_format_name(text))
    with pytest.raises(LocalProtocolError):
        other_field(parse_format_name(text), SOURCE, ADDRESS)


def test_a_multicast_address_stands_where_a_direct_name_does() -> None:
    name = parse_format_name("MULTICAST=234.1.1.1:8001")
    field, manager = destination_field(name)
    assert (field, manager) == (QueueField(QueueCode.DIRECT, direct_name="MULTICAST=234.1.1.1:8001"), NULL_GUID)
    assert other_field(name, SOURCE, ADDRESS) == field
    assert written_name("Multicast=234.1.1.1:8001") == name
    for text in ("MULTICAST=1.2.3.4:5", "MULTICAST=234.1.1.1:8001,MULTICAST=234.1.1.1:8002"):
        with pytest.raises(IllegalFormatName):
            written_name(text)
