"""The body of a message for people: as text, XML, JSON or hexadecimal digits. Always text for a page, never markup.

Bodies come from strangers: what is written is cut while it is written, and what is read is bounded before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.parsers.expat import ExpatError, ParserCreate

MOST_BYTES = 128 << 10  # that a page shows
READ_BYTES = 1 << 20  # of a body that is read as XML or JSON; of longer ones only the text is shown
STEP = 16 << 10  # characters that the XML parser gets at a time: it is asked in between whether the page is full
MAX_INDENT = 40  # levels: deeper ones stand below each other
HEX_BYTES = 16 << 10
VIEWS = ("text", "json", "xml", "hex")


def shown_body(body: bytes, text: str | None, view: str) -> tuple[str, str]:
    """The view that is shown, and its text. Without a view, the one that fits."""
    if view == "hex" or (text is None and view not in ("text", "json", "xml")):
        return "hex", hex_dump(body[:HEX_BYTES])
    if text is None:
        text = body[:READ_BYTES].decode("utf-8", "replace")
    makers: dict[str, Callable[[str], str]] = {"json": pretty_json, "xml": pretty_xml}
    wanted = [view] if view in makers else [] if view == "text" else _guess(text)
    for each in wanted:
        if len(text) > READ_BYTES:
            break
        try:
            return each, makers[each](text)[:MOST_BYTES]
        except ValueError:
            if view:
                return each, f"(This is not {each.upper()}.)\n\n{text[:MOST_BYTES]}"
    return "text", text[:MOST_BYTES]


def _guess(text: str) -> list[str]:
    start = text.lstrip("\ufeff \t\r\n")[:1]
    return ["json"] if start in ("{", "[") else ["xml"] if start == "<" else []


def pretty_json(text: str) -> str:
    """As much as a page shows. ValueError if it is not JSON, or nested too deeply to be read."""
    found, size = [], 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text.lstrip("\ufeff"))):
            found.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                break
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return "".join(found)


class _Full(Exception):
    """The page has as much as it shows."""


class _XmlWriter:
    """Elements as lines, each indented by its depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._size = 0
        self._depth = 0
        self._pending = ""  # an opening tag whose content is still to come
        self._words: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._flush()
        written = [f" {key}={json.dumps(value, ensure_ascii=False)}" for key, value in attributes.items()]
        self._pending = f"<{name}{''.join(written)}>"
        self._depth += 1

    def end(self, name: str) -> None:
        if self._pending:
            content, self._words = "".join(self._words).strip(), []
            self._depth -= 1
            self._write(self._depth, f"{self._pending}{content}</{name}>")
            self._pending = ""
            return
        self._flush()
        self._depth -= 1
        self._write(self._depth, f"</{name}>")

    def add(self, data: str) -> None:
        self._words.append(data)

    def refuse(self, *_: object) -> None:
        raise ValueError("it has a document type")  # whose entities could grow without end

    def _flush(self) -> None:
        content, self._words = "".join(self._words).strip(), []
        if self._pending:
            self._write(self._depth - 1, self._pending)
            self._pending = ""
        if content:
            self._write(self._depth, content)

    def _write(self, depth: int, text: str) -> None:
        line = f"{'  ' * min(depth, MAX_INDENT)}{text}"
        self.lines.append(line)
        self._size += len(line) + 1
        if self._size > MOST_BYTES:
            raise _Full


def pretty_xml(text: str) -> str:
    """Indented, as much as a page shows; ValueError if that is not XML, or has a document type."""
    writer, parser = _XmlWriter(), ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = writer.start, writer.end
    parser.CharacterDataHandler = writer.add
    parser.StartDoctypeDeclHandler = writer.refuse
    text = text.lstrip("\ufeff")
    try:
        for start in range(0, len(text), STEP):
            parser.Parse(text[start : start + STEP], False)
        parser.Parse("", True)
    except ExpatError as error:
        raise ValueError(str(error)) from None
    except _Full:
        pass
    return "\n".join(writer.lines)


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: offset, digits, printable characters."""
    lines = []
    for offset in range(0, len(data), 16):
        part = data[offset : offset + 16]
        digits = " ".join(f"{byte:02x}" for byte in part)
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{offset:08x}  {digits:<47}  {text}")
    return "\n".join(lines)
