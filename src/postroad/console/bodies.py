"""The body of a message for people: as text, XML, JSON or hexadecimal digits. Always text for a page, never markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.parsers.expat import ExpatError, ParserCreate

MOST_BYTES = 128 << 10  # that a page shows
HEX_BYTES = 16 << 10
VIEWS = ("text", "json", "xml", "hex")


def shown_body(body: bytes, text: str | None, view: str) -> tuple[str, str]:
    """The view that is shown, and its text. Without a view, the one that fits."""
    if view == "hex" or (text is None and view not in ("text", "json", "xml")):
        return "hex", hex_dump(body[:HEX_BYTES])
    if text is None:
        text = body.decode("utf-8", "replace")
    makers: dict[str, Callable[[str], str]] = {"json": pretty_json, "xml": pretty_xml}
    wanted = [view] if view in makers else [] if view == "text" else _guess(text)
    for each in wanted:
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
    """ValueError if it is not JSON."""
    try:
        return json.dumps(json.loads(text.lstrip("\ufeff")), indent=2, ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pretty_xml(text: str) -> str:
    """Indented; ValueError if it is not XML, or has a document type, whose entities could grow without end."""
    lines: list[str] = []
    depth = 0
    pending = ""  # an opening tag whose content is still to come
    words: list[str] = []

    def flush(closing: str = "") -> None:
        nonlocal pending, words
        content = "".join(words).strip()
        words = []
        if pending and closing:
            lines.append(f"{'  ' * (depth - 1)}{pending}{content}{closing}")
            pending = ""
            return
        if pending:
            lines.append(f"{'  ' * (depth - 1)}{pending}")
            pending = ""
        if content:
            lines.append(f"{'  ' * depth}{content}")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, pending
        flush()
        written = [f" {key}={json.dumps(value, ensure_ascii=False)}" for key, value in attributes.items()]
        pending = f"<{name}{''.join(written)}>"
        depth += 1

    def end(name: str) -> None:
        nonlocal depth
        if pending:
            flush(f"</{name}>")
            depth -= 1
            return
        flush()
        depth -= 1
        lines.append(f"{'  ' * depth}</{name}>")

    def add(data: str) -> None:
        words.append(data)

    def refuse(*_: object) -> None:
        raise ValueError("it has a document type")

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = add
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.lstrip("\ufeff"), True)
    except ExpatError as error:
        raise ValueError(str(error)) from None
    return "\n".join(lines)


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: offset, digits, printable characters."""
    lines = []
    for offset in range(0, len(data), 16):
        part = data[offset : offset + 16]
        digits = " ".join(f"{byte:02x}" for byte in part)
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{offset:08x}  {digits:<47}  {text}")
    return "\n".join(lines)
