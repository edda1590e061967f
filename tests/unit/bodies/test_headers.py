"""Headers of each framework, and what they say: the type of a message, and why it failed."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies import (
    Failure,
    Headers,
    Outline,
    decode,
    failure_of,
    message_type,
    outline,
    read_headers,
    write_headers,
)
from postroad.bodies.bounds import MOST_HEADERS
from postroad.bodies.headers import MOST_BYTES, type_name
from postroad.errors import InvalidArgument

XML = b"""<?xml version="1.0"?>
<ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema">
  <HeaderInfo><Key>NServiceBus.EnclosedMessageTypes</Key>
    <Value>Shop.PlaceOrder, Shop, Version=1.0.0.0;Shop.IOrder, Shop</Value></HeaderInfo>
  <HeaderInfo><Key>NServiceBus.FailedQ</Key><Value>orders@SRV1</Value></HeaderInfo>
  <HeaderInfo><Key>NServiceBus.ExceptionInfo.ExceptionType</Key><Value>System.TimeoutException</Value></HeaderInfo>
  <HeaderInfo><Key>NServiceBus.ExceptionInfo.Message</Key><Value>Can u see '&#x19;' &lt;this&gt;?</Value></HeaderInfo>
  <HeaderInfo><Key>empty</Key><Value /></HeaderInfo>
  <HeaderInfo><Key>none</Key></HeaderInfo>
  <HeaderInfo><Value>no key</Value></HeaderInfo>
