"""Kinds of values that a request may hold: each is checked in JSON, read from a query parameter, and described.

One object does all three, so that what is refused, what is read and what OpenAPI says cannot part. No tables here.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from postroad.errors import IllegalName, PostroadError
from postroad.names import parse_guid

EnumT = TypeVar("EnumT", bound=Enum)

UINT32_MAX = 0xFFFFFFFF
MAX_LOOKUP_ID = (1 << 63) - 1
SHOWN_CHARACTERS = 60
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


class NotOfKind(Exception):
    """Inside this room only: the reader of a table knows the name that belongs before the sentence."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`check` takes a JSON value and gives what the core wants, `read` turns a parameter's text into a JSON value.

    Both raise NotOfKind, or ValueError where the value is simply not `what`.
    """

    what: str
    schema: Mapping[str, object]
    check: Callable[[Any], Any]
    read: Callable[[str], object] = lambda text: text

    def __call__(self, value: object) -> Any:
        try:
            return self.check(value)
        except (ValueError, TypeError):
            raise NotOfKind(f"{shown(value)} is not {self.what}") from None

    def from_text(self, text: str) -> Any:
        try:
            value = self.read(text)
        except ValueError:
            raise NotOfKind(f"{shown(text)} is not {self.what}") from None
        return self(value)


def shown(value: object) -> str:
    """A JSON value as a sentence shows it."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value[:SHOWN_CHARACTERS] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def fault(error: type[PostroadError], place: str, problem: NotOfKind) -> PostroadError:
    return error(f"{place}: {problem}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
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


def _base64(value: Any) -> bytes:
    return b64decode(_text(value).encode("ascii"), validate=True)


def _guid(value: Any) -> object:
    try:
        return parse_guid(_text(value).removeprefix("{").removesuffix("}"))
    except IllegalName:
        raise ValueError from None


TEXT = Kind("text", {"type": "string"}, _text)
SWITCH = Kind("true or false", {"type": "boolean"}, _switch, _read_switch)
BASE64 = Kind("base64", {"type": "string", "contentEncoding": "base64"}, _base64)
GUID = Kind("a GUID", {"type": "string", "format": "uuid"}, _guid)


def text(longest: int) -> Kind:
    """Text of up to `longest` characters."""

    def check(value: Any) -> str:
        if len(_text(value)) > longest:
            raise ValueError
        return str(value)

    return Kind(f"text of at most {longest} characters", {"type": "string", "maxLength": longest}, check)


def whole(lowest: int, highest: int) -> Kind:
    """A whole number of this range; a switch is none, nor is 1.0."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError
        return value

    schema = {"type": "integer", "minimum": lowest, "maximum": highest}
    return Kind(f"a whole number from {lowest} to {highest}", schema, check, _read_whole)


def number(lowest: int, highest: int) -> Kind:
    """A number of this range, with or without a fraction."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
            raise ValueError  # not a number is in no range
        return float(value)

    schema = {"type": "number", "minimum": lowest, "maximum": highest}
    return Kind(f"a number from {lowest} to {highest}", schema, check, float)


def choice(words: Mapping[str, EnumT]) -> Kind:
    """One of a few words, each for a member of an enum."""

    def check(value: Any) -> EnumT:
        try:
            return words[_text(value)]
        except KeyError:
            raise ValueError from None

    return Kind(f"one of {', '.join(words)}", {"type": "string", "enum": list(words)}, check)


def nullable(kind: Kind) -> Kind:
    """The same, or null, which comes out as None."""
    schema = dict(kind.schema)
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    else:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return Kind(f"{kind.what}, nor null", schema, lambda value: None if value is None else kind.check(value), kind.read)


def distinct(kind: Kind, most: int) -> Kind:
    """A list of up to `most` values, none of them twice."""

    def check(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError
        if len(value) > most:
            raise NotOfKind(f"at most {most} can be in one request, not {len(value)}")
        found = [kind(each) for each in value]
        if len(set(found)) != len(found):
            twice = next(each for index, each in enumerate(found) if each in found[:index])
            raise NotOfKind(f"{twice} is there twice")
        return found

    schema = {"type": "array", "items": dict(kind.schema), "maxItems": most, "uniqueItems": True}
    return Kind("a list", schema, check)


LOOKUP_ID = whole(0, MAX_LOOKUP_ID)
UINT32 = whole(0, UINT32_MAX)
