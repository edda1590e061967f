"""Kinds of values. A kind checks a value of TOML, JSON or Python, reads it from text, and has a JSON schema.

One object does all three, so the check, the reader and the documentation cannot differ. Nothing here knows files.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from difflib import get_close_matches
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from postroad.errors import IllegalName, InvalidArgument, PostroadError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

UINT16_MAX = 0xFFFF
UINT32_MAX = 0xFFFFFFFF
PORT_MAX = 65535
MAX_LOOKUP_ID = (1 << 63) - 1
SHOWN_CHARACTERS = 60
LONGEST_GUESS = 200  # of a word to compare with the known ones, which costs time and memory for each character
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}
_MANAGER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_NUMERIC = re.compile(r"[0-9.]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_DELETE = re.compile(r"[\x00-\x1f]")
_USER_OF_URL = re.compile(r"//[^/]*@")  # may contain a password


class FieldFault(ValueError):
    """A value that does not fit. `key` says where it is, relative to the value that was checked."""

    def __init__(self, fault: str, key: str = "") -> None:
        self.fault = fault
        self.key = key
        super().__init__(f"{key}: {fault}" if key else fault)

    def inside(self, key: str) -> FieldFault:
        """The same fault, relative to the table or list that holds the value under `key`."""
        return FieldFault(self.fault, join_keys(key, self.key))


def join_keys(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer and inner and not inner.startswith("[") else f"{outer}{inner}"


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """A kind of value. `what` completes the sentence "must be ...". `read` turns text into the value that `check`
    takes.

    Both raise FieldFault, or ValueError or TypeError where that sentence says enough.
    """

    what: str
    schema: Mapping[str, object]
    check: Callable[[Any], T]
    read: Callable[[str], object] = str

    def __call__(self, value: object) -> T:
        try:
            return self.check(value)
        except FieldFault:
            raise
        except (ValueError, TypeError):
            raise FieldFault(f"must be {self.what}, got {shown(value)}") from None

    def from_text(self, text: str) -> T:
        """Reads the value of a command's option, a query parameter or a Spark option."""
        try:
            value = self.read(text)
        except ValueError:
            raise FieldFault(f"must be {self.what}, got {quoted(text)}") from None
        return self(value)


def checked(kind: Kind[T], value: object, name: str, error: type[PostroadError] = InvalidArgument) -> T:
    """The value, converted to its kind. A fault is raised as `error`, with the name before it."""
    try:
        return kind(value)
    except FieldFault as fault:
        raise error(str(fault.inside(name))) from None


def read_text(kind: Kind[T], text: str, name: str, error: type[PostroadError] = InvalidArgument) -> T:
    """The value of the text of a query parameter or an option."""
    try:
        return kind.from_text(text)
    except FieldFault as fault:
        raise error(str(fault.inside(name))) from None


def shown(value: object) -> str:
    """A value in the form for error texts."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {quoted(value)}"
        case int() | float():
            return f"the number {_cut(repr(value))}"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case date() | time():
            return "a date or time"
    return f"a value of type {type(value).__name__}"


def quoted(text: str) -> str:
    return _cut(repr(str(text)))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def listed(words: Iterable[str]) -> str:
    """A list such as `a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?` if a known word is similar. Otherwise, the known words."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6) if len(word) <= LONGEST_GUESS else ()
    if close:
        return f"; did you mean {by_lower[close[0]]}?"
    return f"; known are {', '.join(by_lower.values())}" if by_lower else "; none is known"


# Text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def text(longest: int) -> Kind[str]:
    """Text of up to `longest` characters."""

    def check(value: Any) -> str:
        if len(_text(value)) > longest:
            raise FieldFault(f"must have at most {longest} characters, got {len(value)}")
        return str(value)

    return Kind("text", {"type": "string", "maxLength": longest}, check)


