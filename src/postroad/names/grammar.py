"""The basis of all names: the scanner for their texts, and the values that names consist of."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NoReturn
from uuid import UUID

from postroad.errors import IllegalName

# What all format names have in common, and the specification's enumerations for names.
#
# This has no grammar: each kind of name reads and prints itself in its own module.


class MsmqVersion(IntEnum):
    """The versions with different grammars, [MS-MQMQ] 2.1.1. Names are read as V6 unless a caller asks otherwise."""

    V1 = 1
    V2 = 2
    V3 = 3
    V4 = 4
    V5 = 5
    V6 = 6


class QueueFormatType(IntEnum):
    """[MS-MQMQ] 2.2.6"""

    UNKNOWN = 0
    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    MACHINE = 4
    CONNECTOR = 5
    DL = 6
    MULTICAST = 7
    SUBQUEUE = 8


class QueueSuffixType(IntEnum):
    """[MS-MQMQ] 2.2.11"""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


# The suffixes that name a computer's own queues, [MS-MQMQ] 2.1.2 and 2.1.6.
COMPUTER_SUFFIXES = {
    "journal": QueueSuffixType.JOURNAL,
    "deadletter": QueueSuffixType.DEADLETTER,
    "deadxact": QueueSuffixType.DEADXACT,
}
_READ_ONLY = frozenset(COMPUTER_SUFFIXES.values())


class FormatName:
    """A format name, [MS-MQMQ] 2.1.2 to 2.1.7. Each kind is a frozen class.

    `str()` gives text that parses to an equal value. Two names are equal if they have the same kind and name the same
    queue. Case does not count in comparisons, but a name keeps its case for people and for the wire.
    """

    __slots__ = ()

    @property
    def suffix(self) -> QueueSuffixType:
        """Which queue of the named object is meant, in the terms of QUEUE_FORMAT."""
        return QueueSuffixType.NONE

    @property
    def is_read_only(self) -> bool:
        """True for journals and dead-letter queues, which messages cannot be sent to."""
        return self.suffix in _READ_ONLY

    @property
    def is_send_only(self) -> bool:
        """True for URLs and multicast addresses, which nobody can read from."""
        return False


# Reads a name from left to right. All grammars of this package use it.
#
# The scanner knows its position and how to report a fault there, but no grammar.


_GUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_GUID_SHAPE = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_DIGITS = re.compile(r"[0-9]*")


class Scanner:
    """A position in a text, up to `stop`. Faults are raised as `error`, with the position in the whole text."""

    __slots__ = ("error", "position", "stop", "text")

    def __init__(self, text: str, error: type[IllegalName], start: int = 0, stop: int | None = None) -> None:
        self.text = text
        self.error = error
        self.position = start
        self.stop = len(text) if stop is None else stop

    @property
    def at_end(self) -> bool:
        return self.position >= self.stop

    @property
    def next_character(self) -> str:
        """The character under the cursor, or the empty string at the end."""
        return "" if self.at_end else self.text[self.position]

    def fail(self, fault: str, position: int | None = None) -> NoReturn:
        raise self.error(self.text, self.position if position is None else position, fault)

    def accept(self, literal: str) -> bool:
        """Skips `literal`, which must be lower case, if it comes next in upper or lower case."""
        end = self.position + len(literal)
        if end > self.stop or self.text[self.position : end].lower() != literal:
            return False
        self.position = end
        return True

    def accept_any(self, characters: str) -> bool:
        """Skips the next character if it is one of these."""
        if self.at_end or self.text[self.position] not in characters:
            return False
        self.position += 1
        return True

    def expect_end(self, fault: str) -> None:
        if not self.at_end:
            self.fail(fault)

    def word(self, what: str, alphabet: re.Pattern[str], longest: int, delimiters: str) -> str:
        """Takes the 1 to `longest` characters of `alphabet` before a delimiter or the end. They count as in UTF-16, on
        the wire: a character outside the basic plane is two."""
        start = self.position
        self.position = self._end_of(alphabet)
        if not self.at_end and self.text[self.position] not in delimiters:
            self.fail(f"{what} cannot contain {self.next_character!r}")
        if self.position == start:
            self.fail(f"{what} is missing")
        found = self.text[start : self.position]
        if len(found) > longest or (not found.isascii() and len(found.encode("utf-16-le")) > 2 * longest):
            self.fail(f"{what} must have at most {longest} characters", min(start + longest, self.position))
        return found

    def digits(self) -> str:
        """Takes all decimal digits that come next, if any."""
        start = self.position
        self.position = self._end_of(_DIGITS)
        return self.text[start : self.position]

    def guid(self) -> UUID:
        """Takes a GUID written 8-4-4-4-12, [MS-MQMQ] 2.1.3."""
        match = _GUID.match(self.text, self.position, self.stop)
        if match is None:
            self._fail_guid()
        self.position = match.end()
        return UUID(match[0])

    def _end_of(self, alphabet: re.Pattern[str]) -> int:
        match = alphabet.match(self.text, self.position, self.stop)
        return self.position if match is None else match.end()

    def _fail_guid(self) -> NoReturn:
        if self.next_character == "{":
            self.fail("a GUID must not have braces here")
        for shape in _GUID_SHAPE:
            character = self.next_character
            if character not in _HEX_DIGITS if shape == "x" else character != "-":
                break
            self.position += 1
        self.fail(f"a GUID must have the form {_GUID_SHAPE}, in hexadecimal digits")
