"""[MC-MQSRM] 2.2.1: numbers, dates and GUIDs as text, and the identifiers made of them."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import MalformedSoap
from postroad.names import MessageId
from postroad.soap.elements import StreamId
from postroad.soap.simple_types import (
    U64,
    date_text,
    is_xml_text,
    message_id_text,
    parse_base64,
    parse_date,
    parse_guid,
    parse_message_id,
    parse_number,
    parse_stream_id,
    stream_id_text,
    to_xml_text,
)
from postroad.wire.headers import TxSequenceId

GUID = "caf195ea-615c-4264-ae08-11a4e60194c0"


@pytest.mark.spec("SRM-2.2.1.1-01")
def test_a_guid() -> None:
    assert parse_guid(GUID, "x") == UUID(GUID)
    assert parse_guid(f" \r\n{GUID.upper()}\t", "x") == UUID(GUID)
    assert message_id_text(MessageId(UUID(GUID), 7)) == f"uuid:7@{GUID}"


@pytest.mark.spec("SRM-2.2.1.1-01")
@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{{{GUID}}}",
        GUID.replace("-", ""),
        f"urn:uuid:{GUID}",
        GUID[:-1],
        GUID + "0",
        "g" + GUID[1:],
        "\u00a0" + GUID,
    ],
)
def test_no_guid(text: str) -> None:
    with pytest.raises(MalformedSoap, match=r"^path/id: must be a GUID"):
        parse_guid(text, "path/id")


@pytest.mark.spec("SRM-2.2.1.2-01")
def test_a_date() -> None:
    assert date_text(1182200814) == "20070618T210654"
    assert parse_date("20070618T210654", "x") == 1182200814
    assert date_text(0x7FFFFFFF) == "20380119T031407"
    assert date_text(0) == "19700101T000000"
    assert parse_date("19691231T235959", "x") == -1


@pytest.mark.spec("SRM-2.2.1.2-01")
@given(st.integers(-62135596800, 253402300799))
def test_every_second_of_the_calendar_survives(seconds: int) -> None:
    text = date_text(seconds)
    assert len(text) == 15
    assert parse_date(text, "x") == seconds


@pytest.mark.spec("SRM-2.2.1.2-01")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "2007-06-18T21:06:54",
        "20070618T210654Z",
        "20070618 210654",
        "20070618T2106",
        "20070618T210654.5",
        "20070618",
        "20070631T210654",
        "20070229T000000",
        "20071318T210654",
        "20070618T240000",
        "20070618T210660",
        "00000101T000000",
        "20070618t210654",
        "+0070618T210654",
        "٢٠٠٧٠٦١٨T٢١٠٦٥٤",
    ],
)
def test_no_date(text: str) -> None:
    with pytest.raises(MalformedSoap, match=r"^properties/sentAt: must be a date"):
        parse_date(text, "properties/sentAt")


@pytest.mark.spec("SRM-2.2.1.3-01")
def test_a_number() -> None:
    assert parse_number("0", "x") == 0
    assert parse_number(" 0042\n", "x") == 42
    assert parse_number("18446744073709551615", "x", U64) == U64
    assert parse_number("4294967295", "x") == 0xFFFFFFFF


@pytest.mark.spec("SRM-2.2.1.3-01")
@pytest.mark.parametrize("text", ["", "+1", "-1", "-0", "1.0", "1e3", "0x10", "1 2", "one", "٣", "²", "1_000"])
def test_no_number(text: str) -> None:
    with pytest.raises(MalformedSoap, match=r"^Msmq/App: must be a decimal number"):
        parse_number(text, "Msmq/App")


@pytest.mark.spec("SRM-2.2.1.3-01")
@pytest.mark.parametrize("text", ["18446744073709551616", "9" * 21, "0" * 1000 + "1"])
def test_a_number_above_64_bits(text: str) -> None:
    with pytest.raises(MalformedSoap, match="must be at most 18446744073709551615"):
        parse_number(text, "x", U64)


def test_a_number_above_its_field() -> None:
    with pytest.raises(MalformedSoap, match=r"^Msmq/App: must be at most 4294967295, got '4294967296'"):
        parse_number("4294967296", "Msmq/App")


@pytest.mark.spec("SRM-2.2.4.3-03")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        GUID,
        f"uuid:{GUID}",
        f"1@{GUID}",
        f"uid:1@{GUID}",
        f"uuid:1\\{GUID}",
        f"uuid:x@{GUID}",
        f"uuid:@{GUID}",
        f"uuid:-1@{GUID}",
        "uuid:1@",
        "uuid:1@machine",
        f"uuid:1@{{{GUID}}}",
        f"uuid:4294967296@{GUID}",
        f"UUID:1@{GUID}",
    ],
)
def test_no_message_id(text: str) -> None:
    with pytest.raises(MalformedSoap, match=r"^path/id: "):
        parse_message_id(text, "path/id")


@pytest.mark.spec("SRM-2.2.4.3-03", "SRM-3.1.5.1.1-08")
def test_a_message_id() -> None:
    assert parse_message_id(f"uuid:20503@{GUID}", "x") == MessageId(UUID(GUID), 20503)


@pytest.mark.spec("SRM-2.2.5.3.1-02", "SRM-2.2.5.3.1-03", "SRM-3.1.5.1.1-20")
def test_a_stream_id() -> None:
    text = rf"uid:{GUID}\4839986701558349830"
    stream_id = parse_stream_id(text, "x")
    assert stream_id == StreamId(UUID(GUID), TxSequenceId(ordinal=6, time_stamp=0x432B1643))
    assert date_text(stream_id.sequence.time_stamp) == "20050916T190019"
    assert stream_id_text(stream_id) == text


@pytest.mark.spec("SRM-2.2.5.3.1-02")
@pytest.mark.parametrize(
    "text",
    [
        "",
        rf"uuid:{GUID}\1",
        f"uid:{GUID}/1",
        f"uid:{GUID}@1",
        f"uid:{GUID}",
        rf"{GUID}\1",
        "uid:\\1",
        f"uid:{GUID}\\",
        rf"uid:{GUID}\x",
        rf"uid:{GUID}\18446744073709551616",
        rf"uid:{GUID}\1\1",
    ],
)
def test_no_stream_id(text: str) -> None:
    with pytest.raises(MalformedSoap, match=r"^stream/streamId: "):
        parse_stream_id(text, "stream/streamId")


@pytest.mark.parametrize("text", ["=", "A", "AAA", "AA=A", "AAAA=", "A-_A", "日本"])
def test_no_base64(text: str) -> None:
    with pytest.raises(MalformedSoap, match="must be base64"):
        parse_base64(text, "x")


def test_what_xml_cannot_hold_is_replaced() -> None:
    text = "a\0b\x1f\ud800\ufffe\U0001f4ee\t\n\r"
    assert not is_xml_text(text)
    assert to_xml_text(text) == "a\ufffdb\ufffd\ufffd\ufffd\U0001f4ee\t\n\r"
    assert is_xml_text(to_xml_text(text))
