"""`postroad definitions export` and `import`: queues with properties and access lists, and users, as a TOML file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.context import Context
from postroad.cli.output import ExitCode, fail, print_json, print_line, report
from postroad.reports.info import counted
from postroad.runtime.private_files import write_private

if TYPE_CHECKING:
    from postroad import QueueManager
    from postroad.config import ConfiguredQueue
    from postroad.names import QueueTail
    from postroad.reports.info import ManagerInfo, QueueInfo, UserInfo
    from postroad.server.definitions import DefinedUser

app = typer.Typer(help="Write the queues and users of a manager to a file, and create queues from such a file.")

STANDARD_OUTPUT = "-"
_DEFINED = ("private", "public")


@dataclass(slots=True)
class Change:
    """What an import does with one queue: creates it or sets properties. `acl` is None if the access list stays."""

    path: str
    creates: bool
    properties: dict[str, Any] = field(default_factory=dict)
    acl: str | None = None

    @property
    def names(self) -> list[str]:
        return [*self.properties, *(["acl"] if self.acl is not None else [])]


@app.command("export")
def export(
    context: Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - for standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write the queues, their properties and access lists, and the users without their passwords to a TOML file."""
    from postroad.server.definitions import write_definitions

    if file != STANDARD_OUTPUT and Path(file).exists() and not force:
        fail(f"{file}: exists already; --force writes over it", ExitCode.USAGE)
    with context.connect() as manager, context.calls() as api:
        name = manager.info().name
        queues = [_defined(manager, info) for info in _queues(manager).values()]
        users = api.json("GET", "/users", member="users")
    text = write_definitions(
        f"Definitions of the queue manager {name}, without the passwords of users", {"queue": queues, "user": users}
    )
    if file == STANDARD_OUTPUT:
        print(text, end="")
        return
    try:
        write_private(Path(file), text)
    except OSError as fault:
        fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.FAILED)
    counts = f"{counted(len(queues), 'queue')} and {counted(len(users), 'user')}"
    context.print({"file": file, "queues": len(queues), "users": len(users)}, f"wrote {counts} to {file}")


