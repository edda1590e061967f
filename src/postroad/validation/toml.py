"""TOML files: reads them strictly into frozen dataclasses, with errors that name the file and the key.

The modules that declare the settings know what they mean (config.py, directory/file.py).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from postroad.errors import ConfigurationError
from postroad.validation.fields import KEY, KIND, shown_key, table
from postroad.validation.kinds import FILE, PATH, FieldFault, join_keys

T = TypeVar("T")

MAX_FILE_BYTES = 16 << 20  # a larger file is not a configuration, and parsing it would fill the machine's memory
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: the file, and the dotted key in it. Items of a list count from 1."""

    file: str
    key: str = ""

    def inside(self, key: str) -> Place:
        return Place(self.file, join_keys(self.key, shown_key(key)))

    def item(self, number: int) -> Place:
        return Place(self.file, f"{self.key}[{number}]")

    def fail(self, fault: str) -> NoReturn:
        raise ConfigurationError(self.file, self.key, fault)


def load(file: Path, schema: type[T], data: bytes | None = None) -> T:
    """Reads the whole file as `schema`. Raises ConfigurationError on the first fault.

    `data` is the content of the file, if the caller has already read it.
    """
    parsed = _parse(file, read_file(file) if data is None else data)
    try:
        return _with_absolute_paths(table(schema)(parsed), file.parent)
    except FieldFault as fault:
        raise ConfigurationError(str(file), fault.key, fault.fault) from None


def read_file(file: Path) -> bytes:
    """Reads a file. Raises ConfigurationError if it cannot be read or is far too large for a configuration."""
    place = Place(str(file))
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        place.fail(f"cannot be read: {fault.strerror}")
    if len(data) > MAX_FILE_BYTES:
        place.fail(f"must not be larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


def _parse(file: Path, data: bytes) -> dict[str, Any]:
    place = Place(str(file))
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # Windows editors put a mark before the text
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ConfigurationError(str(file), f"line {line}", "must be UTF-8 text") from None
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


def _with_absolute_paths(settings: T, directory: Path) -> T:
    """The value with its paths made relative to `directory`. Raises FieldFault for a FILE that does not exist."""
    changes: dict[str, object] = {}
    for each in fields(settings):  # type: ignore[arg-type]  # every schema is a dataclass
        kind, value = each.metadata.get(KIND), getattr(settings, each.name)
        if kind is None:
            continue
        try:
            if (kind is PATH or kind is FILE) and value is not None:
                changes[each.name] = directory / value
                if kind is FILE and not (directory / value).is_file():
                    raise FieldFault(f"there is no file {directory / value}")
            elif is_dataclass(value):
                changes[each.name] = _with_absolute_paths(value, directory)
            elif isinstance(value, tuple) and value and is_dataclass(value[0]):
                changes[each.name] = tuple(_located_items(value, directory))
        except FieldFault as fault:
            raise fault.inside(each.metadata.get(KEY) or each.name) from None
    return cast(T, replace(cast(Any, settings), **changes)) if changes else settings


def _located_items(settings: Iterable[T], directory: Path) -> Iterable[T]:
    for index, each in enumerate(settings, 1):
        try:
            yield _with_absolute_paths(each, directory)
        except FieldFault as fault:
            raise fault.inside(f"[{index}]") from None


def refuse_duplicates(
    found: Iterable[T], place: Place, key: str, identity: Callable[[T], Hashable] | None = None
) -> None:
    """Refuses two entries of a list with the same `key`, or the same `identity`. Case does not matter."""
    seen: dict[Hashable, int] = {}
    for index, each in enumerate(found, 1):
        value = identity(each) if identity is not None else getattr(each, key)
        first = seen.setdefault(value.lower() if isinstance(value, str) else value, index)
        if first != index:
            place.item(index).inside(key).fail(f"must be unique, but {place.key}[{first}] has {getattr(each, key)} too")
