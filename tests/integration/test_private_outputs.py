"""Files that commands write on this computer are for their owner only, whatever the umask. A table has each command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroad.cli.commands import COMMANDS, LazyGroup, load
from postroad.runtime.private_files import make_private_directory, write_private
from postroad.store import open_store
from tests.commands import postroad
from tests.served import served

# Every parameter with a file or a directory: those that are only read, and those that are written, each with its test.
READ = {
    *("console --tls-certificate", "console --tls-key", "decode FILE", "definitions import FILE", "import FILE"),
    *("restore FILE", "route --enterprise", "serve --config", "simulate FILE", "remote peek --config"),
    *("send --extension", "send --file", "remote info --config"),
    *("directory check --config", "directory export --config", "directory show --config"),
    *("restore --password-file", "restore --key-file", "store copy --password-file", "store copy --key-file"),
    *("remote purge --config", "remote receive --config", "pipeline run --enterprise", "pipeline retain --enterprise"),
    *("pipeline what-if ENTERPRISE", "pipeline what-if CHANGED"),
}
WRITTEN = {"backup FILE", "definitions export FILE", "export FILE", "restore --data"}
WRITTEN_BY_SPARK = {"pipeline report --output", "pipeline run --report"}
WRITTEN_BY_SPARK |= {"pipeline report --alert-file", "pipeline run --alert-file"}
METAVARS = ("FILE", "DIR", "ENTERPRISE", "CHANGED")


def parameters() -> Iterator[tuple[str, str]]:
    """(command and parameter, metavar) of all parameters."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, str]]:
        if isinstance(command, LazyGroup):
            for inner in command.listed:
                yield from walk(f"{name} {inner}", command.build(inner))
            return
        for each in command.params:
            option = max(each.opts, key=len) if each.param_type_name == "option" else each.metavar or each.name
            yield f"{name} {option}", str(each.metavar)

    for name in COMMANDS:
        yield from walk(name, load(name))


def test_every_parameter_with_a_file_is_in_a_table() -> None:
    found = {name for name, metavar in parameters() if metavar in METAVARS}
    lakes = {each for each in found if each.endswith(" --lake")}
    assert found - lakes == READ | WRITTEN | WRITTEN_BY_SPARK


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("open_umask")
def test_files_that_commands_write_are_private(tmp_path: Path) -> None:
    with served(open_store(tmp_path / "store")) as running:
        running.create()
        running.send("secret", recoverable=True)
        api = f"http://127.0.0.1:{running.server.port}"
        for file, command in (
            ("packets", ("export", r"private$\orders")),
            ("definitions.toml", ("definitions", "export")),
            ("backup", ("backup",)),
        ):
            place = tmp_path / file
            outcome = postroad(*command, str(place), api=api)
            assert outcome.code == 0, outcome.errors
            assert mode(place) == 0o600
        loose = tmp_path / "packets"
        loose.chmod(0o644)
        assert postroad("export", r"private$\orders", str(loose), api=api).code == 2  # it is there already
        assert postroad("export", r"private$\orders", str(loose), "--force", api=api).code == 0
        assert mode(loose) == 0o600
        assert b"secret" in loose.read_bytes()


@pytest.mark.usefixtures("open_umask")
def test_a_directory_that_is_there_keeps_its_group_alone(tmp_path: Path) -> None:
    for before, after in ((0o755, 0o750), (0o770, 0o770), (0o700, 0o700), (0o1777, 0o777)):
        place = tmp_path / f"{before:o}"
        place.mkdir()
        place.chmod(before)
        make_private_directory(place)
        assert mode(place) == after


@pytest.mark.usefixtures("open_umask")
def test_a_report_is_private(tmp_path: Path) -> None:
    """The commands that write one need Spark. This test uses the function with which they write."""
    page = tmp_path / "report.html"
    page.write_text("longer than the new one")
    write_private(page, "<html>")
    assert (page.read_text(), mode(page)) == ("<html>", 0o600)
