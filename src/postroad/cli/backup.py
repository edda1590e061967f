"""`postroad backup`, `restore` and `store copy`: write everything that a manager holds to one file, make a store from
it, and copy a store to another place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO
from uuid import uuid4

import typer

from postroad.cli.context import AsJson, Context
from postroad.cli.output import Bar, ExitCode, fail, print_json, print_line, report, size_text
from postroad.reports.info import counted

if TYPE_CHECKING:
    from postroad.server.store_copy import Database
    from postroad.store.backup import Contents

Schema = Annotated[
    str | None,
    typer.Option("--schema", metavar="NAME", help="The schema; default: the manager's name."),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="The file with the password of the database.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="The file that encrypts the private keys in the database."),
]

MEDIA_TYPE = "application/vnd.postroad.backup"
_MIB = 1 << 20


def backup(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write everything that a running manager holds to one file: queues, messages, state and private keys.

    The file has the state of one moment, while the manager goes on to work. It gets its name when it is complete and
    was read back. Express messages are in memory only, and are not in it. Keep the file secret: it has the messages and
    the private keys of the manager.
    """
    from postroad.store.backup import check_backup

    if file.exists() and not (force and file.is_file()):
        remedy = "--force replaces it" if file.is_file() else "choose the name of a file"
        fail(f"{file}: exists already; {remedy}", ExitCode.USAGE)
    with _new_file(file) as (stream, temporary):
        with context.calls() as api, Bar("backing up, MiB", None) as bar:
            size = 0
            for piece in api.stream("/backup", {}, MEDIA_TYPE):
                stream.write(piece)
                size += len(piece)
                bar.advance(size // _MIB - bar.done)
        stream.flush()
        os.fsync(stream.fileno())
        contents = check_backup(temporary, str(file))
        if file.exists() and not force:
            fail(f"{file}: exists already; --force replaces it", ExitCode.FAILED)
        temporary.replace(file)
        _sync_directory(file)
    _report_damaged(contents)
    name = contents.head.get("name")
    context.print(
        {"file": str(file), "bytes": size, **_facts(contents)},
        f"backed up {name}: {counted(contents.records, 'message')}, {size_text(size)} in {file}",
    )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `postroad backup` wrote.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The data directory to make; it must be empty or not exist."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The database to restore into, instead of a directory.")
    ] = None,
    schema: Schema = None,
    password_file: PasswordFile = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a data directory, or a store in a database, from a backup.

    The whole file is checked first. The manager that starts on the directory has the name in its configuration, and
    the id and the keys of the one that was backed up. Do not run both at the same time.
    """
    from postroad.server.restore import restore
    from postroad.server.store_copy import restore_into

    if (data is None) == (url is None):
        fail("restore: give one of --data and --url", ExitCode.USAGE)
    with Bar("restoring", None) as bar:

        def progress(done: int, total: int | None = None) -> None:
            bar.total = total
            bar.advance(done - bar.done)

        try:
            if data is not None:
                contents = restore(file, data, progress)
            else:
                contents = restore_into(file, _database(str(url), schema, password_file, key_file), progress)
        except OSError as fault:
            fail(f"{fault.filename or file}: {fault.strerror}", ExitCode.FAILED)
    _report_damaged(contents)
    where = str(data) if data is not None else "the database"
    if as_json:
        print_json({"data" if data is not None else "schema": str(data or schema), **_facts(contents)})
        return
    head = contents.head
    print_line(f"restored {head.get('name')} {head.get('id')} as of {head.get('made_at')}")
    print_line(f"{counted(contents.records, 'message')} in {where}")


store_app = typer.Typer(help="Copy a store between a data directory and a database.")


@store_app.callback()
def _store() -> None:
    """Copy a store between a data directory and a database."""


@store_app.command("copy")
def copy(
    source: Annotated[str, typer.Option("--from", metavar="DIR|URL", help="The store to copy; nobody may use it.")],
    target: Annotated[
        str, typer.Option("--to", metavar="DIR|URL", help="Where to; an empty directory, or a schema without a store.")
    ],
    schema: Schema = None,
    password_file: PasswordFile = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy everything in a store to another place, between files and PostgreSQL in both directions.

    The copy is compared with what was read, by counts and checksums. Do not run a manager on both.
    """
    from postroad.server.store_copy import copy_store

    places = [
        _database(each, schema, password_file, key_file) if "://" in each else Path(each) for each in (source, target)
    ]
    with Bar("copying, messages", None) as bar:
        try:
            copied = copy_store(places[0], places[1], lambda done: bar.advance(done - bar.done))
        except OSError as fault:
            fail(f"{fault.filename or source}: {fault.strerror}", ExitCode.FAILED)
    if as_json:
        print_json({"name": copied.name, "id": copied.id, "messages": copied.messages})
        return
    print_line(f"copied {copied.name} {copied.id}: {counted(copied.messages, 'message')}")


def _database(url: str, schema: str | None, password_file: Path | None, key_file: Path | None) -> Database:
    from postroad.server.store_copy import Database

    if not url.startswith(("postgresql://", "postgres://")):
        fail(f"{url.partition(':')[0]}: must be postgresql://USER@HOST/DATABASE", ExitCode.USAGE)
    return Database(url, schema, password_file, key_file)


def _facts(contents: Contents) -> dict[str, object]:
    head = {key: contents.head.get(key) for key in ("name", "id", "made_at", "version")}
    return {**head, "messages": contents.records, "damaged": contents.damaged}


def _report_damaged(contents: Contents) -> None:
    if contents.damaged:
        report(f"left out: {counted(contents.damaged, 'record')} whose checksum is wrong; see the manager's log")


@contextmanager
def _new_file(file: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A private file beside the wanted one. It is deleted unless it was renamed to that one."""
    temporary = file.with_name(f".{file.name}.{uuid4().hex[:8]}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as fault:
        fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.USAGE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream, temporary
    except OSError as fault:
        fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.FAILED)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_directory(file: Path) -> None:
    """Makes the new name durable. Windows cannot open a directory and does not need this."""
    if os.name == "nt":
        return
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
