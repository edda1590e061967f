"""MultiQueueFormatHeader and what it is made of, [MS-MQMQ] 2.2.20.1 to 2.2.20.3 and 2.2.18.1.4."""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from uuid import UUID

import pytest

from postroad.wire import MessageView, UserMessage
from postroad.wire.constants import FormatType
from postroad.wire.headers import (
    AddressHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
)
from postroad.wire.octets import Writer
from tests.packets import OTHER, SOURCE, by_hand, padded, patched, refusal, u16, u32, utf16

PRESENT = 0x0080_0000
HEADER_AT = 120  # in a packet made by hand
EMPTY_ADMIN = bytes.fromhex("0c000000 c800 0000 00000000")
EMPTY_RESPONSE = bytes.fromhex("0c000000 2c01 0000 00000000")
NO_SIGNATURE = bytes.fromhex("5e01 0000 00000000")
PAD = b"\xbe\xbe"

PUBLIC = FormatNameElement(FormatType.PUBLIC, guid=OTHER)
PRIVATE = FormatNameElement(FormatType.PRIVATE, SOURCE, 31)
DIRECT = FormatNameElement(FormatType.DIRECT, direct_name=r"OS:h\q")
LIST = FormatNameElement(FormatType.DISTRIBUTION_LIST, guid=SOURCE)


def addresses(number: int, count: int, elements: bytes, *, size: int | None = None, reserved: int = 0) -> bytes:
    data = padded(elements)
    return pack("<IHHI", 12 + len(data) if size is None else size, number, reserved, count) + data


def destinations(count: int, elements: bytes, *, size: int | None = None) -> bytes:
    """A whole header with one list of destinations."""
    return addresses(0x64, count, elements, size=size) + EMPTY_ADMIN + EMPTY_RESPONSE + NO_SIGNATURE


def packet_with(data: bytes) -> bytes:
    return by_hand(user_flags=PRESENT, trailers=data)


def decoded(data: bytes) -> MultiQueueFormatHeader:
    value = MessageView(packet_with(data)).multi_queue_header
    assert value is not None
    assert value == UserMessage.decode(packet_with(data)).multi_queue
    assert UserMessage.decode(packet_with(data)).encode() == packet_with(data)
    return value


