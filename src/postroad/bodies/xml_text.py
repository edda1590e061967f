"""XML: its value, and its text indented. A document type is refused: there are no entities, and nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from xml.parsers import expat

from postroad.bodies.bounds import LIMIT, check_depth, check_values
from postroad.errors import RemoteProtocolError

TYPE = "$type"
VALUE = "value"  # the field of a body that is one value, not a record
_SEPARATOR = "\x01"  # between a namespace and a name; no character of XML
_NIL = f"http://www.w3.org/2001/XMLSchema-instance{_SEPARATOR}nil"
_DECLARATION = re.compile(r"\s*<\?xml\s.*?\?>", re.DOTALL)
_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<[^>\"']*+(?:(?:\"[^\"]*+\"|'[^']*+')[^>\"']*+)*+>|[^<]+", re.DOTALL
)
_REFERENCE = re.compile(r"&#(x[0-9a-fA-F]{1,8}|[0-9]{1,9});")
# .NET writes characters that XML 1.0 forbids as references. The parser gets these in their place.
_FORBIDDEN = [*range(9), 0xB, 0xC, *range(0xE, 0x20), 0xFFFE, 0xFFFF]
_STAND_INS = {code: chr(0x10FF00 + index) for index, code in enumerate(_FORBIDDEN)}
_RESTORED = {ord(stand_in): chr(code) for code, stand_in in _STAND_INS.items()}


class Untyped(str):
    """Text of an XML element: it may be a number, a time or a truth. XML does not say."""


class _Repeated(list[Any]):
    """Elements of one name, as opposed to a list inside one."""


def walk_xml(
    text: str,
    start: Callable[[str, Mapping[str, str]], None],
    end: Callable[[str], None],
    data: Callable[[str], None],
) -> bool:
    """Gives each element and text to its function; RemoteProtocolError if it is not XML. True if texts have stand-ins
    for characters that XML forbids: `restored` gives them back."""
    text = without_declaration(text)
    check_values(text.count("<") // 2 + text.count('="') + text.count("='"))
    replaced = _REFERENCE.sub(_stand_in, text) if "&#" in text else text
    if has_stand_ins := replaced != text:
        if any(stand_in in text for stand_in in _STAND_INS.values()):
            raise RemoteProtocolError("the body must be XML with characters that are in use")
        text = replaced
    depth = values = 0

    def open_element(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, values
        depth += 1
        values += 1 + len(attributes)
        check_depth(depth)
        check_values(values)
        start(name, attributes)

    def close_element(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name)

    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = open_element, close_element
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, UnicodeEncodeError) as fault:
        raise RemoteProtocolError(f"the body must be XML: {fault}") from None
    return has_stand_ins


def without_declaration(text: str) -> str:
    """The text is decoded already, so what the XML declaration says of its encoding is no longer true."""
    found = _DECLARATION.match(text)
    return text[found.end() :].lstrip() if found else text.lstrip()


def restored(text: str) -> str:
    return text.translate(_RESTORED)


def local_name(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


def _stand_in(match: re.Match[str]) -> str:
    digits = match[1]
    return _STAND_INS.get(int(digits[1:], 16) if digits[0] == "x" else int(digits), match[0])


def _refuse_doctype(*_: object) -> None:
    raise RemoteProtocolError("the body must be XML without a document type")


class _Tree:
    """Elements as dictionaries, lists and texts."""

    def __init__(self) -> None:
        self.root: tuple[str, Any] = ("", None)
        self._open: list[tuple[str, dict[str, Any], list[str]]] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        fields: dict[str, Any] = {f"@{local_name(key)}": Untyped(value) for key, value in attributes.items()}
        if attributes.get(_NIL) in ("true", "1"):
            fields["@nil"] = True
        self._open.append((local_name(name), fields, []))

    def text(self, data: str) -> None:
        self._open[-1][2].append(data)

    def end(self, _: str) -> None:
        name, fields, texts = self._open.pop()
        value = self._value(fields, "".join(texts))
        if not self._open:
            self.root = (name, value)
            return
        parent = self._open[-1][1]
        if name not in parent:
            parent[name] = value
        elif isinstance(parent[name], _Repeated):
            parent[name].append(value)
        else:
            parent[name] = _Repeated([parent[name], value])

    def _value(self, fields: dict[str, Any], text: str) -> Any:
        if fields.pop("@nil", None) is True:
            return None
        if not fields:
            return Untyped(text)
        return fields | ({"#text": Untyped(text)} if text.strip() else {})


# What XmlSerializer calls a body that is one value: text, and what its text says.
_XML_TEXTS = frozenset({"string", "char", "guid", "base64Binary"})
_XML_VALUES = _XML_TEXTS | {"int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"}
_XML_VALUES |= {"unsignedByte", "double", "float", "decimal", "boolean", "dateTime", "TimeSpan", "duration", "date"}


def xml_value(text: str) -> tuple[str, Any]:
    """The name of the root, and what .NET's XmlSerializer means by it: an object as a dictionary with the name of its
    element under `$type`, a single value as its text. Attributes start with @; elements of one name are a list;
    `xsi:nil` is None. Prefixes and namespaces are left out."""
    tree = _Tree()
    has_stand_ins = walk_xml(text, tree.start, tree.end, tree.text)
    name, value = tree.root
    if has_stand_ins:
        value = _restored_values(value)
    if isinstance(value, dict):
        return name, {TYPE: name} | value
    if value is None or name in _XML_VALUES:
        return name, str(value) if name in _XML_TEXTS and value is not None else value
    return name, {TYPE: name} | ({VALUE: value} if value.strip() else {})


def _restored_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _restored_values(each) for name, each in value.items()}
    if isinstance(value, list):
        return _Repeated(map(_restored_values, value))
    return Untyped(restored(value)) if isinstance(value, Untyped) else value


def indented_xml(text: str, limit: int = LIMIT) -> tuple[str, bool]:
    """The text of a document that xml_value has read, each element on a line of its own unless it has text; and whether
    it was cut at the limit."""
    if not limit:
        return "", True
    tokens = _TOKEN.findall(without_declaration(text))
    blocks = _blocks(tokens)
    out: list[str] = []
    size = depth = inline = 0
    for index, token in enumerate(tokens):
        opens = token[0] == "<" and token[1] not in "/!?" and token[-2] != "/"
        if inline:
            inline += opens - (token[:2] == "</")
            piece = _readable(token) if "&#" in token else token
        elif token[0] != "<":
            continue  # space between elements
        else:
            depth -= token[:2] == "</"
            piece = "\n" + "  " * depth + (_readable(token) if "&#" in token else token)
            if opens and index in blocks:
                depth += 1
            else:
                inline = int(opens)
        out.append(piece)
        size += len(piece)
        if size > limit:
            return "".join(out)[1 : limit + 1], True
    return "".join(out)[1:], False


def _readable(token: str) -> str:
    """A text or tag with its characters in place of their numbers, but for those that would mean something else."""
    return token if token[:2] in ("<!", "<?") else _REFERENCE.sub(_character, token)


def _character(match: re.Match[str]) -> str:
    digits = match[1]
    code = int(digits[1:], 16) if digits[0] == "x" else int(digits)
    character = chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else ""
    return character if character.isprintable() and character not in "<>&\"'" else match[0]


def _blocks(tokens: list[str]) -> set[int]:
    """The opening tags whose elements have elements, and no text beside them."""
    blocks: set[int] = set()
    texts: set[int] = set()
    path: list[int] = [-1]
    for index, token in enumerate(tokens):
        if token[0] != "<" or token[:3] == "<![":
            if token[0] == "<" or token.strip(" \t\r\n"):
                texts.add(path[-1])
        elif token[:2] == "</":
            path.pop()
        else:
            blocks.add(path[-1])
            if "xml:space" in token:
                texts.add(index)
            if token[1] not in "!?" and token[-2] != "/":
                path.append(index)
    return blocks - texts