def line(longest: int, *, empty: bool = False, secret: bool = False, delete: bool = False) -> Kind[str]:
    """Text on one line, without control characters, except 7F with `delete`. Errors do not show a secret."""
    limited = text(longest)

    def check(value: Any) -> str:
        if secret and not isinstance(value, str):
            raise FieldFault("must be text, got a value of another type")
        found = limited.check(value)
        if not found and not empty:
            raise FieldFault("must not be empty")
        if (_CONTROL_BUT_DELETE if delete else _CONTROL).search(found):
            raise FieldFault(f"must not contain control characters{'' if secret else f', got {quoted(found)}'}")
        return found

    return Kind(limited.what, limited.schema, check)


def parsed(what: str, parse: Callable[[str], T], longest: int = 1024, *, secret: bool = False) -> Kind[T]:
    """A name that `parse` reads. If the name is illegal, its error says what is wrong."""
    plain = line(longest, secret=secret, delete=True)  # names of queues may contain 7F, [MS-MQMQ] 2.1.1

    def check(value: Any) -> T:
        try:
            return parse(plain.check(value))
        except IllegalName as fault:
            raise FieldFault(str(fault)) from None

    return Kind(what, plain.schema, check)


def choice(words: type[E] | Mapping[str, E]) -> Kind[E]:
    """One of a few words, each for a member of an enum. Case does not matter."""
    members = words if isinstance(words, Mapping) else {str(member.value): member for member in words}
    what = listed(members)

    def check(value: Any) -> E:
        try:
            return members[_text(value).lower()]
        except KeyError:
            raise FieldFault(f"must be {what}, got {quoted(value)}") from None

    return Kind(what, {"type": "string", "enum": list(members)}, check)


def _guid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    # imported here, because it imports all names of queues, and a small command needs none
    from postroad.names import parse_guid

    try:
        return parse_guid(_text(value).removeprefix("{").removesuffix("}"))
    except IllegalName as fault:
        raise FieldFault(str(fault)) from None


def _base64(value: Any) -> bytes:
    return b64decode(_text(value).encode("ascii"), validate=True)


def _manager_name(name: str) -> str:
    if not _MANAGER_NAME.fullmatch(name):
        raise FieldFault(
            "must be a computer name of letters, digits, '-', '_' and '.', and start with a letter, digit or '_', "
            f"got {quoted(name)}"
        )
    if name.lower() == "localhost":
        raise FieldFault("must not be localhost, which means every computer; choose another name")
    return name


def _host(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name) or _NUMERIC.fullmatch(name):
            raise FieldFault(f"must be an IP address or a host name, got {quoted(name)}") from None
        return name


def _url(string: str) -> str:
    try:
        parts = urlsplit(string)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        shown_url = quoted(_USER_OF_URL.sub("//...@", string))
        raise FieldFault(f"must be an http or https URL, as in http://alpha/msmq/private$/orders, got {shown_url}")
    return string


TEXT = Kind("text", {"type": "string"}, _text)
BASE64 = Kind("base64", {"type": "string", "contentEncoding": "base64"}, _base64)
GUID = Kind("a GUID as text", {"type": "string", "format": "uuid"}, _guid)
MANAGER_NAME = parsed("text", _manager_name, 256)  # the part before the backslash in a path
HOST = parsed("text", _host, 253)
URL = parsed("text", _url, 2048)
PATH = parsed("text", Path, 4096)  # in a file, relative to that file
FILE = parsed("text", Path, 4096)  # the same, but the file must exist


# Numbers and switches


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_switch(text: str) -> bool:
    try:
        return _SWITCHES[text.lower()]
    except KeyError:
        raise ValueError from None


def _read_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError
    return int(text)


def whole(lowest: int, highest: int) -> Kind[int]:
    """A whole number in this range. true and 1.0 are refused."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if not lowest <= value <= highest:
            raise _out_of_range(lowest, highest, value)
        return value

    schema = {"type": "integer", "minimum": lowest, "maximum": highest}
    return Kind("a whole number", schema, check, _read_whole)


def number(lowest: float, highest: float) -> Kind[float]:
    """A number in this range, with or without a fraction."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        if not lowest <= value <= highest:  # NaN is in no range
            raise _out_of_range(lowest, highest, value)
        return float(value)

    return Kind("a number", {"type": "number", "minimum": lowest, "maximum": highest}, check, float)


