"""Bodies for people: the view that fits, and text that stays text."""

from __future__ import annotations

import tracemalloc

import pytest

from postroad.console.bodies import MAX_INDENT, MOST_BYTES, hex_dump, pretty_json, pretty_xml, shown_body


@pytest.mark.parametrize(
    ("text", "view", "expected"),
    [
        ('{"a":[1]}', "", ("json", '{\n  "a": [\n    1\n  ]\n}')),
        ("{not json", "", ("text", "{not json")),
        ("{not json", "json", ("json", "(This is not JSON.)\n\n{not json")),
        ("<a><b>1</b></a>", "", ("xml", "<a>\n  <b>1</b>\n</a>")),
        ("<a>", "", ("text", "<a>")),
        ("plain", "", ("text", "plain")),
        ('{"a":1}', "text", ("text", '{"a":1}')),
    ],
)
def test_the_view_that_fits(text: str, view: str, expected: tuple[str, str]) -> None:
    assert shown_body(text.encode(), text, view) == expected


def test_bytes_are_shown_as_digits() -> None:
    assert shown_body(b"\x00A", None, "") == ("hex", f"00000000  {'00 41':<47}  .A")
    assert shown_body(b"\xff", None, "text") == ("text", "\ufffd")
    assert len(hex_dump(bytes(40)).splitlines()) == 3


def test_mixed_content_keeps_its_text() -> None:
    assert pretty_xml("<p>one <b>two</b> three</p>").split() == ["<p>", "one", "<b>two</b>", "three", "</p>"]


def test_a_document_type_is_not_expanded() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'
    assert shown_body(bomb.encode(), bomb, "") == ("text", bomb)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        pytest.param("<a>" * 28_000 + "</a>" * 28_000, "xml", id="nested elements"),
        pytest.param("<a>" * 28_000, "xml", id="nested elements without an end"),
        pytest.param("<r>" + "<a b='c'/>" * 100_000 + "</r>", "xml", id="many elements"),
        pytest.param(f"<a b='{'c' * 1_000_000}'/>", "xml", id="a long attribute"),
        pytest.param("[" * 900 + "1," * 80_000 + "1" + "]" * 900, "json", id="nested lists"),
        pytest.param("[" * 42_000 + "]" * 42_000, "text", id="lists that are nested too deeply"),
        pytest.param("[" + "[]," * 300_000 + "1]", "json", id="many lists"),
        pytest.param('{"a":' * 300 + "1" + "}" * 300, "json", id="nested objects"),
        pytest.param("[" + "[]," * 1_300_000 + "1]", "text", id="a long body"),
    ],
)
def test_a_hostile_body_takes_little_memory(text: str, view: str) -> None:
    body = text.encode()
    tracemalloc.start()
    try:
        found, shown = shown_body(body, text, "")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found in (view, "text")
    assert len(shown) <= MOST_BYTES
    assert most < 64 << 20


def test_no_more_is_written_than_a_page_shows() -> None:
    slack = 2000  # one line
    assert len(pretty_xml("<a>" * 28_000)) < MOST_BYTES + slack
    assert len(pretty_xml("<r>" + "<a/>" * 200_000 + "</r>")) < MOST_BYTES + slack
    assert len(pretty_json("[" + "1," * 200_000 + "1]")) < MOST_BYTES + slack
    deep = pretty_xml("<a>" * 200 + "</a>" * 200).splitlines()
    assert max(len(line) - len(line.lstrip()) for line in deep) == 2 * MAX_INDENT
