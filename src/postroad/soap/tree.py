"""XML read once, into a small tree with a bound on everything. What its elements mean is the envelope's to say.

Document types are refused, and with them entities and external references: nothing here can grow or reach out.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from postroad.errors import MalformedSoap

# An envelope with every list full has some hundred kilobytes. The bounds keep a hostile one cheap: what it costs
# grows with its size alone, and that is bounded too.
MAX_ENVELOPE_SIZE: Final = 0x100000
MAX_DEPTH: Final = 64
MAX_ELEMENTS: Final = 4096
MAX_ATTRIBUTES: Final = 64

_ENCODINGS = frozenset({"utf-8", "utf-16", "us-ascii"})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SEPARATOR = " "


@dataclass(slots=True, eq=False)
class Element:
    """One element: `name` is its namespace, a blank and its local name, and so are the names of attributes.

    `text` is what stands before the first child. `start` is where its start tag begins in the document, and `close`
    where its end tag does, if it has one.
    """

    name: str
    attributes: dict[str, str]
    start: int
    children: list[Element] = field(default_factory=list)
    text: str = ""
    close: int = 0


class Document:
    """A document as it was read: `data` in UTF-8 without a byte order mark, and the element at its root."""

    __slots__ = ("data", "namespaces", "root")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.namespaces: list[tuple[int, str | None, str]] = []  # (start of its element, prefix, URI), in order
        self.root = _Builder(self).build()

    def text_of(self, parent: Element, child: Element) -> str:
        """The child's own text, up to where its next sibling or the parent's end begins."""
        after = parent.children.index(child) + 1
        stop = parent.children[after].start if after < len(parent.children) else parent.close
        return self.data[child.start : stop].decode("utf-8").rstrip()

    def declared_on(self, *elements: Element) -> Iterator[tuple[str | None, str]]:
        """The namespaces declared in the start tags of these elements."""
        starts = {element.start for element in elements}
        return ((prefix, uri) for start, prefix, uri in self.namespaces if start in starts)


class _Builder:
    """The handlers of one parser. An exception in a handler ends the parse at once."""

    __slots__ = ("_count", "_document", "_parser", "_stack")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0
        self._stack = [Element("", {}, 0)]
        self._parser = parser = expat.ParserCreate("utf-8", _SEPARATOR)  # whatever encoding a declaration names
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartNamespaceDeclHandler = self._namespace
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype

    def build(self) -> Element:
        try:
            self._parser.Parse(self._document.data, True)
        except expat.ExpatError as error:
            fault = expat.ErrorString(error.code)
            raise MalformedSoap(f"line {error.lineno}, column {error.offset + 1}", f"not XML: {fault}") from None
        finally:
            del self._parser  # which knows our handlers: a ring that only the garbage collector would undo
        return self._stack[0].children[0]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        stack = self._stack
        self._count += 1
        if len(stack) > MAX_DEPTH:
            self._refuse(f"elements are nested deeper than {MAX_DEPTH}")
        if self._count > MAX_ELEMENTS:
            self._refuse(f"there are more than {MAX_ELEMENTS} elements")
        if len(attributes) > MAX_ATTRIBUTES:
            self._refuse(f"an element has more than {MAX_ATTRIBUTES} attributes")
        element = Element(name, attributes, self._parser.CurrentByteIndex)
        stack[-1].children.append(element)
        stack.append(element)

    def _end(self, name: str) -> None:
        self._stack.pop().close = self._parser.CurrentByteIndex

    def _text(self, data: str) -> None:
        element = self._stack[-1]
        if not element.children:
            element.text += data

    def _namespace(self, prefix: str | None, uri: str | None) -> None:
        self._document.namespaces.append((self._parser.CurrentByteIndex, prefix, uri or ""))

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            self._refuse(f"the encoding is {encoding!r}; UTF-8 and UTF-16 are read")

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> NoReturn:
        self._refuse("a document type declaration is not allowed")

    def _refuse(self, fault: str) -> NoReturn:
        parser = self._parser
        raise MalformedSoap(f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}", fault)


def parse_document(data: bytes) -> Document:
    """Reads UTF-8, or UTF-16 with its mark; raises MalformedSoap on anything that is not one small XML document."""
    if len(data) > MAX_ENVELOPE_SIZE:
        raise MalformedSoap("envelope", f"{len(data)} bytes are more than {MAX_ENVELOPE_SIZE}")
    if data.startswith(_UTF16_MARKS):
        try:
            data = data.decode("utf-16").encode("utf-8")
        except UnicodeError:
            raise MalformedSoap("envelope", "not UTF-16, as its first bytes say") from None
    return Document(data.removeprefix(codecs.BOM_UTF8))