def encoded(value: MultiQueueFormatHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


def one(name: str) -> AddressHeader:
    return AddressHeader((replace(DIRECT, direct_name=name),))


def encoded_list(*elements: FormatNameElement) -> bytes:
    return encoded(MultiQueueFormatHeader(AddressHeader(elements)))


@pytest.mark.spec("MQ-2.2.20.1-01", "MQ-2.2.20.2-01", "MQ-2.2.20.2-03", "MQ-2.2.20.3-01")
def test_three_lists_and_a_signature() -> None:
    wire = bytes.fromhex(
        "18000000 6400 0000 01000000  0300 6100 6200 6300 0000 0000"  # Destination: "abc"
        "14000000 c800 0000 01000000  0300 6400 0000 0000"  # Administration: "d"
        "14000000 2c01 0000 01000000  0300 6500 0000 0000"  # Response: "e"
        "5e01 0000 04000000 73696721"  # Signature: "sig!"
    )
    value = MultiQueueFormatHeader(one("abc"), one("d"), one("e"), b"sig!")
    assert decoded(wire) == value
    assert encoded(value) == wire


@pytest.mark.spec("MQ-2.2.20.1-04", "MQ-2.2.20.2-01", "MQ-2.2.20.3-01", "MQ-2.2.20.3-04")
def test_an_empty_list_has_12_bytes_and_no_signature_8() -> None:
    wire = bytes.fromhex("0c000000 6400 0000 00000000") + EMPTY_ADMIN + EMPTY_RESPONSE + NO_SIGNATURE
    assert decoded(wire) == MultiQueueFormatHeader()
    assert encoded(MultiQueueFormatHeader()) == wire
    assert (len(EMPTY_ADMIN), len(NO_SIGNATURE)) == (12, 8)


# MQFAddressHeader


@pytest.mark.spec("MQ-2.2.20.2-02")
@pytest.mark.parametrize("size", [0, 0x0B, 0x7FFFFFFF, 0xFFFFFFFF])
def test_header_size_is_at_least_12_and_within_the_packet(size: int) -> None:
    assert refusal(packet_with(destinations(0, b"", size=size))).offset == HEADER_AT


@pytest.mark.spec("MQ-2.2.20.2-02")
def test_header_size_counts_the_elements() -> None:
    wire = encoded_list(PUBLIC, PRIVATE, DIRECT, LIST)
    assert wire[:4] == u32(wire.index(EMPTY_ADMIN))


@pytest.mark.spec("MQ-2.2.20.2-03")
@pytest.mark.parametrize(("at", "offset"), [(4, 4), (16, 16), (28, 28), (36, 36)])
@pytest.mark.parametrize("number", [0x0000, 0x0065, 0x0190])
def test_each_section_has_its_own_number(at: int, offset: int, number: int) -> None:
    wire = destinations(0, b"")
    assert [wire[4:6], wire[16:18], wire[28:30], wire[36:38]] == [u16(0x64), u16(0xC8), u16(0x12C), u16(0x15E)]
    assert refusal(packet_with(patched(wire, at, u16(number)))).offset == HEADER_AT + offset


@pytest.mark.spec("MQ-2.2.20.2-03")
def test_the_sections_do_not_change_places() -> None:
    empty = bytes.fromhex("0c000000 6400 0000 00000000")
    assert refusal(packet_with(EMPTY_ADMIN + empty + EMPTY_RESPONSE + NO_SIGNATURE)).offset == HEADER_AT + 4


@pytest.mark.spec("MQ-2.2.20.2-04", "MQ-2.2.20.3-03")
def test_the_reserved_fields_are_sent_as_zero() -> None:
    wire = encoded(MultiQueueFormatHeader())
    assert wire[6:8] == wire[18:20] == wire[30:32] == wire[38:40] == b"\0\0"


@pytest.mark.spec("MQ-2.2.20.2-05", "MQ-2.2.20.3-03")
@pytest.mark.parametrize("reserved", [1, 0x0064, 0xFFFF])
def test_the_reserved_fields_are_ignored(reserved: int) -> None:
    wire = destinations(0, b"")
    for at in (6, 18, 30, 38):
        wire = patched(wire, at, u16(reserved))
    value = decoded(wire)
    destination, administration, response = (
        replace(item, reserved=0) for item in (value.destination, value.administration, value.response)
    )
    assert MultiQueueFormatHeader(destination, administration, response, value.signature) == MultiQueueFormatHeader()


@pytest.mark.spec("MQ-2.2.20.2-06")
@pytest.mark.parametrize("count", [0, 1, 3, 4, 0x7FFFFFFF, 0xFFFFFFFF])
def test_element_count_is_the_number_of_elements(count: int) -> None:
    two = u16(3) + utf16("abcd") + u16(3) + utf16("efgh")
    assert len(decoded(destinations(2, two)).destination.elements) == 2
    assert refusal(packet_with(destinations(count, two)))
    assert encoded_list(DIRECT, DIRECT, DIRECT)[8:12] == u32(3)


@pytest.mark.spec("MQ-2.2.20.1-05", "MQ-2.2.20.2-07")
@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd"])
def test_each_list_is_rounded_up_to_four_bytes(name: str) -> None:
    data = u16(3) + utf16(name)
    wire = b"".join(addresses(number, 1, data) for number in (0x64, 0xC8, 0x12C)) + NO_SIGNATURE
    value = MultiQueueFormatHeader(one(name), one(name), one(name))
    assert decoded(wire) == value
    assert encoded(value) == wire.replace(b"\xbe", b"\0")


@pytest.mark.spec("MQ-2.2.20.1-05", "MQ-2.2.20.2-07")
def test_the_padding_of_a_list_means_nothing_and_need_not_be_counted() -> None:
    odd = u16(3) + utf16("abc")  # 10 bytes
    for pad in (b"\0\0", b"\xff\xff", b"\3\0"):
        for size in (22, 24):
            assert decoded(destinations(1, odd + pad, size=size)).destination.elements[0].direct_name == "abc"


# MQFFormatNameElement


@pytest.mark.spec(
    "MQ-2.2.18.1.4-01",
    "MQ-2.2.18.1.4-03",
    "MQ-2.2.18.1.4.1-01",
    "MQ-2.2.18.1.4.2-01",
    "MQ-2.2.18.1.7.2-01",
)
def test_a_list_of_every_kind() -> None:
    elements = (
        u16(3) + utf16(r"OS:h\q")  # 16 bytes
        + u16(6) + PAD + SOURCE.bytes_le  # 20 bytes, the GUID 4-aligned
        + u16(2) + PAD + SOURCE.bytes_le + u32(31)  # 24 bytes, likewise
        + u16(3) + utf16("ab")  # 8 bytes, its end found by the terminator
        + u16(1) + OTHER.bytes_le  # 18 bytes
    )  # fmt: skip
    value = decoded(destinations(5, elements)).destination
    assert value.elements == (DIRECT, LIST, PRIVATE, replace(DIRECT, direct_name="ab"), PUBLIC)
    assert encoded_list(*value.elements) == destinations(5, elements).replace(b"\xbe", b"\0")


@pytest.mark.spec("MQ-2.2.18.1.4-01", "MQ-2.2.18.1.4.2-01", "MQ-2.2.18.1.7.2-01")
@pytest.mark.parametrize(("kind", "element"), [(6, LIST), (2, PRIVATE)])
def test_a_guid_is_aligned_to_four_bytes(kind: int, element: FormatNameElement) -> None:
    assert element.guid is not None
    body = element.guid.bytes_le + (u32(element.number) if element.number is not None else b"")
    aligned = u16(kind) + PAD + body  # the element starts on a boundary: two bytes of padding
    behind = u16(3) + utf16("a") + u16(kind) + body  # it starts two bytes before one: none
    assert decoded(destinations(1, aligned)).destination.elements == (element,)
    assert decoded(destinations(2, behind)).destination.elements[1] == element
    assert encoded_list(element) == destinations(1, aligned).replace(b"\xbe", b"\0")
    assert encoded_list(replace(DIRECT, direct_name="a"), element) == destinations(2, behind)


@pytest.mark.spec("MQ-2.2.18.1.4-02")
@pytest.mark.parametrize("kind", [0, 4, 5, 7, 8, 0x0100, 0xFFFF])
def test_no_other_kind_of_element(kind: int) -> None:
    assert refusal(packet_with(destinations(1, u16(kind) + PAD + SOURCE.bytes_le))).offset == HEADER_AT + 12


@pytest.mark.spec("MQ-2.2.18.1.4-04")
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_public_guids_are_read_whether_aligned_or_not(count: int) -> None:
    guids = [UUID(int=number << 64 | 0xABCDEF) for number in range(1, count + 1)]
    packed = b"".join(u16(1) + guid.bytes_le for guid in guids)
    aligned = b"".join(u16(1) + PAD + guid.bytes_le for guid in guids)
    for elements, size in ((packed, -(-(12 + 18 * count) // 4) * 4), (aligned, 12 + 20 * count)):
        wire = destinations(count, elements)
        assert wire[:4] == u32(size)
        assert [element.guid for element in decoded(wire).destination.elements] == guids


@pytest.mark.spec("MQ-2.2.18.1.4-05")
@pytest.mark.parametrize("pad", [b"\0\0", b"\xff\xff", b"\1\0", b"\3\0"])
def test_the_padding_of_an_element_means_nothing(pad: bytes) -> None:
    elements = u16(6) + pad + SOURCE.bytes_le + u16(2) + pad + SOURCE.bytes_le + u32(31)
    assert decoded(destinations(2, elements)).destination.elements == (LIST, PRIVATE)


@pytest.mark.spec("MQ-2.2.18.1.4.1-01")
def test_a_direct_name_without_terminator_is_refused() -> None:
    assert refusal(packet_with(destinations(1, u16(3) + utf16("abcd")[:-2])))


def test_elements_that_are_cut_off() -> None:
    elements = u16(6) + PAD + SOURCE.bytes_le
    whole = destinations(1, elements)
    for size in range(0, len(whole), 4):
        assert refusal(packet_with(whole[:size]))


# MQFSignatureHeader


@pytest.mark.spec("MQ-2.2.20.3-02")
@pytest.mark.parametrize("number", [0x0000, 0x0064, 0x015F, 0x5E01])
def test_the_number_of_the_signature(number: int) -> None:
    wire = destinations(0, b"")
    assert refusal(packet_with(patched(wire, 36, u16(number)))).offset == HEADER_AT + 36


@pytest.mark.spec("MQ-2.2.20.3-04")
@pytest.mark.parametrize("size", [0, 1, 4, 7, 64])
def test_the_size_of_the_signature_is_exact(size: int) -> None:
    signature = b"s" * size
    wire = destinations(0, b"")[:36] + u16(0x15E) + u16(0) + u32(size) + padded(signature)
    assert decoded(wire).signature == signature
    assert encoded(MultiQueueFormatHeader(signature=signature)) == wire.replace(b"\xbe", b"\0")


@pytest.mark.spec("MQ-2.2.20.3-04")
@pytest.mark.parametrize("size", [1, 8, 0xFFFFFFFF])
def test_a_signature_longer_than_its_packet_is_refused(size: int) -> None:
    assert refusal(packet_with(patched(destinations(0, b""), 40, u32(size))))
