"""Dataclasses as JSON objects, and back. A field's key is its name, unless `keyed` gives another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
_KEY, _ITEMS = "json_key", "json_items"


def keyed(key: str) -> dict[str, Any]:
    """The metadata of a field with another key in JSON, which is needed where the key is a reserved word in Python."""
    return {_KEY: key}


def listed(kind: type[DataclassInstance]) -> dict[str, Any]:
    """The metadata of a field with a tuple of dataclasses."""
    return {_ITEMS: kind}


def key_of(each: Field[Any]) -> str:
    return str(each.metadata.get(_KEY, each.name))


@cache
def _keys(kind: type[DataclassInstance]) -> tuple[tuple[str, str], ...]:
    return tuple((key_of(each), each.name) for each in fields(kind))


def to_json(value: object) -> dict[str, Any]:
    """The `default` of json.dumps: turns a dataclass into an object."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{value!r} has no form in JSON")
    return {key: getattr(value, name) for key, name in _keys(type(value))}


def from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """The inverse of `to_json`. Raises TypeError for other values. Ignores keys that another version has added."""
    found: dict[str, Any] = {}
    for each in fields(kind):
        key, items = key_of(each), each.metadata.get(_ITEMS)
        if key in values:
            value = values[key]
            if items is not None:
                value = tuple(from_json(items, item) for item in value)
            found[each.name] = tuple(value) if isinstance(value, list) else value
    return kind(**found)
