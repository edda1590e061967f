"""Backups of a running manager are restored and compared with a ledger. And what a careless operator does with them."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad import Message, QueueManager, connect
from postroad.errors import NoMessage
from tests.commands import POSTROAD, ServerProcess, postroad, serving

ORDERS, PAYMENTS = r"private$\orders", r"private$\payments"
STEADY = 300  # messages that stay during the whole test
PATIENCE_S = 60
PAUSE_S = 0.02  # leaves the processors to the manager and the command


def configure(directory: Path, data: str, more: str = "") -> Path:
    config = directory / f"{data}.toml"
    config.write_text(
        f'[manager]\nname = "alpha"\ndata = "{data}"\n'
        "[listen]\nbinary = false\nping = false\nhttp = false\nrpc = false\napi = 0\n"
        f"[[queue]]\npath = '{ORDERS}'\n[[queue]]\npath = '{PAYMENTS}'\ntransactional = true\n{more}"
    )
    return config


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(configure(tmp_path, "data")) as running:
        yield running


def contents(api: str) -> list[tuple[str, str, str]]:
    """Queue, id and body of every message."""
    with connect(api) as manager:
        return [
            (name, str(each.id), each.text or "")
            for name in (ORDERS, PAYMENTS)
            for each in manager.queue(name).messages()
        ]


class Ledger:
    """When each message was acknowledged, and when a reader had it."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[str, str, float]] = {}
        self.received: dict[str, float] = {}
        self.stopping = threading.Event()

    def send(self, api: str, name: str, start: int) -> None:
        with connect(api) as manager:
            queue = manager.queue(name)
            number = start
            while not self.stopping.is_set():
                bodies = [f"{name} {number + place}" for place in range(5)]
                number += 5
                ids = self._send(manager, queue.name, bodies)
                now = time.monotonic()
                for identifier, body in zip(ids, bodies, strict=True):
                    self.sent[str(identifier)] = (name, body, now)
                time.sleep(PAUSE_S)

    def _send(self, manager: QueueManager, name: str, bodies: list[str]) -> list[str]:
        queue = manager.queue(name)
        messages = [Message(body, recoverable=True) for body in bodies]
        if name == ORDERS:
            return [str(each) for each in queue.send(messages)]
        with manager.transaction() as tx:
            return [str(each) for each in queue.send(messages, tx)]

    def receive(self, api: str, name: str) -> None:
        with connect(api) as manager:
            queue = manager.queue(name)
            while not self.stopping.is_set():
                try:
                    messages = queue.receive_many(3, 0.2)
                except NoMessage:
                    continue
                now = time.monotonic()
                self.received.update((str(each.id), now) for each in messages)
                time.sleep(PAUSE_S)


def test_a_backup_under_load_has_what_the_ledger_says(server: ServerProcess, tmp_path: Path) -> None:
    ledger = Ledger()
    tasks = [
        *(threading.Thread(target=ledger.send, args=(server.api, name, 0)) for name in (ORDERS, PAYMENTS)),
        *(threading.Thread(target=ledger.receive, args=(server.api, name)) for name in (ORDERS, PAYMENTS)),
    ]
    for task in tasks[:2]:
        task.start()
    deadline = time.monotonic() + PATIENCE_S
    while len(ledger.sent) < STEADY and time.monotonic() < deadline:
        time.sleep(0.05)
    for task in tasks[2:]:
        task.start()
    time.sleep(0.5)
    file = tmp_path / "alpha.backup"
    started = time.monotonic()
    made = postroad("backup", str(file), "--json", api=server.api)
    ended = time.monotonic()
    ledger.stopping.set()
    for task in tasks:
        task.join()
    assert made.code == 0, made.errors
    identity = server.ready["id"]
    assert server.end() == (0, b"")

    restored = postroad("restore", str(file), "--data", str(tmp_path / "again"), "--json")
    assert restored.code == 0, restored.errors
    with serving(configure(tmp_path, "again")) as second:
        found = contents(second.api)
        assert second.ready["id"] == identity
    assert restored.objects[0]["messages"] == made.objects[0]["messages"] == len(found) > 0

    by_id = {identifier: (name, body) for name, identifier, body in found}
    assert len(by_id) == len(found)
    must = {
        identifier
        for identifier, (_, _, acknowledged) in ledger.sent.items()
        if acknowledged < started and ledger.received.get(identifier, ended + 1) > ended
    }
    assert must <= by_id.keys()
    assert must
    gone = {identifier for identifier, at in ledger.received.items() if at < started}
    assert gone
    assert not gone & by_id.keys()
    for identifier, (name, body) in by_id.items():  # a send may have been durable without its answer
        if identifier in ledger.sent:
            assert ledger.sent[identifier][:2] == (name, body)
    assert max(Counter(body for _, _, body in found).values()) == 1
    assert Counter(name for name, _, _ in found).keys() == {ORDERS, PAYMENTS}


