"""Expressions over messages: what they find, and how faulty expressions are refused."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies import write_headers
from postroad.describe import where
from postroad.describe.received import ReceivedMessage
from postroad.describe.where import FIELDS, parse_where
from postroad.errors import IllegalExpression
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.wire.octets import NULL_GUID
from tests.vectors import FRAME_7, V1

MESSAGE: dict[str, object] = {
    "id": r"{8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10}\17",
    "lookup_id": 288230376151711745,
    "class": 33281,
    "class_name": "nack-q-deleted",
    "label": "Größe",
    "body": 'an "error" occurred',
    "priority": 3,
    "delivery": "recoverable",
    "correlation_id": None,
    "destination_queue": r"DIRECT=OS:alpha\private$\new",
    "encrypted": False,
    "authenticated": True,
    "aborts": 0,
}


class Described:
    """A message that has only its JSON form."""

    def describe(self) -> dict[str, object]:
        return MESSAGE


def finds(expression: str, message: object = Described()) -> bool:
    return parse_where(expression)(cast(ReceivedMessage, message))


@pytest.mark.parametrize(
    "expression",
    [
        'label == "Größe"',
        "label != 'other'",
        'label.lower() == "größe" and label.upper().startswith("GR")',
        "priority > 2 and priority < 4",
        "2 < priority <= 3",
        "priority >= 3.0",
        "priority > -1",
        "priority in (1, 2, 3)",
        "priority not in [4, 5]",
        "'\"error\"' in body",
        '"fine" not in body',
        'class_name.startswith("nack") and delivery.endswith("able")',
        "class == 33281",
        'not class_name == "normal"',
        "not encrypted and authenticated",
        "encrypted == false and authenticated == True",
        'priority == 7 or label == "x" or aborts == 0',
        'label == "x" and priority == 3 or true',
        "correlation_id == null and correlation_id is None",
        "label is not null",
        "len(body) == 19",
        "lookup_id == 288230376151711745",
        r'destination_queue.endswith("private$\new")',
        r"destination_queue > 'DIRECT=OS:alpha\'",
        '  label == "Größe"  ',
    ],
)
def test_what_finds_the_message(expression: str) -> None:
    assert finds(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        'label == "größe"',
        "priority > 3",
        "2 < priority < 3",
        "authenticated and encrypted",
        'label == "x" and (priority == 3 or true)',
        "priority in ()",
        "'error' in label",
    ],
)
def test_what_does_not_find_the_message(expression: str) -> None:
    assert finds(expression) is False


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sender_id == null", True),
        ('sender_id == "S-1-5"', False),
        ('sender_id != "S-1-5"', True),
        ('sender_id < "S"', False),
        ('sender_id >= "S"', False),
        ('"S" in sender_id', False),
        ('"S" not in sender_id', True),
        ("sender_id in body", False),
        ('sender_id.startswith("S")', False),
        ('sender_id.lower() == "s"', False),
        ("len(sender_id) > 0", False),
        ("transaction_id > 0", False),
    ],
)
def test_an_absent_value_holds_nothing_and_has_no_order(expression: str, found: bool) -> None:
    assert finds(expression) is found


@pytest.mark.parametrize(
    ("expression", "character", "fault"),
    [
        ("", 1, "empty"),
        ("   ", 1, "empty"),
        ('labl == "x"', 1, "there is no field labl; did you mean label?"),
        ('label == "x" and prio > 3', 18, "there is no field prio"),
        ("label", 1, "this must be true or false, got text"),
        ("priority and encrypted", 1, "this must be true or false, got a number"),
        ('label == "ä" or priority > "x"', 28, "a number cannot be compared with text"),
        ('priority == "3"', 13, "a number cannot be compared with text"),
        ("encrypted == 1", 14, "true or false cannot be compared with a number"),
        ("encrypted > false", 13, "cannot be compared with"),
        ("3 in priority", 6, "the right side of in must be"),
        ("label in null", 10, "the right side of in must be"),
        ("(1, 2) == (1, 2)", 11, "a list cannot be compared with a list"),
        ("priority in ((1,), 2)", 14, "not lists"),
        ('label is "x"', 10, "is and is not must be followed by null"),
        ('label = "x"', 7, "write == for equal"),
        ('label == "x" and', 17, "the expression is incomplete"),
        ("(priority == 3", 1, "never closed"),
        ('label == "x', 10, "the closing quote is missing"),
        ('label == f"x"', 11, "must not have a letter before it"),
        ("label == 'x' # why", 14, "must be in quotes"),
        ("läbel == 'x'", 2, "must be in quotes"),
        ("label == 'x'\nor true", 13, "must be in quotes"),
        ("priority + 1 == 4", 1, "an expression must consist of"),
        ("label[0] == 'x'", 1, "only headers and body have parts"),
        ("[x for x in label] == label", 1, "an expression must consist of"),
        ("label if true else label", 1, "an expression must consist of"),
        ("label.__class__ == label", 1, "only headers and body have parts"),
        ("headers == null", 1, 'headers must have the name of one, as in headers["NServiceBus.FailedQ"]'),
        ("true or headers.a[0] == 1", 9, "the name of a header must be one text"),
        ("headers[0] == 'x'", 1, "the name of a header must be one text"),
        ("body[1:2] == 'x'", 1, "brackets must hold a name in quotes or a whole number"),
        ("body[true] == 'x'", 1, "brackets must hold a name in quotes or a whole number"),
        ("label == 'x' or body.a.b[-1] == 2", 17, "brackets must hold a name in quotes or a whole number"),
        ("headers.rbs2-msg-type == 'x'", 1, "a name with - must be in brackets and quotes"),
        ("true and headrs['x'] == 'x'", 10, "there is no field headrs; did you mean headers?"),
        ("header.a.b == 'x'", 1, "there is no field header; did you mean headers?"),
        ("message_typ == 'x'", 1, "did you mean message_type?"),
        ("body.a > true", 10, "cannot be compared with"),
        ("body.format() == label", 1, "a function of text must be one of"),
        ("priority.lower() == label", 1, "this must be text, got a number"),
        ("label.startswith()", 1, "startswith() must have 1 text"),
        ("label.startswith(3)", 18, "this must be text, got a number"),
        ("label.lower('x') == label", 1, "lower() must have no texts"),
        ("label.startswith(prefix='x')", 1, "a function must be"),
        ("open('/etc/passwd')", 1, "a function must be"),
        ("(lambda: true)()", 1, "a function must be"),
        ("len(priority) == 1", 5, "this must be text, got a number"),
        ("not " * 41 + "encrypted", 165, "nested levels"),
        ("(" * 300, 201, "too many nested parentheses"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(expression: str, character: int, fault: str) -> None:
    with pytest.raises(IllegalExpression) as caught:
        parse_where(expression)
    assert (caught.value.position + 1, caught.value.name) == (character, expression)
    assert fault in caught.value.fault


# Headers, the type of a message, and values in its body


SAMPLES = Path(__file__).parents[1] / "data" / "bodies" / "samples.jsonl"
HEADERS = {"NServiceBus.EnclosedMessageTypes": "Shop.Order, Shop", "NServiceBus.Retries": "12", "rbs2-x": "True"}
JSON = """{"id": 7, "paid": true, "from": {"class": "A-1", "name": "Größe"}, "Größe": 1, "note": null, "code": "007",
    "lines": [{"sku": "x", "count": 2}, {"sku": "y", "count": 30}, {}], "rate": 1.5, "tags": ["new", 5]}"""
XML = """<?xml version="1.0"?><s:Order xmlns:s="urn:shop" id="7"><Paid>true</Paid><Total currency="EUR">12.50</Total>
    <Line><Sku>x</Sku></Line><Line><Sku>y</Sku></Line><One><Sku>z</Sku></One><None /></s:Order>"""


def sent(body: str | bytes, extension: bytes = b"", body_type: int = 0) -> ReceivedMessage:
    composer = Composer(NULL_GUID, parse_format_name(r"DIRECT=OS:alpha\private$\q"))
    message = Message(body, extension=extension, body_type=body_type)
    return ReceivedMessage(composer.compose(message, 1, 1_700_000_000), 1, 0)


@pytest.mark.parametrize(
    "expression",
    [
        'headers["NServiceBus.EnclosedMessageTypes"].startswith("Shop.")',
        'headers.NServiceBus.EnclosedMessageTypes == "Shop.Order, Shop"',
        "headers.NServiceBus.Retries > 5 and headers.NServiceBus.Retries == 12",
        'headers.NServiceBus.Retries < "2"',  # texts
        "headers.none == null and headers.none != 3 and not headers.none > 3 and not headers.none",
        'headers["rbs2-x"] and headers["rbs2-x"] == true',
        '"Shop" in headers.NServiceBus.EnclosedMessageTypes',
        'message_type == "Shop.Order"',
        "body.id == 7 and 6 < body.id < 8 and body.id != 8",
        'body.id == "7"',
        "body.paid and body.paid == true and not body.paid == false",
        'body.from.class == "A-1" and body["from"]["name"].lower() == "größe"',
        'body["Größe"] == 1',
        "body.note == null and body.note is null and body.nothing.at.all == null",
        'body.lines[0].sku == "x" and body.lines[1].count > 20 and body.lines[2].sku == null',
        'body.lines[3] == null and "y" in body.lines.sku and "z" not in body.lines.sku',
        "len(body.lines) == 3 and len(body.code) == 3",
        'body.code == "007" and body.code == 7',
        "body.rate in (1, 1.5)",
        "5 in body.tags and 'new' in body.tags and 6 not in body.tags",
        "body.id == body.lines[0].count or body.id > body.lines[0].count",
        "body.from != 'x' and not body.from == 'x' and body.from is not null",
        'label == null or "from" in body',
    ],
)
def test_headers_and_values_in_json(expression: str) -> None:
    assert finds(expression, sent(JSON, write_headers(HEADERS)))


@pytest.mark.parametrize(
    "expression",
    [
        'body["@id"] == 7 and body.Paid and body.Total == 12.5 and body.Total > 12 and body.Total == "12.50"',
        'body.Total["@currency"] == "EUR"',
        'body.Order.Line[1].Sku == "y" and body.Line.Sku[0] == "x"',
        'body.One[0].Sku == "z" and body.One.Sku == "z" and body.One[1] == null',
        'body.None == "" and body.Nothing == null and message_type == "Order"',
    ],
)
def test_values_in_xml(expression: str) -> None:
    assert finds(expression, sent(XML))
    assert finds(expression, sent(XML, body_type=8))


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("core/nservicebus/error-json", 'headers.NServiceBus.FailedQ.startswith("Shop.Billing@")'),
        ("core/masstransit/envelope", "headers.none == null and body.message is not null"),
        ("core/rebus/error", 'headers["rbs2-error-details"] is not null'),
    ],
)
def test_messages_that_dotnet_wrote(name: str, expression: str) -> None:
    lines = map(json.loads, SAMPLES.read_text().splitlines())
    sample = next(each for each in lines if each["name"] == name)
    extension = b64decode(sample["extension_base64"] or "")
    assert finds(expression, sent(b64decode(sample["body_base64"]), extension, sample["body_type"]))


@pytest.mark.parametrize("body", [b"", b"\0\1\xff", b"{", b"<a>", b"text", b"[1]", b"7"])
def test_a_body_without_such_a_value_has_none(body: bytes) -> None:
    assert finds("body.a == null and body.a.b[0] is null and not body.a and headers.a == null", sent(body))


def test_a_long_text_is_no_number() -> None:
    """Each comparison would read a stranger's text to its end, and a filter has room for hundreds."""
    short, long = (sent(json.dumps({"Total": " " * spaces + "7"})) for spaces in (999, 1_000_000))
    assert finds("body.Total == 7", short)
    assert not finds("body.Total == 7", long)


