"""Distinguished names and search filters of LDAP as text, RFC 4514 and RFC 4515: the one place that escapes names.

A name from outside goes into a DN or a filter only through `join` or `equals`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import lru_cache

from postroad.errors import DirectoryError

MAX_CHARACTERS = 4096  # Active Directory allows far fewer
_HEX = frozenset(string.hexdigits)
_ESCAPED = frozenset(',+"\\<>;=#')
_DELETED = "\nDEL:"  # [MS-ADTS] 3.1.1.5.5.1.1: the name of a deleted object is NAME, line feed, DEL:, GUID

Part = tuple[str, str]  # the type and the value of a relative name, unescaped


def split(dn: str) -> tuple[Part, ...]:
    """The parts of a name, the innermost first: `CN=msmq,CN=a\\,b` gives ("CN", "msmq"), ("CN", "a,b").

    Raises DirectoryError if it is not a DN. A part with several values stays one part, as in `CN=a+OU=b`.
    """
    if len(dn) > MAX_CHARACTERS:
        raise DirectoryError(f"a DN must have at most {MAX_CHARACTERS} characters, got {len(dn)}")
    if not dn:
        return ()
    return tuple(_part(text, dn) for text in _divide(dn))


def join(parts: Iterable[Part]) -> str:
    """The text of a DN with these parts, escaped."""
    return ",".join(f"{kind}={_escape(value)}" for kind, value in parts)


def child(kind: str, value: str, parent: str) -> str:
    """The DN of a child: `child("CN", "a,b", "DC=test")`."""
    return f"{kind}={_escape(value)},{parent}" if parent else f"{kind}={_escape(value)}"


@lru_cache(maxsize=65_536)
def normal(dn: str) -> str:
    """One spelling for all spellings of a DN: case, spaces after commas and ways to escape do not matter."""
    return join((kind.lower(), value.lower()) for kind, value in split(dn))


def parent(dn: str, levels: int = 1) -> str:
    """The DN of the object that contains this one, or that contains that."""
    return join(split(dn)[levels:])


def is_deleted(dn: str) -> bool:
    """Whether the name is that of a deleted object, which references keep."""
    return any(_DELETED in value for _, value in split(dn)[:2])


def _divide(dn: str) -> Iterable[str]:
    start = place = 0
    while place < len(dn):
        character = dn[place]
        if character == "\\":
            place += 1
        elif character == ",":
            yield dn[start:place]
            start = place + 1
        place += 1
    yield dn[start:]


def _part(text: str, dn: str) -> Part:
    kind, equals_sign, value = text.partition("=")
    kind = kind.strip()
    if not equals_sign or not kind:
        raise DirectoryError(f"a DN must be a list of NAME=VALUE, got {dn[:200]!r}")
    return kind, _unescape(value, dn)


def _unescape(text: str, dn: str) -> str:
    text = text.lstrip(" ")
    if "\\" not in text:
        return text.rstrip(" ")
    found = bytearray()
    kept = 0  # the length that trailing spaces cannot be stripped from
    place = 0
    while place < len(text):
        if text[place] != "\\":
            found += text[place].encode()
            place += 1
            continue
        pair = text[place + 1 : place + 3]
        if len(pair) == 2 and _HEX.issuperset(pair):
            found.append(int(pair, 16))
            place += 3
        elif pair:
            found += pair[0].encode()
            place += 2
        else:
            raise DirectoryError(f"a DN must not end with a backslash, got {dn[:200]!r}")
        kept = len(found)
    try:
        return (bytes(found[:kept]) + bytes(found[kept:]).rstrip(b" ")).decode()
    except UnicodeDecodeError:
        raise DirectoryError(f"a DN must be UTF-8, got {dn[:200]!r}") from None


def _escape(value: str) -> str:
    found = "".join(_escape_character(each) for each in value)
    if value.startswith(" "):
        found = "\\" + found
    if value.endswith(" ") and len(value) > 1:
        found = found[:-1] + "\\ "
    return found


def _escape_character(character: str) -> str:
    if character in _ESCAPED:
        return "\\" + character
    return f"\\{ord(character):02X}" if ord(character) < 32 else character


# Filters


def equals(attribute: str, value: str | bytes | int) -> str:
    """`attribute` is one of our own names; the value may be anything."""
    return f"({attribute}={_filter_value(value)})"


def at_least(attribute: str, value: int) -> str:
    return f"({attribute}>={value})"


def present(attribute: str) -> str:
    return f"({attribute}=*)"


def all_of(*filters: str) -> str:
    return f"(&{''.join(filters)})"


def any_of(*filters: str) -> str:
    return f"(|{''.join(filters)})"


def _filter_value(value: str | bytes | int) -> str:
    if isinstance(value, int):
        return str(value)
    data = value.encode() if isinstance(value, str) else value
    return "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() and isinstance(value, str) else f"\\{byte:02x}"
        for byte in data
    )
