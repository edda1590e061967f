"""Expressions over messages: what they find, and how faulty expressions are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe.received import ReceivedMessage
from postroad.describe.where import FIELDS, parse_where
from postroad.errors import IllegalExpression
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
    assert parse_where(expression)(MESSAGE) is True


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
    assert parse_where(expression)(MESSAGE) is False


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
    assert parse_where(expression)(MESSAGE) is found


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
        ("label[0] == 'x'", 1, "an expression must consist of"),
        ("[x for x in label] == label", 1, "an expression must consist of"),
        ("label if true else label", 1, "an expression must consist of"),
        ("body.__class__ == label", 1, "an expression must consist of"),
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
        parse_where(text)(MESSAGE)
    except IllegalExpression as refusal:
        return refusal
    return None


def _with_binary_body(packet: bytes) -> bytes:
    """The same with a body of three bytes that are not text in any encoding."""
    return packet.replace(b"abc\0", b"\x01\xff\x02\0")
