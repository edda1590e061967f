"""Tables of a file: a frozen dataclass is their schema, and each of its fields a setting."""

from __future__ import annotations

import re
from dataclasses import MISSING, field, fields
from typing import Any, TypeVar, cast

from postroad.validation.kinds import FieldFault, Kind, items, suggestion

T = TypeVar("T")
D = TypeVar("D")

KIND, KEY, MORE = "kind", "key", "more"
_TABLE = "a table"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def setting(kind: Kind[T], default: D, *, key: str | None = None, secret: bool = False, more: object = None) -> T | D:
    """A field of a dataclass that a file sets. `key` is its name there, if it differs from the field's.

    A secret is omitted when the dataclass is printed. `more` is stored with the field, under MORE.
    """
    return cast(T | D, field(default=default, metadata={KIND: kind, KEY: key, MORE: more}, repr=not secret))


def required(kind: Kind[T], *, key: str | None = None) -> T:
    """A setting that has no default."""
    return cast(T, field(metadata={KIND: kind, KEY: key}))


def shown_key(key: str) -> str:
    """A key in the form that a dotted key needs."""
    return key if _BARE_KEY.fullmatch(key) else f'"{key}"'


def table(schema: type[T], **given: object) -> Kind[T]:
    """A table that becomes a `schema`, which is a dataclass whose fields are settings. Unknown keys are refused."""
    settings = {
        each.metadata[KEY] or each.name: each
        for each in fields(schema)  # type: ignore[arg-type]  # every schema is a dataclass
        if KIND in each.metadata
    }

    def check(value: Any) -> T:
        if not isinstance(value, dict):
            raise TypeError
        for key in value:
            if key not in settings:
                raise FieldFault(f"there is no such setting{suggestion(key, settings)}", shown_key(key))
        values: dict[str, object] = {}
        for key, each in settings.items():
            kind: Kind[Any] = each.metadata[KIND]
            if key not in value and each.default is not MISSING:
                continue
            try:
                if key not in value and kind.what != _TABLE:
                    raise FieldFault("is missing")
                # if the table is missing, the fault says what it must have
                values[each.name] = kind(value.get(key, {}))
            except FieldFault as fault:
                raise fault.inside(key) from None
        return schema(**values, **given)

    return Kind(_TABLE, {"type": "object"}, check)


def tables(schema: type[T]) -> Kind[tuple[T, ...]]:
    """An array of tables, such as `[[queue]]`."""
    listed = items(table(schema))

    def check(value: Any) -> tuple[T, ...]:
        if isinstance(value, dict):
            raise FieldFault("must be a list of tables, got one table: write its name in double brackets")
        return listed.check(value)

    return Kind("a list of tables", listed.schema, check)


def tables_by_key(schema: type[T], key_kind: Kind[str], key_field: str) -> Kind[tuple[T, ...]]:
    """A table of tables, such as `[peers]`. Its keys are values too, and become the field `key_field`."""

    def check(value: Any) -> tuple[T, ...]:
        if not isinstance(value, dict):
            raise TypeError
        found = []
        for key, each in value.items():
            try:
                found.append(table(schema, **{key_field: key_kind(key)})(each))
            except FieldFault as fault:
                raise fault.inside(shown_key(key)) from None
        return tuple(found)

    return Kind(_TABLE, {"type": "object"}, check)
