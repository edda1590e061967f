"""Strict reading of TOML files into frozen dataclasses: the dataclass is the schema, and every fault names its place.

Which settings there are is the business of those who declare them (config.py, directory/file.py).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, cast
from uuid import UUID

from postroad.errors import ConfigurationError, IllegalName
from postroad.names import parse_guid

T = TypeVar("T")
D = TypeVar("D")
EnumT = TypeVar("EnumT", bound=Enum)

MAX_FILE_BYTES = 16 << 20  # more is no configuration, and parsing it would take the machine's memory
_READER, _KEY = "reader", "key"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MANAGER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_NUMERIC = re.compile(r"[0-9.]+")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Place:
    """A value's place: the file, and the dotted key within it. Items of a list are counted from 1."""

    file: str
    key: str = ""

    def inside(self, key: str) -> Place:
        shown = key if _BARE_KEY.fullmatch(key) else f'"{key}"'
        return Place(self.file, f"{self.key}.{shown}" if self.key else shown)

    def item(self, number: int) -> Place:
        return Place(self.file, f"{self.key}[{number}]")

    @property
    def directory(self) -> Path:
        """What relative paths in the file are relative to."""
        return Path(self.file).parent

    def fail(self, fault: str) -> NoReturn:
        raise ConfigurationError(self.file, self.key, fault)


Reader = Callable[[object, Place], T]  # checks one value and gives it back as the setting has it


def setting(reader: Reader[T], default: D, *, key: str | None = None, secret: bool = False) -> T | D:
    """A field of a dataclass that is read from a file; `key` is its name there, where it differs from the field's.

    A secret is left out when the dataclass is printed.
    """
    return cast(T | D, field(default=default, metadata={_READER: reader, _KEY: key}, repr=not secret))


def required(reader: Reader[T], *, key: str | None = None, secret: bool = False) -> T:
    """The same for a setting that has no default."""
    return cast(T, field(metadata={_READER: reader, _KEY: key}, repr=not secret))


def load(file: Path, schema: type[T], data: bytes | None = None) -> T:
    """Reads the whole file as `schema`; raises ConfigurationError on the first fault.

    `data` is what the file holds, where the caller has read it by itself.
    """
    return Table(schema)(_parse(file, read_file(file) if data is None else data), Place(str(file)))


def read_file(file: Path) -> bytes:
    """What the file holds; ConfigurationError if it cannot be read, or is far too large to be a configuration."""
    place = Place(str(file))
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        place.fail(f"cannot be read: {fault.strerror}")
    if len(data) > MAX_FILE_BYTES:
        place.fail(f"is larger than {MAX_FILE_BYTES >> 20} MiB, which no configuration is")
    return data


