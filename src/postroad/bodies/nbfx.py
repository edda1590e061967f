"""[MC-NBFX]: binary XML as text, with the strings of [MC-NBFS] and the tables of [MC-NBFSE].

Small records can stand for long strings, so what is written is bounded, and not what is read.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence

from postroad.bodies.bounds import MOST_BYTES, check_depth, check_values
from postroad.bodies.dictionary import STRINGS
from postroad.bodies.values import decimal, guid, single, tagged_moment, xml_duration, xml_number
from postroad.errors import RemoteProtocolError

_NAME = re.compile(r"[^\s<>&\"'=/!?:\x00-\x1f]+")
_ESCAPES = re.compile(r"[<>&\x00-\x08\x0b-\x1f\ufffe\uffff]")
_ESCAPES_IN_QUOTES = re.compile(r"[<>&\"\x00-\x1f\ufffe\uffff]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;"}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_END, _COMMENT, _ARRAY = 0x01, 0x02, 0x03
_FIRST_ELEMENT, _LAST_ELEMENT, _FIRST_TEXT = 0x40, 0x77, 0x80
_LIST, _END_OF_LIST = 0xA4, 0xA6


def read_document(data: bytes, table: Sequence[str] = ()) -> str:
    """The XML of a whole document; `table` has the strings of its session, [MC-NBFSE] 2.2.

    RemoteProtocolError if it is none, or more than MOST_BYTES.
    """
    return _Reader(data, table).document()


def read_start(data: bytes, table: Sequence[str], size: int) -> str:
    """Some `size` characters of the start of a document; fewer if it is shorter or damaged."""
    return _Reader(data, table).start(size)


def read_string_table(data: bytes, table: list[str]) -> int:
    """[MC-NBFSE] 2.1: adds the strings before a document to the table, and gives where the document starts."""
    reader = _Reader(data, ())
    size = reader.number()
    end = reader.at + size
    if end > len(data):
        raise reader.fault("must have all of its strings")
    while reader.at < end:
        table.append(reader.text())
        check_values(len(table))
    if reader.at != end:
        raise reader.fault("must have strings of the size that it says")
    return end


class _Reader:
    def __init__(self, data: bytes, table: Sequence[str]) -> None:
        self.at = 0
        self._data = data
        self._table = table
        self._out: list[str] = []
        self._size = 0
        self._open: list[str] = []
        self._records = 0

    def document(self) -> str:
        while self.at < len(self._data):
            self._node(self._record())
        if self._open:
            raise self.fault("must end all of its elements")
        return "".join(self._out)

    def start(self, size: int) -> str:
        try:
            while self.at < len(self._data) and self._size < size:
                self._node(self._record())
        except RemoteProtocolError:
            pass
        return "".join(self._out)

    def fault(self, sentence: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"[MC-NBFX]: at byte {self.at}: the document {sentence}")

    # Records

    def _record(self) -> int:
        self._records += 1
        check_values(self._records)
        return self._byte()

    def _node(self, record: int) -> None:
        if record >= _FIRST_TEXT:
            self._content(record)
        elif record == _END:
            self._close()
        elif record == _COMMENT:
            self._write(f"<!--{self.text()}-->")
        elif record == _ARRAY:
            self._array()
        else:
            self._element(record)

    def _element(self, record: int) -> None:
        if not _FIRST_ELEMENT <= record <= _LAST_ELEMENT:
            raise self.fault(f"must have no record {record:#04x} here")
        name = self._element_name(record)
        self._write(f"<{name}")
        self._attributes()
        self._write(">")
        self._open.append(name)
        check_depth(len(self._open))

    def _element_name(self, record: int) -> str:
        if record <= 0x43:
            prefix = f"{self._name(self.text())}:" if record & 1 else ""
            return prefix + self._name(self.text() if record <= 0x41 else self._known())
        if record <= 0x5D:
            return f"{_LETTERS[record - 0x44]}:{self._name(self._known())}"
        return f"{_LETTERS[record - 0x5E]}:{self._name(self.text())}"

    def _attributes(self) -> None:
        while self.at < len(self._data) and 0x04 <= self._data[self.at] <= 0x3F:
            record = self._record()
            if record <= 0x07:
                prefix = f"{self._name(self.text())}:" if record & 1 else ""
                name = prefix + self._name(self.text() if record <= 0x05 else self._known())
            elif record <= 0x0B:
                name = f"xmlns:{self._name(self.text())}" if record & 1 else "xmlns"
                self._write(f' {name}="{_quoted(self.text() if record <= 0x09 else self._known())}"')
                continue
            elif record <= 0x25:
                name = f"{_LETTERS[record - 0x0C]}:{self._name(self._known())}"
            else:
                name = f"{_LETTERS[record - 0x26]}:{self._name(self.text())}"
            self._write(f' {name}="{_quoted(self._value(self._record()))}"')

    def _content(self, record: int) -> None:
        """A text of an element, and its end if the record says so."""
        if record in (_LIST | 1, _END_OF_LIST | 1):
            raise self.fault(f"must have no record {record:#04x}")
        self._write(_escaped(self._value(record & 0xFE)))
        if record & 1:
            self._close()

    def _close(self) -> None:
        if not self._open:
            raise self.fault("must have no end without an element")
        self._write(f"</{self._open.pop()}>")

    def _array(self) -> None:
        """[MC-NBFX] 2.3.3: one element for each value."""
        before = len(self._out)
        self._element(self._record())
        opening = "".join(self._out[before:])
        del self._out[before:]
        name = self._open.pop()
        if self._byte() != _END:
            raise self.fault("must end the element of an array")
        record = self._byte()
        if record not in _IN_ARRAYS:
            raise self.fault(f"must have no array of records {record:#04x}")
        count = self.number()
        self._records += count
        check_values(self._records)
        self._size -= len(opening)
        for _ in range(count):
            self._write(f"{opening}{_escaped(self._value(record & 0xFE))}</{name}>")

    def _value(self, record: int) -> str:
        if record == _LIST:
            texts = []
            while (record := self._record()) != _END_OF_LIST:
                if record == _LIST:
                    raise self.fault("must have no list inside a list")
                texts.append(self._value(record))
                self._counted(len(texts[-1]))
            return " ".join(texts)
        reader = _TEXTS.get(record)
        if reader is None:
            raise self.fault(f"must have a text here, not record {record:#04x}")
        return reader(self)

    # Parts

    def _write(self, text: str) -> None:
        self._counted(len(text))
        self._out.append(text)

    def _counted(self, size: int) -> None:
        self._size += size
        if self._size > MOST_BYTES:
            raise self.fault(f"must have at most {MOST_BYTES:,} characters")

    def _name(self, text: str) -> str:
        if not _NAME.fullmatch(text):
            raise self.fault(f"must have names, not {text[:40]!r}")
        return text

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise self.fault(f"must have {size} bytes more, has {len(self._data) - self.at}")
        self.at += size
        return self._data[self.at - size : self.at]

    def _byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        """[MC-NBFX] 2.1.2, of at most 31 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or value > 0x7FFF_FFFF:
            raise self.fault("must have numbers of 31 bits")
        return value

    def unpack(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def real(self, form: str) -> float:
        return float(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def text(self) -> str:
        return self.decoded(self.number(), "utf-8")

    def decoded(self, size: int, encoding: str) -> str:
        try:
            return self.take(size).decode(encoding)
        except UnicodeDecodeError:
            raise self.fault("must have text in UTF-8 or UTF-16") from None

    def _known(self) -> str:
        """[MC-NBFSE] 2.2: even numbers are known to all, odd ones to the session."""
        number = self.number()
        strings = self._table if number & 1 else STRINGS
        if number >> 1 >= len(strings):
            raise self.fault(f"has no string {number}")
        return strings[number >> 1]

    def qualified(self) -> str:
        letter = self._byte()
        if letter >= len(_LETTERS):
            raise self.fault("must have prefixes of one letter")
        return f"{_LETTERS[letter]}:{self._known()}"

    def checked(self, text: str | None) -> str:
        if text is None:
            raise self.fault("must have numbers and moments that exist")
        return text

    def truth(self) -> str:
        return self.checked({0: "false", 1: "true"}.get(self._byte()))

    known = _known


def _escaped(text: str) -> str:
    return _ESCAPES.sub(_reference, text)


def _quoted(text: str) -> str:
    return _ESCAPES_IN_QUOTES.sub(_reference, text)


def _reference(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0]) or f"&#{ord(match[0])};"


def _texts(form: str, encoding: str) -> Callable[[_Reader], str]:
    return lambda reader: reader.decoded(reader.unpack(form), encoding)


def _bytes(form: str) -> Callable[[_Reader], str]:
    return lambda reader: b64encode(reader.take(reader.unpack(form))).decode()


# [MC-NBFX] 2.2.3: texts by the number of their record.
_TEXTS: Mapping[int, Callable[[_Reader], str]] = {
    0x80: lambda _: "0",
    0x82: lambda _: "1",
    0x84: lambda _: "false",
    0x86: lambda _: "true",
    0x88: lambda reader: str(reader.unpack("<b")),
    0x8A: lambda reader: str(reader.unpack("<h")),
    0x8C: lambda reader: str(reader.unpack("<i")),
    0x8E: lambda reader: str(reader.unpack("<q")),
    0x90: lambda reader: xml_number(single(reader.real("<f")), 9),
    0x92: lambda reader: xml_number(reader.real("<d")),
    0x94: lambda reader: reader.checked(decimal(reader.take(16))),
    0x96: lambda reader: reader.checked(tagged_moment(reader.unpack("<Q"), "+00:00")),
    0x98: _texts("<B", "utf-8"),
    0x9A: _texts("<H", "utf-8"),
    0x9C: _texts("<I", "utf-8"),
    0x9E: _bytes("<B"),
    0xA0: _bytes("<H"),
    0xA2: _bytes("<I"),
    0xA8: lambda _: "",
    0xAA: lambda reader: reader.known(),
    0xAC: lambda reader: f"urn:uuid:{guid(reader.take(16))}",
    0xAE: lambda reader: xml_duration(reader.unpack("<q")),
    0xB0: lambda reader: guid(reader.take(16)),
    0xB2: lambda reader: str(reader.unpack("<Q")),
    0xB4: _Reader.truth,
    0xB6: _texts("<B", "utf-16-le"),
    0xB8: _texts("<H", "utf-16-le"),
    0xBA: _texts("<I", "utf-16-le"),
    0xBC: _Reader.qualified,
}
_IN_ARRAYS = frozenset({0xB5, 0x8B, 0x8D, 0x8F, 0x91, 0x93, 0x95, 0x97, 0xAF, 0xB1})
