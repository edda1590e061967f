"""SoapHeader, [MS-MQMQ] 2.2.20.7: two strings that a message by SOAP carries along."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest

from postroad.errors import LocalProtocolError
from postroad.wire import MessageView, UserMessage
from postroad.wire.headers import SoapHeader, soap_sections
from postroad.wire.octets import Writer
from tests.packets import by_hand, padded, patched, refusal, u16, u32, utf16

PRESENT = 0x1000_0000
HEADER_AT = 120  # in a packet made by hand


def section(number: int, text: str | None, reserved: int = 0) -> bytes:
    data = b"" if text is None else utf16(text)
    return pack("<HHI", number, reserved, len(data) // 2) + data


def soap(data: bytes) -> bytes:
    return by_hand(user_flags=PRESENT, trailers=data)


def decoded(data: bytes) -> SoapHeader:
    value = MessageView(soap(data)).soap_header
    assert value is not None
    assert value == UserMessage.decode(soap(data)).soap
    assert UserMessage.decode(soap(data)).encode() == soap(data)
    return value


def encoded(value: SoapHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.20.7-01", "MQ-2.2.20.7-03")
def test_the_layout() -> None:
    wire = bytes.fromhex(
        "2003 0000 04000000 6100 6200 6300 0000"  # "abc"
        "8403 0000 02000000 7800 0000"  # "x"
    )
    assert decoded(wire) == SoapHeader("abc", "x")
    assert encoded(SoapHeader("abc", "x")) == wire


@pytest.mark.spec("MQ-2.2.20.7-02")
@pytest.mark.parametrize(
    ("first", "second", "offset"),
    [(0x0384, 0x0384, 0), (0x0321, 0x0384, 0), (0x0320, 0x0320, 16), (0x0320, 0x0385, 16)],
)
def test_no_other_sections(first: int, second: int, offset: int) -> None:
    assert refusal(soap(section(first, "abc") + section(second, "x"))).offset == HEADER_AT + offset


@pytest.mark.spec("MQ-2.2.20.7-03")
@pytest.mark.parametrize(("text", "units"), [("", 1), ("abc", 4), ("日本語", 4), ("\U0001f4ee", 3)])
def test_lengths_count_utf16_units_and_the_terminator(text: str, units: int) -> None:
    wire = encoded(SoapHeader(text, text))
    second = len(wire) // 2
    assert wire[4:8] == wire[second + 4 : second + 8] == u32(units)
    assert wire[8 : 8 + 2 * units] == utf16(text)
    assert decoded(wire) == SoapHeader(text, text)
    assert soap_sections(text, text) == wire


@pytest.mark.spec("MQ-2.2.20.7-03")
@pytest.mark.parametrize("units", [3, 5, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("at", [4, 20])
def test_a_length_that_does_not_end_at_the_terminator_is_refused(at: int, units: int) -> None:
    assert refusal(soap(patched(section(0x0320, "abc") + section(0x0384, "abc"), at, u32(units))))


def test_a_string_may_be_absent() -> None:
    wire = section(0x0320, None) + section(0x0384, None)
    assert len(wire) == 16
    assert decoded(wire) == SoapHeader(None, None)
    assert encoded(SoapHeader(None, None)) == wire


@pytest.mark.spec("MQ-2.2.20.7-04")
def test_the_reserved_fields_are_sent_as_zero() -> None:
    wire = encoded(SoapHeader("abc", "x"))
    assert wire[2:4] == wire[18:20] == b"\0\0"


@pytest.mark.spec("MQ-2.2.20.7-05")
@pytest.mark.parametrize("reserved", [1, 0x0384, 0xFFFF])
def test_the_reserved_fields_are_ignored(reserved: int) -> None:
    value = decoded(section(0x0320, "abc", reserved) + section(0x0384, "abc", reserved ^ 0x5A5A))
    assert value.reserved == (reserved, reserved ^ 0x5A5A)
    assert replace(value, reserved=(0, 0)) == SoapHeader("abc", "abc")


@pytest.mark.spec("MQ-2.2.20.7-06")
def test_each_section_is_rounded_up_to_four_bytes() -> None:
    wire = padded(section(0x0320, "ab")) + padded(section(0x0384, "xy"))
    assert len(wire) == 16 + 16
    assert decoded(wire) == SoapHeader("ab", "xy")
    assert encoded(SoapHeader("ab", "xy")) == wire.replace(b"\xbe", b"\0")


@pytest.mark.spec("MQ-2.2.20.7-06")
def test_a_second_section_without_padding_before_it_is_found_as_well() -> None:
    wire = section(0x0320, "ab") + section(0x0384, "x")
    assert len(wire) % 4 == 2
    assert decoded(padded(wire)) == SoapHeader("ab", "x")


def test_a_nul_inside_a_string_is_refused() -> None:
    assert refusal(soap(patched(section(0x0320, "abc"), 10, u16(0)) + section(0x0384, "abc")))
    with pytest.raises(LocalProtocolError, match="NUL"):
        encoded(SoapHeader("a\0b", ""))


def test_a_header_that_is_cut_off() -> None:
    wire = section(0x0320, "abc") + section(0x0384, "abc")
    for size in range(0, len(wire), 4):
        assert refusal(soap(wire[:size]))
