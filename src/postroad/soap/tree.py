"""XML read once into a small tree, with a limit on everything. envelope.py and header.py know what elements mean.

Document types are refused, and with them entities and external references. So nothing can expand or load anything.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from postroad.errors import LocalProtocolError, MalformedSoap
from postroad.soap.simple_types import SPACE, is_xml_text

# An envelope with every list full has some hundred kilobytes. The cost of a hostile one grows only with its size, and
# the size is limited too.
MAX_ENVELOPE_SIZE: Final = 0x100000
MAX_DEPTH: Final = 64
MAX_ELEMENTS: Final = 4096
MAX_ATTRIBUTES: Final = 64

_ENCODINGS = frozenset({"utf-8", "utf-16", "us-ascii"})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SEPARATOR = " "


@dataclass(slots=True, eq=False)
class Element:
    """One element. `name` is its namespace, a blank and its local name. Attributes are named in the same way.

    `text` is the text before the first child. `start` is where its start tag begins in the document, and `close` where
    its end tag begins, if it has one.
    """

    name: str
    attributes: dict[str, str]
    start: int
    children: list[Element] = field(default_factory=list)
    text: str = ""
    close: int = 0


class Document:
    """A document as it was read: `data` in UTF-8 without a byte order mark, and the root element."""

    __slots__ = ("data", "namespaces", "root")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.namespaces: list[tuple[int, str | None, str]] = []  # (start of its element, prefix, URI), in order
        self.root = _Builder(self).build()

    def text_of(self, parent: Element, child: Element) -> str:
        """The text of a child, up to its next sibling or to the end of the parent."""
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
            del self._parser  # it refers to our handlers, a cycle that only the garbage collector would free
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
            self._refuse(f"the encoding must be UTF-8 or UTF-16, got {encoding!r}")

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> NoReturn:
        self._refuse("a document type declaration is not allowed")

    def _refuse(self, fault: str) -> NoReturn:
        parser = self._parser
        raise MalformedSoap(f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}", fault)


def parse_document(data: bytes) -> Document:
    """Reads UTF-8, or UTF-16 with its mark. Raises MalformedSoap for anything but one small XML document."""
    if len(data) > MAX_ENVELOPE_SIZE:
        raise MalformedSoap("envelope", f"must have at most {MAX_ENVELOPE_SIZE} bytes, got {len(data)}")
    if data.startswith(_UTF16_MARKS):
        try:
            data = data.decode("utf-16").encode("utf-8")
        except UnicodeError:
            raise MalformedSoap("envelope", "must be UTF-16, as its first bytes say") from None
    return Document(data.removeprefix(codecs.BOM_UTF8))


# What every block is read and written with: namespaces, children by name, text, escapes.


# [MC-MQSRM] 2.2.3
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
ROUTING = "http://schemas.xmlsoap.org/rp/"
SRMP = "http://schemas.xmlsoap.org/srmp/"
MSMQ = "msmq.namespace.xml"
SIGNATURE = "http://www.w3.org/2000/02/xmldsig#"

MUST_UNDERSTAND = f"{SOAP} mustUnderstand"
ACTOR = f"{SOAP} actor"
NEXT_ACTOR = "http://schemas.xmlsoap.org/soap/actor/next"  # [SOAP1.1] 4.2.2

Names = Mapping[str, str]


def names(namespace: str, *local_names: str) -> dict[str, str]:
    """The qualified names of elements, each with its short name."""
    return {f"{namespace} {name}": name for name in local_names}


class Children:
    """The children of an element that its block knows, by short name. Others are skipped.

    No known child may occur twice, because two readers could each take a different one.
    """

    __slots__ = ("_block", "_found")

    def __init__(self, parent: Element, block: str, known: Names) -> None:
        self._block = block
        self._found: dict[str, Element] = {}
        for child in parent.children:
            name = known.get(child.name)
            if name is None:
                continue
            if name in self._found:
                raise MalformedSoap(self.place(name), "the element occurs twice")
            self._found[name] = child

    def place(self, name: str) -> str:
        return f"{self._block}/{name}"

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def get(self, name: str) -> Element | None:
        return self._found.get(name)

    def element(self, name: str) -> Element:
        """A child that must be present."""
        if name not in self._found:
            raise MalformedSoap(self.place(name), "the element is missing")
        return self._found[name]

    def text(self, name: str) -> str:
        """The text of a child that must be present, with the white space around it."""
        found = self.element(name)
        if found.children:
            raise MalformedSoap(self.place(name), "must contain text, not elements")
        return found.text

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self._found else None

    def word(self, name: str) -> str:
        """The text of a child that must be present and not empty, without the white space around it."""
        text = self.text(name).strip(SPACE)
        if not text:
            raise MalformedSoap(self.place(name), "the element must not be empty")
        return text


def escape(text: str) -> str:
    """The text with XML's escapes. LocalProtocolError if XML cannot express a character."""
    if not is_xml_text(text):
        raise LocalProtocolError(f"must have only characters that XML can express, got {text!r}")
    if "&" in text or "<" in text or ">" in text:
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A bare carriage return would be read as a line feed, [XML 1.0] 2.11.
    return text.replace("\r", "&#13;") if "\r" in text else text


def flag(name: str, there: bool) -> str:
    """An empty element, or nothing."""
    return f"<{name}/>" if there else ""


def value(name: str, content: object) -> str:
    """An element whose content needs no escapes. Nothing for None."""
    return "" if content is None else f"<{name}>{content}</{name}>"


def text(name: str, content: str | None) -> str:
    """An element with any text. Nothing for None."""
    return "" if content is None else f"<{name}>{escape(content)}</{name}>"


def quoted(text: str) -> str:
    """The text for use between the double quotes of an attribute."""
    return escape(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
