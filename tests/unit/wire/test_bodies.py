"""Bodies as text: by their type, or by their own bytes if the type says nothing."""

from __future__ import annotations

import pytest

from postroad.wire import MessageView, body_text, encode_body
from postroad.wire.constants import BodyType
from tests.vectors import FRAME_7

TEXTS = ["", "text", "Zürich", "日本語", "\U0001f4ee", "two\r\nlines\tand a tab"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("body_type", [BodyType.VT_BSTR, BodyType.VT_LPWSTR])
def test_bstr_and_lpwstr_are_utf16(body_type: int, text: str) -> None:
    assert encode_body(text, body_type) == text.encode("utf-16-le")
    assert body_text(text.encode("utf-16-le"), body_type) == text
    assert body_text(text.encode("utf-16-le") + b"\0\0", body_type) == text


@pytest.mark.parametrize("text", TEXTS)
def test_lpstr_is_utf8(text: str) -> None:
    assert encode_body(text, BodyType.VT_LPSTR) == text.encode()
    assert body_text(text.encode(), BodyType.VT_LPSTR) == text
    assert body_text(text.encode() + b"\0", BodyType.VT_LPSTR) == text


def test_lpstr_of_older_applications_is_in_the_western_code_page() -> None:
    assert body_text(b"Z\xfcrich \x80", BodyType.VT_LPSTR) == "Zürich €"


@pytest.mark.parametrize("text", TEXTS)
def test_text_without_a_type_is_recognised(text: str) -> None:
    assert encode_body(text, BodyType.VT_EMPTY) == text.encode()
    assert body_text(text.encode(), BodyType.VT_EMPTY) == text
    assert body_text(b"\xef\xbb\xbf" + text.encode(), BodyType.VT_EMPTY) == text
    assert body_text(b"\xff\xfe" + text.encode("utf-16-le"), BodyType.VT_EMPTY) == text
    assert body_text(b"\xfe\xff" + text.encode("utf-16-be"), BodyType.VT_EMPTY) == text


def test_latin_utf16_without_a_type_is_recognised() -> None:
    assert body_text("<a>é</a>".encode("utf-16-le"), BodyType.VT_EMPTY) == "<a>é</a>"


@pytest.mark.parametrize(
    ("body", "body_type"),
    [
        (b"abc", BodyType.VT_BSTR),  # half a unit
        (b"\x00\xd8", BodyType.VT_LPWSTR),  # half a pair
        (b"\x81", BodyType.VT_LPSTR),  # in neither encoding
        (b"\xff\xff\xff", BodyType.VT_EMPTY),
        (b"\x00\x01\x02", BodyType.VT_EMPTY),  # control characters
        (b"a\0\0\0", BodyType.VT_EMPTY),
        (b"text", BodyType.VT_UI1 | BodyType.VT_VECTOR),
        (b"text", BodyType.VT_I4),
        (b"text", 0xDEADBEEF),
    ],
)
def test_what_is_no_text_stays_bytes(body: bytes, body_type: int) -> None:
    assert body_text(body, body_type) is None


def test_the_body_of_frame_7() -> None:
    view = MessageView(FRAME_7)
    assert body_text(view.body, view.body_type) == "a" * 1000