</ArrayOfHeaderInfo>"""
NAMES = {
    "NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder, Shop, Version=1.0.0.0;Shop.IOrder, Shop",
    "NServiceBus.FailedQ": "orders@SRV1",
    "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
    "NServiceBus.ExceptionInfo.Message": "Can u see '\x19' <this>?",
    "empty": "",
    "none": "",
}


@pytest.mark.parametrize("behind", [b"", bytes(20), b"\xff\x00<garbage", b"</ArrayOf"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
def test_headers_of_nservicebus_whatever_follows_them(before: bytes, behind: bytes) -> None:
    found = read_headers(before + XML + behind)
    assert found == Headers(NAMES, "nservicebus")
    assert failure_of(found.names) == Failure("System.TimeoutException", "Can u see '\x19' <this>?", "orders@SRV1")


def test_the_intent_of_old_messages_is_in_the_application_tag() -> None:
    assert read_headers(XML, 2).names == NAMES | {"NServiceBus.MessageIntent": "Publish"}
    assert read_headers(XML, 9).names == NAMES
    own = XML.replace(b"<Key>empty</Key><Value />", b"<Key>NServiceBus.MessageIntent</Key><Value>Send</Value>")
    assert read_headers(own, 2).names["NServiceBus.MessageIntent"] == "Send"
    assert read_headers(b"", 2).names == {}


def test_headers_of_rebus() -> None:
    names = {"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "1", "nothing": None, "number": 5}
    found = read_headers(json.dumps(names).encode() + b"\0\0")
    assert found == Headers(
        {"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "1", "nothing": "", "number": "5"}, "rebus"
    )
    assert decode(b"{}", 0, json.dumps(names).encode()).message_type == "Shop.Order"
    assert read_headers(b"+AHs-" + '"rebus-msg-id": "ü"'.encode("utf-7") + b"+AH0-").names == {"rebus-msg-id": "ü"}
    assert read_headers(b'{"a": "b"}') == Headers({"a": "b"}, None)
    details = "1 unhandled exceptions: Shop.OutOfStockException: none left\n at Shop.Handler"
    assert failure_of({"rbs2-error-details": details, "rbs2-source-queue": "orders"}) == Failure(
        "Shop.OutOfStockException", details, "orders"
    )


def test_half_a_pair_in_utf_7_is_no_header() -> None:
    assert read_headers(b"+AHsAIgBhACIAOgAi2AAAIgB9-") == Headers()
    assert read_headers(b"+AHsAIgBhACIAOgAi2DzfgAAiAH0-") == Headers({"a": "\U0001f380"})


def test_an_envelope_of_masstransit() -> None:
    headers = {"MT-Fault-ExceptionType": "System.Exception", "MT-Fault-Message": "no", "count": 5}
    body = json.dumps(
        {"messageId": "1", "messageType": ["urn:message:Shop.Messages:Order"], "message": {"id": 7}, "headers": headers}
    )
    found = decode(body.encode())
    assert (found.kind, found.system, found.message_type) == ("json", "masstransit", "Shop.Messages.Order")
    assert found.headers == headers | {"count": "5"}
    assert found.failure == Failure("System.Exception", "no", None)
    assert message_type(body.encode()) == "Shop.Messages.Order"
    assert outline(body.encode()) == Outline(found.headers, "Shop.Messages.Order")
    assert decode(b'{"message": 1, "messageType": "urn:other"}').system is None


def section(*pairs: tuple[bytes, bytes]) -> bytes:
    content = b"".join(key + value for key, value in pairs)
    return b"\x00\x53\x74\xd1" + struct.pack(">II", len(content) + 4, len(pairs) * 2) + content


def text(value: str) -> bytes:
    return b"\xa1" + bytes([len(value.encode())]) + value.encode()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (text("ü"), "ü"),
        (b"\xb1\x00\x00\x00\x01x", "x"),
        (b"\xa3\x01s", "s"),
        (b"\x40", ""),
        (b"\x41", "true"),
        (b"\x56\x00", "false"),
        (b"\x43", "0"),
        (b"\x50\xff", "255"),
        (b"\x51\xff", "-1"),
        (b"\x61\x80\x00", "-32768"),
        (b"\x71\xff\xff\xff\xfe", "-2"),
        (b"\x80" + b"\xff" * 8, str(2**64 - 1)),
        (b"\x72" + struct.pack(">f", 0.1), "0.1"),
        (b"\x82" + struct.pack(">d", 1.5), "1.5"),
        (b"\x83" + struct.pack(">q", 1_700_000_000_123), "2023-11-14T22:13:20.123000Z"),
        (b"\x98" + bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (b"\xa0\x02\x00\xff", "AP8="),
        (b"\x73\x00\x00\x00\xfc", "ü"),
        (b"\xc0\x03\x02\x54\x05" + b"\x41", "[5, true]"),
        (b"\xc1\x04\x02" + text("a") + b"\x44", '{"a": 0}'),
        (b"\xe0\x04\x02\x55\x01\x02", "[1, 2]"),
        (b"\x45", "[]"),
        (b"\x00" + text("urn:type") + b"\x54\x07", "7"),
    ],
)
def test_values_of_amqp(raw: bytes, shown: str) -> None:
    assert read_headers(section((text("name"), raw)) + bytes(3)) == Headers({"name": shown}, None)


def test_properties_of_amqp_beside_those_of_the_application() -> None:
    properties = b"\x00\x53\x73\xc0\x11\x07" + text("id") + b"\x40\x40\x40\x40\x40" + text("text/x")
    found = read_headers(properties + section((text("message-id"), text("own"))))
    assert found.names == {"message-id": "own", "content-type": "text/x"}


@pytest.mark.parametrize(
    "extension",
    [
        b"hello",
        b"\x00\x53\x74",
        b"\x00\x53\x10\x40",
        b"\x00\x53\x74\xc1\x02\x01\x40",
        b"\x00\x53\x74" + b"\xc0\xff\x01" * 100 + b"\x40",
        b"\x00\x53\x74\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x40",
        b"{" * 100,
        b"[1]",
        b"<ArrayOfHeaderInfo></ArrayOfHeaderInf>",
        b"<!DOCTYPE a><ArrayOfHeaderInfo></ArrayOfHeaderInfo>",
        b"<ArrayOfHeaderInfo>" + b"<HeaderInfo><Key>k</Key></HeaderInfo>" * 100 + b"<x></ArrayOfHeaderInfo>",
        b'{"a": "' + b"x" * MOST_BYTES + b'"}',
    ],
)
def test_other_extensions_have_no_headers(extension: bytes) -> None:
    assert read_headers(extension) == Headers()


@pytest.mark.parametrize(
    ("qualified", "name"),
    [
        ("Shop.Order, Shop, Version=1", "Shop.Order"),
        ("Shop.Box`1[[Shop.Order, Shop]], Shop", "Shop.Box`1[[Shop.Order, Shop]]"),
        ("Shop.Order", "Shop.Order"),
    ],
)
def test_names_of_types(qualified: str, name: str) -> None:
    assert type_name(qualified) == name


SAMPLES = (XML, b'{"rbs2-msg-id": "1"}', section((text("a"), b"\xc1\x04\x02" + text("a") + b"\x44")))


@given(st.binary(max_size=60), st.sampled_from(SAMPLES), st.integers(0, 400), st.integers(0, 9))
def test_any_extension_has_headers_or_none(noise: bytes, sample: bytes, place: int, tag: int) -> None:
    for extension in (noise, b"\x00\x53\x74" + noise, sample[:place] + noise + sample[place + len(noise) :]):
        found = read_headers(extension, tag)
        assert all(isinstance(each, str) for pair in found.names.items() for each in pair)
        failure_of(found.names)


# What a sender writes


NAMES_OF_HEADERS = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), min_size=1).filter(str.strip)
VALUES = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF))


@given(st.dictionaries(NAMES_OF_HEADERS, VALUES, min_size=1, max_size=5))
def test_headers_are_read_back_as_they_were_written(names: dict[str, str]) -> None:
    assert read_headers(write_headers(names)) == Headers(names, "nservicebus")


def test_headers_are_written_as_the_xml_serializer_does() -> None:
    written = write_headers({"NServiceBus.MessageIntent": "Send", "note": "a < b & \x19\r\n"})
    assert written == (
        b'<?xml version="1.0" encoding="utf-8"?><ArrayOfHeaderInfo '
        b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema">'
        b"<HeaderInfo><Key>NServiceBus.MessageIntent</Key><Value>Send</Value></HeaderInfo>"
        b"<HeaderInfo><Key>note</Key><Value>a &lt; b &amp; &#x19;&#xD;\n</Value></HeaderInfo></ArrayOfHeaderInfo>"
    )


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ({" ": "x"}, "a header must have a name"),
        ({"a": "\udcff"}, "UTF-8"),
        ({"a": "x" * MOST_BYTES}, "at most 1,048,576 bytes together"),
        ({str(each): "" for each in range(MOST_HEADERS + 1)}, "at most 1000 headers, got 1001"),
    ],
)
def test_headers_that_no_reader_would_take_are_refused(names: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidArgument, match=fault):
        write_headers(names)
