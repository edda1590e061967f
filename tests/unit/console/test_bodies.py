"""Bodies and headers for people: the view that fits, text that stays text, and no more of it than a page shows."""

from __future__ import annotations

import tracemalloc

import pytest

from postroad.bodies import decode
from postroad.console.bodies import (
    HEX_BYTES,
    MOST_CHARACTERS,
    MOST_OF_HEADERS,
    MOST_OF_VALUE,
    Shown,
    hex_dump,
    shown_body,
    shown_headers,
)
from postroad.console.rendering import type_name


def shown(body: bytes, view: str = "", body_type: int = 0) -> Shown:
    return shown_body(body, body_type, decode(body, body_type, limit=MOST_CHARACTERS), view)


@pytest.mark.parametrize(
    ("body", "view", "expected"),
    [
        (b'{"a":[1]}', "", ("text", '{\n  "a": [\n    1\n  ]\n}')),
        (b'{"a":1}', "raw", ("raw", '{"a":1}')),
        (b"{not json", "", ("text", "{not json")),
        (b"<a><b>1</b></a>", "", ("text", "<a>\n  <b>1</b>\n</a>")),
        ("<a>ü</a>".encode("utf-16-le"), "raw", ("raw", "<a>ü</a>")),
        (b"<a>", "", ("text", "<a>")),
        (b"plain", "no such view", ("text", "plain")),
        (b"\x00A", "", ("hex", f"00000000  {'00 41':<47}  .A")),
        (b"\xff\x01\x02", "raw", ("raw", "\ufffd\x01\x02")),
    ],
)
def test_the_view_that_fits(body: bytes, view: str, expected: tuple[str, str]) -> None:
    found = shown(body, view)
    assert (found.view, found.text) == expected
    assert not found.is_cut


def test_bytes_have_no_readable_view() -> None:
    assert list(shown(b"\xff\x01\x02", "text").views) == ["raw", "hex"]
    assert shown(b"{}").views["text"] == "JSON"


def test_a_value_of_activex_is_one_line() -> None:
    assert shown(b"\x07\0\0\0", body_type=3).text == "7"


def test_a_document_type_is_not_expanded() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'
    assert shown(bomb.encode()).text == bomb


@pytest.mark.parametrize("view", ["text", "raw", "hex"])
def test_what_is_cut_says_so(view: str) -> None:
    found = shown(b"<a>" + b"x" * (2 << 20) + b"</a>", view)
    assert (found.view, found.is_cut) == (view, True)
    assert len(found.text) <= max(MOST_CHARACTERS, len(hex_dump(bytes(HEX_BYTES))))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<a>" * 28_000 + "</a>" * 28_000, id="nested elements"),
        pytest.param("<a>" * 28_000, id="nested elements without an end"),
        pytest.param("<r>" + "<a b='c'/>" * 100_000 + "</r>", id="many elements"),
        pytest.param(f"<a b='{'c' * 1_000_000}'/>", id="a long attribute"),
        pytest.param("[" * 900 + "1," * 80_000 + "1" + "]" * 900, id="nested lists"),
        pytest.param("[" * 42_000 + "]" * 42_000, id="lists that are nested too deeply"),
        pytest.param("[" + "[]," * 300_000 + "1]", id="many lists"),
        pytest.param('{"a":' * 300 + "1" + "}" * 300, id="nested objects"),
        pytest.param("[" + "[]," * 1_300_000 + "1]", id="a long body"),
    ],
)
def test_a_hostile_body_takes_little_memory(text: str) -> None:
    body = text.encode()
    tracemalloc.start()
    try:
        found = shown(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.text) <= MOST_CHARACTERS
    assert most < 64 << 20


def test_headers_are_cut_and_left_out() -> None:
    found, left_out = shown_headers({"a": "1", "b": "x" * (MOST_OF_VALUE + 5)})
    assert [(each.name, len(each.value), each.left_out) for each in found] == [("a", 1, 0), ("b", MOST_OF_VALUE, 5)]
    assert left_out == 0
    found, left_out = shown_headers({f"h{n}": "x" * MOST_OF_VALUE for n in range(100)})
    assert len(found) + left_out == 100
    assert sum(len(each.value) for each in found) < MOST_OF_HEADERS + MOST_OF_VALUE


def test_sixteen_bytes_a_line() -> None:
    assert len(hex_dump(bytes(40)).splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Shop.Order", "Shop.Order"),
        ("Shop.Box`1[[Shop.Money, core, Version=0.0.0.0, Culture=neutral]]", "Shop.Box`1[[Shop.Money]]"),
        ("A`2[[B`1[[C, core]], core, Version=4],[D[,], core]]", "A`2[[B`1[[C]]],[D[,]]]"),
        ("A`1[[B, core, Version=4.0.0.0, Cultu", "A`1[[B"),
        ("urn:shop, with a comma", "urn:shop, with a comma"),
    ],
)
def test_generic_types_are_shown_without_the_assemblies_of_their_arguments(name: str, shown: str) -> None:
    assert type_name(name) == shown