def _parse(file: Path, data: bytes) -> dict[str, Any]:
    place = Place(str(file))
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # Windows editors put a mark before the text
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ConfigurationError(str(file), f"line {line}", "is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as fault:
        raise _syntax_error(str(file), data, str(fault)) from None
    except RecursionError:
        place.fail("is nested too deeply")


def _syntax_error(file: str, data: bytes, fault: str) -> ConfigurationError:
    match = _TOML_PLACE.search(fault)
    if match is None:
        return ConfigurationError(file, "", fault)
    words = fault[: match.start()]
    if match[1] is None:
        return ConfigurationError(file, f"line {len(data.splitlines()) or 1}", f"{words}, at the end of the file")
    return ConfigurationError(file, f"line {match[1]}, column {match[2]}", words)


def kind_of(value: object) -> str:
    """A TOML value's type in words."""
    match value:
        case bool():
            return "true or false"
        case str():
            return "text"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
    return "a date or time"


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?` where a known word is close, else what is known."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {by_lower[close[0]]}?"
    return f"; known are {', '.join(by_lower.values())}" if by_lower else "; none is known"


# Readers of single values


def _expect(value: object, place: Place, kind: type[T], what: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        place.fail(f"is {what}, not {kind_of(value)} ({_shown(value)})")
    return value


def _shown(value: object) -> str:
    shown = repr(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def switch(value: object, place: Place) -> bool:
    return _expect(value, place, bool, "true or false")


def text(longest: int, *, empty: bool = False) -> Reader[str]:
    """Text of up to `longest` characters, none of them a control character."""

    def read(value: object, place: Place) -> str:
        string = _expect(value, place, str, "text")
        if not string and not empty:
            place.fail("is empty")
        if len(string) > longest:
            place.fail(f"has at most {longest} characters, not {len(string)}")
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in string):
            place.fail(f"holds a control character ({_shown(string)})")
        return string

    return read


def secret_text(longest: int) -> Reader[str]:
    """The same for text that no error may show."""

    def read(value: object, place: Place) -> str:
        if not isinstance(value, str) or not value:
            place.fail(f"must be text, got {kind_of(value) if value != '' else 'none'}")
        if len(value) > longest:
            place.fail(f"has at most {longest} characters, not {len(value)}")
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
            place.fail("holds a control character")
        return value

    return read


def whole(lowest: int, highest: int) -> Reader[int]:
    def read(value: object, place: Place) -> int:
        return _in_range(_expect(value, place, int, "a whole number"), lowest, highest, place)

    return read


def number(lowest: float, highest: float) -> Reader[float]:
    """A number with or without a fraction."""

    def read(value: object, place: Place) -> float:
        if isinstance(value, float):
            return _in_range(value, lowest, highest, place)
        return _in_range(_expect(value, place, int, "a number"), lowest, highest, place)

    return read


_Number = TypeVar("_Number", int, float)


def _in_range(value: _Number, lowest: float, highest: float, place: Place) -> _Number:
    if not lowest <= value <= highest:  # not a number is in no range
        place.fail(f"{value} is out of range: {lowest} to {highest}")
    return value


def choice(kind: type[EnumT]) -> Reader[EnumT]:
    """One of an enum's values."""

    def read(value: object, place: Place) -> EnumT:
        string = _expect(value, place, str, "text")
        members = {str(member.value): member for member in kind}
        if string.lower() not in members:
            place.fail(f"{string!r} is not one of {', '.join(members)}")
        return members[string.lower()]

    return read


def guid(value: object, place: Place) -> UUID:
    string = _expect(value, place, str, "a GUID as text")
    try:
        return parse_guid(string.removeprefix("{").removesuffix("}"))
    except IllegalName as fault:
        place.fail(str(fault))


def path(value: object, place: Place) -> Path:
    """A path; a relative one is relative to the file that it stands in."""
    return place.directory / text(4096)(value, place)


def manager_name(value: object, place: Place) -> str:
    """A computer name: what stands before the backslash in a path, and can be a directory's name too."""
    name = text(256)(value, place)
    if not _MANAGER_NAME.fullmatch(name):
        place.fail(f"{name!r} is no computer name: letters, digits, '-', '_' and '.', not '-' or '.' first")
    if name.lower() == "localhost":
        place.fail("localhost is the name of every computer; give this one a name of its own")
    return name


def host_name(value: object, place: Place) -> str:
    """An IP address, or a host's name."""
    name = text(253)(value, place)
    try:
        return str(ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name) or _NUMERIC.fullmatch(name):
            place.fail(f"{name!r} is neither an IP address nor a host name")
        return name


# Readers of lists and tables


def items(reader: Reader[T], *, least: int = 0, most: int = 1_000_000) -> Reader[tuple[T, ...]]:
    def read(value: object, place: Place) -> tuple[T, ...]:
        found = _expect(value, place, list, "a list")
        if not least <= len(found) <= most:
            wanted = str(least) if least == most else f"at least {least}" if len(found) < least else f"at most {most}"
            place.fail(f"has {wanted} item{'' if wanted.endswith(' 1') or wanted == '1' else 's'}, not {len(found)}")
        return tuple(reader(each, place.item(number)) for number, each in enumerate(found, 1))

    return read


class Table(Generic[T]):
    """Reads a table as a dataclass whose fields are settings; a key that is no field is refused."""

    def __init__(self, schema: type[T]) -> None:
        self._schema = schema
        self._readers: dict[str, tuple[str, Reader[Any], bool]] = {
            each.metadata.get(_KEY) or each.name: (each.name, each.metadata[_READER], each.default is MISSING)
            for each in fields(schema)  # type: ignore[arg-type]  # every schema is a dataclass
            if _READER in each.metadata
        }

    def __call__(self, value: object, place: Place, **given: object) -> T:
        table: Mapping[str, object] = _expect(value, place, dict, "a table")
        for key in table:
            if key not in self._readers:
                place.inside(key).fail(f"there is no such setting{suggestion(key, self._readers)}")
        values: dict[str, object] = {}
        for key, (name, reader, required) in self._readers.items():
            inside = place.inside(key)
            if key in table:
                values[name] = reader(table[key], inside)
            elif required and isinstance(reader, Table):
                values[name] = reader({}, inside)  # so that the fault names what is missing in it
            elif required:
                inside.fail("is missing")
        return self._schema(**values, **given)


def tables_by_key(schema: type[T], key_reader: Reader[str], key_field: str) -> Reader[tuple[T, ...]]:
    """A table of tables, such as `[peers]`: its keys are values too, and go to the field `key_field`."""
    table = Table(schema)

    def read(value: object, place: Place) -> tuple[T, ...]:
        found: Mapping[str, object] = _expect(value, place, dict, "a table")
        return tuple(
            table(each, place.inside(key), **{key_field: key_reader(key, place.inside(key))})
            for key, each in found.items()
        )

    return read


def refuse_duplicates(
    found: Iterable[T], place: Place, key: str, identity: Callable[[T], Hashable] | None = None
) -> None:
    """No two entries of a list agree in `key`, or in what `identity` says; the case of text makes no difference."""
    seen: dict[Hashable, int] = {}
    for index, each in enumerate(found, 1):
        value = identity(each) if identity is not None else getattr(each, key)
        first = seen.setdefault(value.lower() if isinstance(value, str) else value, index)
        if first != index:
            place.item(index).inside(key).fail(f"{getattr(each, key)} is that of {place.key}[{first}] already")