def test_the_case_of_a_text_is_changed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be large, and a filter has room for a hundred."""
    changed: list[str] = []

    def lower(text: str) -> str:
        changed.append(text)
        return text.lower()

    monkeypatch.setitem(where._METHODS, "lower", (lower, 0, where.Kind.TEXT))
    assert not finds(" or ".join(f'body.lower() == "{number}"' for number in range(60)), sent("Large"))
    assert changed == ["Large"]


def test_only_what_a_filter_names_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def describe(_: ReceivedMessage) -> dict[str, object]:
        reads.append("fields")
        return {"label": "x"}

    monkeypatch.setattr(ReceivedMessage, "read", lambda _: reads.append("body"))
    monkeypatch.setattr(ReceivedMessage, "describe", describe)
    message = sent(JSON, write_headers(HEADERS))
    assert finds('headers.NServiceBus.Retries == "12" and message_type == "Shop.Order"', message)
    assert reads == []
    assert not finds('label == "y" and body.id == 7', message)
    assert reads == ["fields"]


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(IllegalExpression, match="at most 4000 characters"):
        parse_where("true or " * 1000 + "true")


def test_every_field_of_a_message_can_be_asked_for() -> None:
    text, binary = (
        ReceivedMessage(packet, 1, 0, reason=0x8200).describe() for packet in (FRAME_7, _with_binary_body(V1))
    )
    assert "body" in text
    assert "body_base64" in binary
    assert set(text) | set(binary) == set(FIELDS)


@given(st.text() | st.text(alphabet="label priority()<>=!'\"andornti.in[],1-", max_size=60))
def test_any_text_is_an_expression_or_a_refusal(text: str) -> None:
    refusal = _refusal(text)
    assert refusal is None or 0 <= refusal.position <= len(text)


def _refusal(text: str) -> IllegalExpression | None:
    try:
        finds(text)
    except IllegalExpression as refusal:
        return refusal
    return None


def _with_binary_body(packet: bytes) -> bytes:
    """The same with a body of three bytes that are not text in any encoding."""
    return packet.replace(b"abc\0", b"\x01\xff\x02\0")