def _out_of_range(lowest: float, highest: float, value: float) -> FieldFault:
    return FieldFault(f"must be between {lowest} and {highest}, got {_cut(repr(value))}")


def _port_or_off(value: Any) -> int | None:
    return None if value is False else _PORT.check(value)


SWITCH = Kind("true or false", {"type": "boolean"}, _switch, _read_switch)
UINT32 = whole(0, UINT32_MAX)
LOOKUP_ID = whole(0, MAX_LOOKUP_ID)
_PORT = whole(0, PORT_MAX)
# A port to listen on: 0 is any free port, and None is off.
LISTEN_PORT = Kind(
    "a port number, 0 for any free port, or false for off", {"type": ["integer", "boolean"]}, _port_or_off
)


# Kinds made of others


def nullable(kind: Kind[T]) -> Kind[T | None]:
    """The same kind, but null is allowed."""
    schema = dict(kind.schema)
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    else:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return Kind(f"{kind.what}, or null", schema, lambda value: None if value is None else kind.check(value), kind.read)


def one_or_several(kind: Kind[T], most: int) -> Kind[tuple[T, ...]]:
    """A value, or a list of them, each once."""
    several = items(kind, least=1, most=most, distinct=True)

    def check(value: Any) -> tuple[T, ...]:
        return several(value) if isinstance(value, list | tuple) else (kind(value),)

    return Kind(f"{kind.what} or a list", {"oneOf": [kind.schema, several.schema]}, check)


def items(
    kind: Kind[T], *, least: int = 0, most: int = 1_000_000, distinct: bool = False, first: int = 1
) -> Kind[tuple[T, ...]]:
    """A list. Errors count its items from `first`, which is 1 for files, which people read, and 0 for JSON."""

    def check(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError
        if not least <= len(value) <= most:
            wanted = least if least == most else f"at least {least}" if len(value) < least else f"at most {most}"
            raise FieldFault(f"must have {wanted} item{'' if str(wanted).endswith(' 1') else 's'}, got {len(value)}")
        found: list[T] = []
        for index, each in enumerate(value, first):
            try:
                found.append(kind(each))
            except FieldFault as fault:
                raise fault.inside(f"[{index}]") from None
        if distinct and len(set(found)) != len(found):
            twice = next(each for index, each in enumerate(found) if each in found[:index])
            raise FieldFault(f"must not list an item twice, got {twice} twice")
        return tuple(found)

    schema = {"type": "array", "items": dict(kind.schema), "minItems": least, "maxItems": most}
    return Kind("a list", schema | ({"uniqueItems": True} if distinct else {}), check)


# JSON objects, read by a table of their properties


@dataclass(frozen=True, slots=True)
class Property:
    """A key of a JSON object, and the field or argument that takes its value."""

    name: str
    field: str
    kind: Kind[Any]
    description: str
    required: bool = False


Properties = Mapping[str, Property]


def properties(*listed: Property) -> Properties:
    return {each.name: each for each in listed}


def read_object(data: Mapping[str, object], table: Properties) -> dict[str, Any]:
    """The values of a JSON object by field. Raises InvalidArgument for the first fault."""
    values = read_values(data, table)
    for name, each in table.items():
        if each.required and name not in data:
            raise InvalidArgument(f"{name}: is missing")
    return values


def read_values(
    data: Mapping[str, object], table: Properties, error: type[PostroadError] = InvalidArgument, place: str = ""
) -> dict[str, Any]:
    """The values of an object in which nothing is required. A fault is raised as `error`, with its key after
    `place`."""
    values: dict[str, Any] = {}
    for name, value in data.items():
        wanted = table.get(name)
        if wanted is None:
            raise error(f"{place}{name}: there is no such property{suggestion(name, table)}")
        found = checked(wanted.kind, value, f"{place}{name}", error)
        if wanted.field in values:
            raise error(f"{place}{name}: must be given once, got it in two forms")
        values[wanted.field] = found
    return values