@app.command("import")
def import_definitions(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> None:
    """Create the queues of a file that are missing, and change the properties and access lists that differ.

    A public queue becomes one of this manager: alpha\\orders is beta\\orders on beta. Everything is checked before the
    first change. No queue is deleted. A second import changes nothing. Users and their
    passwords are in the manager's configuration: the command says on stderr what to add and change there.
    """
    from postroad.reports.info import UserInfo
    from postroad.reports.plain import from_json
    from postroad.server.definitions import read_definitions

    definitions = read_definitions(file)
    with context.connect() as manager, context.calls() as api:
        here, existing = manager.info(), _queues(manager, internal=True)
        changes: list[Change] = []
        faults: list[str] = []
        for wanted in definitions.queues:
            change = _change(manager, here, wanted, existing, faults)
            if change is not None:
                changes.append(change)
        if faults:
            for fault in faults:
                report(f"{file}: {fault}")
            fail("nothing was changed", ExitCode.FAILED)
        users: list[UserInfo] = [from_json(UserInfo, each) for each in api.json("GET", "/users", member="users")]
        for done, change in enumerate(changes):
            try:
                if not dry_run:
                    _apply(manager, change)
            except Exception:
                report(f"{counted(done, 'queue')} of {len(changes)} changed, then {change.path} failed")
                raise
            _show(context, change, dry_run)
    _show_users(definitions.users, users)
    same = len(definitions.queues) - len(changes)
    if not context.as_json:
        print_line(f"{counted(same, 'queue')} as in the file already")


def _queues(manager: QueueManager, *, internal: bool = False) -> dict[QueueTail, QueueInfo]:
    """The queues that users made. With `internal`, also those that the manager made for itself."""
    from postroad.names import PathName

    made = (each for each in manager.queues() if each.type in _DEFINED and (internal or not each.is_internal))
    return {PathName.parse(each.path).tail: each for each in sorted(made, key=lambda each: each.path.lower())}


def _defined(manager: QueueManager, info: QueueInfo) -> dict[str, object]:
    from postroad.validation.queue_properties import QUEUE_PROPERTIES

    row: dict[str, object] = {"path": info.path}
    for name, each in QUEUE_PROPERTIES.items():
        value = getattr(info, name)
        row[name] = each.none if value is None and each.default is not None else value
    return {**row, "acl": manager.backend.acl(info.path)}


def _change(
    manager: QueueManager,
    here: ManagerInfo,
    wanted: ConfiguredQueue,
    existing: dict[QueueTail, QueueInfo],
    faults: list[str],
) -> Change | None:
    """What must change for a queue. None if nothing. What cannot change is added to `faults`."""
    from postroad.names import QueueKind
    from postroad.server.definitions import acl_of, comparable, path_on, same_acl
    from postroad.validation.queue_properties import (
        CHANGEABLE,
        NO_BASE_PRIORITY,
        QUEUE_PROPERTIES,
        settings_of,
    )

    path, acl = path_on(here.name, wanted), acl_of(wanted)
    info = existing.get(wanted.path.tail)
    if info is None:
        differing = settings_of(wanted)
        if wanted.path.tail.kind is QueueKind.PUBLIC and not here.publishes:
            faults.append(
                f"{path}: {here.name} has no such public queue; add it as a [[queue]] with an id to the file of the "
                f"directory and send {here.name} SIGHUP, or without a directory run `postroad queue create '{path}'`, "
                "and import again"
            )
    else:
        values = {name: (getattr(wanted, name), getattr(info, name)) for name in QUEUE_PROPERTIES}
        differing = {name: new for name, (new, old) in values.items() if comparable(name, new) != comparable(name, old)}
        fixed = differing.keys() - CHANGEABLE.keys()
        faults += [f"{path}: {name} cannot change once a queue exists; delete the queue first" for name in fixed]
        if acl is not None and same_acl(acl, manager.backend.acl(path)):
            acl = None
    if differing.get("base_priority") and wanted.path.tail.kind is not QueueKind.PUBLIC:
        faults.append(f"{path}: base_priority: {NO_BASE_PRIORITY}")
    if differing.get("multicast_address") is not None and wanted.transactional:
        faults.append(f"{path}: multicast_address: a transactional queue cannot listen to a multicast address")
    elif differing.get("multicast_address") is not None and here.multicast is None:
        faults.append(
            f"{path}: multicast_address: multicast is off on {here.name}; set enabled = true in [multicast] of its "
            "configuration and restart it, or remove the address from the file"
        )
    return Change(path, info is None, differing, acl) if info is None or differing or acl is not None else None


def _apply(manager: QueueManager, change: Change) -> None:
    if change.creates:
        manager.backend.create_queue(change.path, change.properties)
    elif change.properties:
        manager.backend.set_queue(change.path, change.properties)
    if change.acl is not None:
        manager.backend.set_acl(change.path, change.acl)


def _show(context: Context, change: Change, dry_run: bool) -> None:
    done = "create" if change.creates else "change"
    if context.as_json:
        print_json({"queue": change.path, "change": done, "properties": change.names, "done": not dry_run})
        return
    word = f"would {done}" if dry_run else f"{done}d"
    print_line(f"{word} {change.path}" + ("" if change.creates else f": {', '.join(change.names)}"))


def _show_users(wanted: tuple[DefinedUser, ...], existing: list[UserInfo]) -> None:
    """Tells an operator what to do about users, because an import cannot set passwords."""
    from postroad.server.definitions import write_row

    known = {each.name.casefold(): each for each in existing}
    missing = [user for user in wanted if user.name.casefold() not in known]
    for user in wanted:
        if (found := known.get(user.name.casefold())) is not None and (keys := _differing(user, found)):
            there = write_row({key: value for key, (value, _) in keys.items()}).replace("\n", ", ")
            here = write_row({key: value for key, (_, value) in keys.items()}).replace("\n", ", ")
            report(
                f"the user {user.name} differs: the file has {there}, the manager has {here}; change the [[user]] in "
                "the manager's configuration, then send it SIGHUP"
            )
    for user in missing:
        report(f"the user {user.name} is missing")
    if not missing:
        return
    report(
        "add these lines to the manager's configuration, write each password to its file, which only the manager may "
        "read, then send it SIGHUP:"
    )
    for number, user in enumerate(missing, 1):
        name = user.name if user.name.replace("-", "").replace("_", "").isalnum() else f"user-{number}"
        row: dict[str, object] = {
            "name": user.name,
            "password_file": f"{name}.password",
            "sid": user.sid and str(user.sid),
        }
        row |= {"groups": [str(each) for each in user.groups], "administrator": user.administrator}
        row |= {"monitor": True} if user.monitor else {}
        print(f"\n[[user]]\n{write_row(row)}", file=sys.stderr)


def _differing(wanted: DefinedUser, found: UserInfo) -> dict[str, tuple[object, object]]:
    """The settings that differ, with the values in the file and in the manager. A SID missing in the file is no
    difference."""
    groups = sorted(map(str, wanted.groups)), sorted(found.groups)
    values: dict[str, tuple[object, object]] = {
        "sid": (str(wanted.sid or found.sid), found.sid),
        "groups": groups,
        "administrator": (wanted.is_administrator, found.administrator),
        "monitor": (wanted.monitor, found.monitor),
    }
    return {key: (there, here) for key, (there, here) in values.items() if there != here}
