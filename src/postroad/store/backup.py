"""The format of a backup: one file with everything in a store, with checksums for each part and for the whole.

A file is one line of text and sections. A section has a kind, a size, a checksum and content. The last section has the
number of records and the SHA-256 of everything before it, so a reader detects a file that was cut off or changed.
Sections are read one after the other and never searched for, so packets of strangers cannot imitate them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

from postroad.errors import StorageError
from postroad.store.interface import Record, Snapshot

TITLE = b"Postroad backup "
VERSION = 1
_FIRST_LINE = TITLE + b"%d\n" % VERSION
_MAX_LINE = 64
_SECTION = Struct(">4sII")  # the kind, the size of the content and its checksum
_RECORD = Struct(">HQqqqqI")  # the numbers of a record and the size of its packet
_VALUE = Struct(">II")  # the sizes of a name and a value
MAX_SECTION = 64 << 20
SECTION_BYTES = 1 << 20


class Kind(Enum):
    """The kinds of sections, in the order they have in a file."""

    HEAD = b"HEAD"
    FILE = b"FILE"
    STATE = b"STAT"
    RECORDS = b"RECS"
    END = b"END."
    FAILED = b"FAIL"  # in place of END: why the backup is not complete


@dataclass(slots=True)
class Contents:
    """The content of a backup. `head` identifies its manager. `files` are small files of the data directory, by
    name."""

    head: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    state: dict[str, bytes] = field(default_factory=dict)
    records: int = 0
    damaged: int = 0
    checksum: int = 0  # of all records, in any order


def write_backup(
    snapshot: Snapshot,
    head: Mapping[str, object],
    files: Mapping[str, bytes],
    without: frozenset[str] = frozenset(),
) -> Iterator[bytes]:
    """Yields the file in pieces. Leaves out the state values `without`: what they say is in `files`. Raises
    StorageError if the store cannot be read."""
    digest = sha256()
    counted = 0

    def add(piece: bytes) -> bytes:
        digest.update(piece)
        return piece

    yield add(_FIRST_LINE + _section(Kind.HEAD, json.dumps(head).encode()))
    for name, value in files.items():
        yield add(_section(Kind.FILE, _value(name, value)))
    content = bytearray()
    for name, value in snapshot.state().items():
        if name in without:
            continue
        content += _value(name, value)
        if len(content) >= SECTION_BYTES:
            yield add(_section(Kind.STATE, bytes(content)))
            content.clear()
    yield add(_section(Kind.STATE, bytes(content)))
    for page in snapshot.pages():
        counted += len(page)
        parts = (part for record in page for part in (_numbers(record), record.packet))
        yield add(_section(Kind.RECORDS, b"".join(parts)))
    end = {"records": counted, "damaged": snapshot.damaged, "sha256": digest.hexdigest()}
    yield _section(Kind.END, json.dumps(end).encode())


def failure(sentence: str) -> bytes:
    """The last section of a backup that could not be completed."""
    return _section(Kind.FAILED, sentence.encode())


class BackupReader:
    """Reads a backup from beginning to end. `contents` is complete once the last record has been read.

    Raises StorageError for every fault, with what is wrong with the file.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.contents = Contents()
        self._stream = stream
        self._name = name
        self._digest = sha256()
        self._position = 0

    def check(self) -> Contents:
        """Reads the whole file."""
        for _ in self.pages():
            pass
        return self.contents

    def pages(self) -> Iterator[list[Record]]:
        """Yields the records, a page at a time. With the first page, `contents` has everything before the records."""
        line = self._stream.readline(_MAX_LINE)
        if line != _FIRST_LINE:
            if line.startswith(TITLE) and line.endswith(b"\n"):
                self._fail(f"must be a backup of version {VERSION}, got another version; use a newer Postroad")
            self._fail("must be a file that `postroad backup` wrote, got something else")
        self._digest.update(line)
        self._position = len(line)
        contents = self.contents
        contents.head = self._json(self._expect(Kind.HEAD))
        while True:
            digest = self._digest.hexdigest()
            kind, content = self._section()
            if kind is Kind.FILE:
                contents.files.update(self._values(content))
            elif kind is Kind.STATE:
                contents.state.update(self._values(content))
            elif kind is Kind.RECORDS:
                yield self._records(content)
            elif kind is Kind.END:
                end = self._json(content)
                break
            elif kind is Kind.FAILED:
                self._fail(f"is not complete: {content.decode()}")
            else:
                self._damaged()
        if end.get("sha256") != digest or end.get("records") != contents.records or self._stream.read(1):
            self._damaged()
        contents.damaged = int(end.get("damaged", 0))

    def _section(self) -> tuple[Kind, bytes]:
        head = self._read(_SECTION.size)
        word, size, checksum = _SECTION.unpack(head)
        if size > MAX_SECTION or word not in {each.value for each in Kind}:
            self._damaged()
        content = self._read(size)
        if crc32(content, crc32(word)) != checksum:
            self._damaged()
        self._position += len(head) + size
        return Kind(word), content

    def _expect(self, kind: Kind) -> bytes:
        found, content = self._section()
        if found is not kind:
            self._damaged()
        return content

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            self._fail("is cut off: the backup did not end, or the copy of it did not")
        self._digest.update(data)
        return data

    def _json(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self._damaged()
        return value

    def _values(self, content: bytes) -> dict[str, bytes]:
        found = {}
        at = 0
        while at < len(content):
            name_size, size = _VALUE.unpack_from(content, at)
            at += _VALUE.size
            name = content[at : at + name_size].decode()
            at += name_size
            found[name] = content[at : at + size]
            at += size
        return found

    def _records(self, content: bytes) -> list[Record]:
        found = []
        at = 0
        while at < len(content):
            *numbers, size = _RECORD.unpack_from(content, at)
            at += _RECORD.size
            queue, lookup_id, arrived_ms, expires_s, aborts, reason = numbers
            packet = content[at : at + size]
            at += size
            record = Record(queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason)
            self.contents.checksum += record_checksum(record)
            found.append(record)
        self.contents.records += len(found)
        return found

    def _damaged(self) -> NoReturn:
        self._fail(f"is damaged at byte {self._position}; use another copy of it")

    def _fail(self, fault: str) -> NoReturn:
        raise StorageError(f"{self._name}: {fault}")


def check_backup(file: Path, name: str | None = None) -> Contents:
    """Reads the whole file. Raises StorageError if it is not complete and sound, OSError if it cannot be read. Errors
    call the file `name`."""
    with file.open("rb") as stream:
        return BackupReader(stream, name or str(file)).check()


def record_checksum(record: Record) -> int:
    return crc32(record.packet, crc32(_numbers(record)))


def _numbers(record: Record) -> bytes:
    queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason = record
    return _RECORD.pack(queue, lookup_id, arrived_ms, expires_s, aborts, reason, len(packet))


def _value(name: str, value: bytes) -> bytes:
    encoded = name.encode()
    return _VALUE.pack(len(encoded), len(value)) + encoded + value


def _section(kind: Kind, content: bytes) -> bytes:
    return _SECTION.pack(kind.value, len(content), crc32(content, crc32(kind.value))) + content