@pytest.fixture
def file(server: ServerProcess, tmp_path: Path) -> Path:
    postroad("send", ORDERS, "--body", "hello", "--recoverable", "--count", "20", api=server.api)
    file = tmp_path / "alpha.backup"
    assert postroad("backup", str(file), api=server.api).code == 0
    return file


def test_a_backup_is_private_and_replaces_nothing_by_accident(server: ServerProcess, file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    again = postroad("backup", str(file), api=server.api)
    assert (again.code, file.read_bytes()) == (2, before)
    assert "exists already; --force replaces it" in again.last_error
    postroad("send", ORDERS, "--body", "new", "--recoverable", api=server.api)
    assert postroad("backup", str(file), "--force", api=server.api).code == 0
    assert file.read_bytes() != before
    assert [path.name for path in file.parent.glob(".*")] == []


def test_a_backup_that_cannot_be_written_leaves_nothing(server: ServerProcess, tmp_path: Path) -> None:
    missing = postroad("backup", str(tmp_path / "no" / "file"), api=server.api)
    assert (missing.code, missing.last_error.rpartition(": ")[2]) == (2, "No such file or directory")
    device = postroad("backup", "/dev/null", "--force", api=server.api)
    assert (device.code, "choose the name of a file" in device.last_error) == (2, True)
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_reported_and_the_name_stays_free(server: ServerProcess, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    postroad("send", ORDERS, "--body", "x" * 10_000, "--recoverable", "--count", "50", api=server.api)
    file = tmp_path / "large.backup"
    limited = f"ulimit -f 64; trap '' XFSZ; exec {sys.executable} -m postroad --api {server.api} backup {file}"
    run = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (run.returncode, "large.backup: cannot be written: File too large" in run.stderr) == (1, True)
    assert [path.name for path in tmp_path.glob("*large*")] == []


def test_an_interrupted_backup_leaves_no_file(server: ServerProcess, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    directory.mkdir()
    postroad("send", ORDERS, "--body", "x" * 100_000, "--recoverable", "--count", "500", api=server.api)
    command = ["env", "--default-signal=INT", *POSTROAD, "--api", server.api, "backup", str(directory / "b")]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not list(directory.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
    assert code != 0
    assert list(directory.iterdir()) == []
    assert postroad("backup", str(directory / "b"), api=server.api).code == 0  # the manager has ended the first one


def test_a_stopped_manager_is_named(tmp_path: Path) -> None:
    run = postroad("backup", str(tmp_path / "b"), api="http://127.0.0.1:9")
    assert (run.code, "no queue manager answers" in run.last_error) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_only_administrators_back_up(tmp_path: Path) -> None:
    user = '[[user]]\nname = "ann"\npassword = "secret"\n'
    login = {"POSTROAD_USER": "ann", "POSTROAD_PASSWORD": "secret"}
    with serving(configure(tmp_path, "data", user)) as server:
        run = postroad("backup", str(tmp_path / "b"), api=server.api, variables=login)
    assert (run.code, "only administrators" in run.last_error) == (1, True)


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
def test_a_damaged_or_foreign_file_is_refused_before_anything_is_made(file: Path, tmp_path: Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-500] ^= 1
    changed = {"cut": content[:-10], "flipped": content, "foreign": b"[manager]\n" * 100, "empty": b""}[damage]
    file.write_bytes(bytes(changed))
    run = postroad("restore", str(file), "--data", str(tmp_path / "new"))
    assert run.code == 1
    assert run.last_error.startswith(f"postroad: {file}: ")
    words = {"cut": "is cut off", "flipped": "is damaged", "foreign": "`postroad backup` wrote", "empty": "wrote"}
    assert words[damage] in run.last_error
    assert not (tmp_path / "new").exists()


def test_a_directory_with_files_is_refused(file: Path, tmp_path: Path) -> None:
    for directory in (tmp_path / "data", tmp_path):
        run = postroad("restore", str(file), "--data", str(directory))
        assert (run.code, "must be empty, and has" in run.last_error) == (1, True)


def test_a_restore_that_was_interrupted_can_be_repeated_and_starts_no_manager(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new"
    (directory / "restoring").mkdir(parents=True)
    (directory / "restoring" / "store.sqlite").write_bytes(b"half of it")
    config = configure(tmp_path, "new")
    run = subprocess.run(
        [*POSTROAD, "serve", "-c", str(config)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, "a restore was interrupted here" in run.stderr) == (1, True)
    assert postroad("restore", str(file), "--data", str(directory)).code == 0
    assert sorted(path.name for path in directory.iterdir()) == ["keys.pem", "lock", "store.sqlite"]
    with serving(config) as server:
        assert len(contents(server.api)) == 20


def test_new_ids_differ_from_those_that_were_given_after_the_backup(
    server: ServerProcess, file: Path, tmp_path: Path
) -> None:
    later = [
        json.loads(line)["id"]
        for line in postroad("send", ORDERS, "--body", "later", "--json", "--count", "3", api=server.api).lines
    ]
    postroad("restore", str(file), "--data", str(tmp_path / "again"))
    with serving(configure(tmp_path, "again")) as second:
        new = [
            json.loads(line)["id"]
            for line in postroad("send", ORDERS, "--body", "new", "--json", "--count", "3", api=second.api).lines
        ]
    assert len({*later, *new}) == 6


# An incomplete copy of the data directory


@pytest.fixture
def running_copy(server: ServerProcess, tmp_path: Path) -> Path:
    """The files of a running manager."""
    postroad("send", ORDERS, "--body", "hello", "--recoverable", "--count", "20", api=server.api)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", copy)
    return copy


@pytest.mark.parametrize("missing", ["store.sqlite-wal", "journal-0", "journal-1", "store.sqlite"])
def test_a_copy_without_one_of_its_files_is_refused(running_copy: Path, tmp_path: Path, missing: str) -> None:
    (running_copy / missing).unlink()
    if missing == "store.sqlite-wal":
        (running_copy / "store.sqlite-shm").unlink()
    config = configure(tmp_path, "copy")
    for _ in range(2):  # the refusal changes nothing
        run = subprocess.run(
            [*POSTROAD, "serve", "-c", str(config)], capture_output=True, text=True, timeout=60, check=False
        )
        assert run.returncode == 1
        line = run.stderr.splitlines()[-1]
        assert f"{missing}: is missing" in line
        assert "copy all files" in line


def test_a_complete_copy_starts_with_every_message(running_copy: Path, tmp_path: Path) -> None:
    with serving(configure(tmp_path, "copy")) as server:
        assert len(contents(server.api)) == 20


def test_an_operator_can_accept_the_loss(running_copy: Path, tmp_path: Path) -> None:
    for name in ("store.sqlite-wal", "journal-0", "journal-1"):
        (running_copy / name).write_bytes(b"")
    (running_copy / "store.sqlite-shm").unlink()
    with serving(configure(tmp_path, "copy")) as server:
        assert len(contents(server.api)) < 20


def test_a_store_that_was_closed_needs_its_database_alone(server: ServerProcess, tmp_path: Path) -> None:
    postroad("send", ORDERS, "--body", "hello", "--recoverable", "--count", "20", api=server.api)
    assert server.end()[0] == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data" / "store.sqlite", tmp_path / "copy")
    with serving(configure(tmp_path, "copy")) as second:
        assert len(contents(second.api)) == 20
        assert second.ready["id"] == server.ready["id"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    run = postroad("restore", str(tmp_path), "--data", str(tmp_path / "new"))
    assert run.code == 1
    assert run.last_error.startswith(f"postroad: {tmp_path}: ")
