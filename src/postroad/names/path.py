r"""Path names, [MS-MQMQ] 2.1.1, and the tail `\private$\orders;sub` that they share with direct names.

The queue manager decides which queue a path means, and whether it exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from postroad.errors import IllegalPathName
from postroad.names.grammar import COMPUTER_SUFFIXES, MsmqVersion, Scanner

COMPUTER_MAX = 256
QUEUE_NAME_MAX = 124
SUBQUEUE_MAX = 32
LOCAL_COMPUTER = "."

# As printed, the Computer alphabet ends at 7E and the others at 7F. A backslash ends the computer's name.
COMPUTER_ALPHABET = re.compile(r"[\x21-\x5B\x5D-\x7E]*")
_QUEUE_NAME_V1 = re.compile(r"[\x21-\x3A\x3C-\x5B\x5D-\x7F]*")
_PRINTED_QUEUE_NAME = re.compile(r"[\x21\x23-\x2A\x2D-\x3A\x3C-\x5B\x5D-\x7F]*")
# Windows takes any character but \ ; + , " and ends of lines, whatever 2.1.1 prints. We also refuse other control
# characters, except 7F, which 2.1.1 has, and halves of surrogate pairs, which no text can hold.
_QUEUE_NAME = re.compile(r'[^\x00-\x1F"+,;\\\x80-\x9F\uD800-\uDFFF]*')
_OUTSIDE_PRINTED = re.compile(r"[^\x21-\x7F]")


class QueueKind(Enum):
    """The three forms of a path. The value is the printed keyword."""

    PUBLIC = ""
    PRIVATE = "private$\\"
    SYSTEM = "system$;"


KEYWORDS = frozenset({"private$", "system$"})


@dataclass(frozen=True, slots=True)
class QueueTail:
    """The part of a name after the computer. Comparisons ignore case: two names are equal if Unicode's mapping to lower
    case makes the same characters of them, without regard to a language and without normalization.

    `journal` means the journal of the queue. The constructor checks nothing: use a parser.
    """

    kind: QueueKind = field(compare=False)
    name: str = field(compare=False)
    subqueue: str | None = field(default=None, compare=False)
    journal: bool = field(default=False, compare=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", str(self).lower())

    def __str__(self) -> str:
        subqueue = "" if self.subqueue is None else f";{self.subqueue}"
        return f"\\{self.kind.value}{self.name}{subqueue}{';JOURNAL' if self.journal else ''}"


def outside_printed(name: str) -> int | None:
    """Where a path or format name first leaves the alphabet that [MS-MQMQ] 2.1.1 prints. None if it does not."""
    found = _OUTSIDE_PRINTED.search(name)
    return None if found is None else found.start()


def scan_tail(scanner: Scanner, version: MsmqVersion, separators: str = "\\", strict: bool = False) -> QueueTail:
    """Reads the text after the computer and its separator, to the end."""
    kind = _scan_kind(scanner, separators)
    alphabet = _PRINTED_QUEUE_NAME if strict else _QUEUE_NAME
    name = scanner.word("a queue name", _QUEUE_NAME_V1 if version < MsmqVersion.V2 else alphabet, QUEUE_NAME_MAX, ";")
    subqueue: str | None = None
    journal = False
    while not journal and scanner.accept(";"):
        start = scanner.position
        word = scanner.word("a subqueue name", alphabet, SUBQUEUE_MAX, ";")
        if word.lower() == "journal":
            # A subqueue called "journal" would look like the journal of the queue, [MS-MQMQ] 2.1.2.
            journal = True
        elif word.lower() in COMPUTER_SUFFIXES:
            scanner.fail(f"dead letters belong to the computer, not to a queue: write system$;{word}", start)
        elif version < MsmqVersion.V4:
            scanner.fail("subqueues need MSMQ 4.0 or later", start)
        elif subqueue is not None:
            scanner.fail("a subqueue cannot have subqueues", start)
        else:
            subqueue = word
    scanner.expect_end("nothing can follow ;JOURNAL")
    return QueueTail(kind, name, subqueue, journal)


def _scan_kind(scanner: Scanner, separators: str) -> QueueKind:
    start = scanner.position
    if scanner.accept("private$"):
        if scanner.accept_any(separators):
            return QueueKind.PRIVATE
        if scanner.at_end or scanner.next_character == ";":
            scanner.fail(r"private$ must be followed by a backslash and a queue, as in private$\orders")
    elif scanner.accept("private\\"):  # a queue name has no backslash, so the dollar sign is missing
        scanner.fail(f"the dollar sign is missing: write {_with_dollar(scanner, start)}", start)
    elif scanner.accept("system$"):
        if scanner.accept(";"):
            return QueueKind.SYSTEM
        if scanner.at_end or scanner.next_character in separators:
            scanner.fail("system$ must be followed by a semicolon and a system queue, as in system$;deadletter")
    scanner.position = start  # a public queue may have the name private$x
    return QueueKind.PUBLIC


def _with_dollar(scanner: Scanner, start: int) -> str:
    r"""The name with the missing dollar sign, for a text that has `private\` at `start`."""
    end = start + len("private")
    return f"{scanner.text[:end]}${scanner.text[end:]}"


@dataclass(frozen=True, slots=True)
class PathName:
    r"""Where a queue is: `alpha\orders`, `alpha\private$\orders`, `alpha\system$;deadletter`.

    The computer `.` is the local one. Comparisons ignore case. The constructor checks nothing: use `parse`, or parts
    that a parser made.
    """

    computer: str = field(compare=False)
    tail: QueueTail = field(compare=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.computer.lower() + self.tail.key)

    @classmethod
    def parse(cls, text: str, version: MsmqVersion = MsmqVersion.V6, strict: bool = False) -> PathName:
        r"""Reads the three forms, and for the local computer also `private$\orders`, `system$;journal` and `;journal`.

        `strict` takes only the characters that 2.1.1 prints for names of queues: visible ASCII.

        Raises IllegalPathName for any other text, including `private\orders`: a computer may be called private, but
        here the dollar sign was probably forgotten. Use `DIRECT=OS:private\orders` for a queue of such a computer.
        """
        scanner = Scanner(text, IllegalPathName)
        if "\\" not in text:
            return cls(LOCAL_COMPUTER, _scan_own_queue(scanner))
        if text[: len(QueueKind.PRIVATE.value)].lower() == QueueKind.PRIVATE.value:
            return cls(LOCAL_COMPUTER, scan_tail(scanner, version, strict=strict))
        if text[: len("private\\")].lower() == "private\\":
            scanner.fail(f"the dollar sign is missing: write {_with_dollar(scanner, 0)}")
        computer = scan_computer(scanner)
        scanner.accept("\\")
        return cls(computer, scan_tail(scanner, version, strict=strict))

    @property
    def is_local(self) -> bool:
        """True if the computer is `.` or absent. False if the path has the local computer's name."""
        return self.computer == LOCAL_COMPUTER

    def on(self, computer: str) -> PathName:
        """The same path, with `computer` in place of `.`."""
        return PathName(computer, self.tail) if self.is_local else self

    def __str__(self) -> str:
        return f"{self.computer}{self.tail}"


def public_path(text: str) -> str:
    r"""The path of a public queue from its name alone: `orders` is `.\orders`. A path stays as it is.

    Raises IllegalPathName for the path of any other kind of queue.
    """
    path = text if "\\" in text else f"{LOCAL_COMPUTER}\\{text}"
    if PathName.parse(path).tail.kind is not QueueKind.PUBLIC:
        raise IllegalPathName(text, 0, "this is no name of a public queue")
    return path


def scan_computer(scanner: Scanner, alphabet: re.Pattern[str] = COMPUTER_ALPHABET) -> str:
    """Reads a computer's name, up to the backslash that must follow it."""
    start = scanner.position
    computer = scanner.word("a computer name", alphabet, COMPUTER_MAX, "\\")
    if computer.lower() in KEYWORDS:
        scanner.fail(f"the computer is missing before {computer}", start)
    if scanner.at_end:
        scanner.fail(rf"the computer must be followed by a backslash and a queue, as in {computer}\orders")
    return computer


def _scan_own_queue(scanner: Scanner) -> QueueTail:
    if not (scanner.accept(";") or scanner.accept("system$;")):
        if "/" in scanner.text:
            scanner.fail(r"a path must have backslashes, as in private$\orders", scanner.text.index("/"))
        scanner.fail(r"a path must be a computer, a backslash and a queue, as in .\orders or .\private$\orders")
    name = scanner.text[scanner.position :]
    if name.lower() not in COMPUTER_SUFFIXES:
        scanner.fail("a queue manager's own queue must be ;journal, ;deadletter or ;deadxact")
    return QueueTail(QueueKind.SYSTEM, name)
