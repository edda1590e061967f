"""A file with definitions: queues with their properties and access lists, and users without their passwords.

Only reading and writing the file: cli/definitions.py compares it with a manager.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from postroad.config import SID, ConfiguredQueue
from postroad.names import PathName, QueueKind
from postroad.security.access import ADMINISTRATORS
from postroad.security.descriptors import Sid
from postroad.security.rights import QUEUE_MAPPING
from postroad.security.sddl import format_sddl, parse_sddl
from postroad.validation.fields import required, setting, tables
from postroad.validation.kinds import SWITCH, items, line
from postroad.validation.queue_properties import QUEUE_PROPERTIES
from postroad.validation.toml import Place, load, refuse_duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedUser:
    """`[[user]]`, as in the configuration but without the password."""

    name: str = required(line(256))
    sid: Sid | None = setting(SID, None)
    groups: tuple[Sid, ...] = setting(items(SID, most=1000), ())
    administrator: bool = setting(SWITCH, False)
    monitor: bool = setting(SWITCH, False)

    @property
    def is_administrator(self) -> bool:
        return self.administrator or ADMINISTRATORS in self.groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The whole file. `[[queue]]` is as in the configuration."""

    queues: tuple[ConfiguredQueue, ...] = setting(tables(ConfiguredQueue), (), key="queue")
    users: tuple[DefinedUser, ...] = setting(tables(DefinedUser), (), key="user")


def read_definitions(file: Path) -> Definitions:
    """Reads a file. Raises ConfigurationError on the first fault."""
    definitions = load(file, Definitions)
    place = Place(str(file))
    refuse_duplicates(definitions.queues, place.inside("queue"), "path", lambda queue: queue.path.tail)
    refuse_duplicates(definitions.users, place.inside("user"), "name")
    return definitions


def path_on(manager: str, queue: ConfiguredQueue) -> str:
    """The path on the manager that imports the queue. Raises IllegalPathName if the manager's name makes it too
    long."""
    path = str(queue.path.tail)[1:]
    if queue.path.tail.kind is not QueueKind.PUBLIC:
        return path
    return str(PathName.parse(f"{manager}\\{path}"))


def acl_of(queue: ConfiguredQueue) -> str | None:
    """The access list in the form that a manager shows; None if the definition has none."""
    return None if queue.acl is None else format_sddl(queue.acl)


def same_acl(wanted: str, current: str) -> bool:
    """Whether setting the wanted list would change nothing. The owner stays if the list names none."""
    new, old = parse_sddl(wanted).mapped(QUEUE_MAPPING), parse_sddl(current)
    if new.owner is None:
        new = replace(new, owner=old.owner)
    return format_sddl(new) == format_sddl(old)


def comparable(name: str, value: object) -> object:
    """A property's value in a form to compare: "no limit" is None, whether written as a word or as the largest
    number."""
    return None if value == QUEUE_PROPERTIES[name].none else value


def write_definitions(title: str, tables: Mapping[str, Iterable[Mapping[str, object]]]) -> str:
    """Writes tables as TOML. Leaves out values of None."""
    lines = [f"# {title}"]
    for name, rows in tables.items():
        for row in rows:
            lines += ["", f"[[{name}]]", write_row(row)]
    return "\n".join(lines) + "\n"


def write_row(row: Mapping[str, object]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in row.items() if value is not None)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        if value.isprintable() and "'" not in value:
            return f"'{value}'"  # paths have backslashes
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
