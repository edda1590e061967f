"""What every block of an envelope is read and written with: namespaces, children by name, text, escapes."""

from __future__ import annotations

from collections.abc import Mapping

from postroad.errors import LocalProtocolError, MalformedSoap
from postroad.soap.texts import SPACE, is_xml_text
from postroad.soap.tree import Element

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
    """The qualified names of elements, each with its short one."""
    return {f"{namespace} {name}": name for name in local_names}


class Children:
    """The children of an element that its block knows, by their short names; all others are passed over.

    No known child may be there twice: two readers could each take another one.
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
                raise MalformedSoap(self.place(name), "the element is there twice")
            self._found[name] = child

    def place(self, name: str) -> str:
        return f"{self._block}/{name}"

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def get(self, name: str) -> Element | None:
        return self._found.get(name)

    def element(self, name: str) -> Element:
        """A child that must be there."""
        if name not in self._found:
            raise MalformedSoap(self.place(name), "the element is missing")
        return self._found[name]

    def text(self, name: str) -> str:
        """The text of a child that must be there, white space around it included."""
        found = self.element(name)
        if found.children:
            raise MalformedSoap(self.place(name), "text belongs here, not elements")
        return found.text

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self._found else None

    def word(self, name: str) -> str:
        """The text of a child that must be there and hold some, without the white space around it."""
        text = self.text(name).strip(SPACE)
        if not text:
            raise MalformedSoap(self.place(name), "the element is empty")
        return text


def escape(text: str) -> str:
    """The text as XML writes it; LocalProtocolError where XML cannot hold one of its characters."""
    if not is_xml_text(text):
        raise LocalProtocolError(f"{text!r} has a character that XML cannot hold")
    if "&" in text or "<" in text or ">" in text:
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A bare carriage return would be read back as a line feed, [XML 1.0] 2.11.
    return text.replace("\r", "&#13;") if "\r" in text else text


def flag(name: str, there: bool) -> str:
    """An empty element, if it is there."""
    return f"<{name}/>" if there else ""


def value(name: str, content: object) -> str:
    """An element with a content that needs no escape; nothing for None."""
    return "" if content is None else f"<{name}>{content}</{name}>"


def text(name: str, content: str | None) -> str:
    """An element with any text; nothing for None."""
    return "" if content is None else f"<{name}>{escape(content)}</{name}>"


def quoted(text: str) -> str:
    """The text as it stands between the double quotes of an attribute."""
    return escape(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
