"""Nothing promised is lost, nothing comes twice, nothing changes places, wherever the disk fails or the power goes.

The short form of tests/torture/store.py, which has the long one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from postroad.store import Batch, Key, LayeredStore, Record
from postroad.store.database import PRAGMAS
from tests.torture.store import failures, make_workload, power_cuts
from tests.torture.vfs import COUNTED, Disk, Kind, Loss, Operation, TortureFiles, fast_directory

STEPS = 6  # enough for full segments, a checkpoint, a log that starts again, and records that span pages


@pytest.fixture(params=["journal", "bulk"])
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if request.param == "bulk":  # some commits go straight to the database
        monkeypatch.setattr("postroad.store.layered.BULK", 4)
        monkeypatch.setattr("postroad.store.layered.MOST", -1.0)
        monkeypatch.setattr("postroad.store.layered.HALF", 0.0)
    monkeypatch.setattr("postroad.store.layered.STEP_ROWS", 1)  # the power goes in the middle of a move too
    monkeypatch.setattr("postroad.store.layered.IDLE_ROWS", 2)
    with fast_directory() as directory:
        yield directory


def test_the_power_goes_before_every_operation(work: Path) -> None:
    tally = power_cuts(work, make_workload(STEPS, seed=1), seeds=1)
    assert tally.faults == 0, str(tally)
    assert tally.points > 300
    assert tally.kinds >= set(COUNTED)


def test_every_operation_fails_once_and_the_store_goes_on(work: Path) -> None:
    tally = failures(work, make_workload(STEPS, seed=1), apsw.IOError, lasting=False)
    assert tally.faults == 0, str(tally)
    assert tally.points > 300


def test_the_disk_is_full_from_every_operation_on(work: Path) -> None:
    tally = failures(work, make_workload(STEPS, seed=1), apsw.FullError, lasting=True)
    assert tally.faults == 0, str(tally)
    assert tally.points > 300


def test_the_sweep_finds_a_journal_that_does_not_sync(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TortureFiles, "sync", lambda self, name, descriptor: None)
    assert power_cuts(work, make_workload(STEPS, seed=1), seeds=0).lost > 0


def test_the_sweep_finds_a_journal_whose_name_is_not_durable(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TortureFiles, "sync_names", lambda self: None)
    assert power_cuts(work, make_workload(STEPS, seed=1), seeds=0).refused > 0  # a start without its journal


def test_the_sweep_finds_a_database_that_does_not_sync(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves into the database has to be there before its segment of the journal is used again."""
    careless = tuple(pragma.replace("synchronous = FULL", "synchronous = NORMAL") for pragma in PRAGMAS)
    assert careless != PRAGMAS
    monkeypatch.setattr("postroad.store.database.PRAGMAS", careless)
    assert power_cuts(work, make_workload(STEPS, seed=1), seeds=0).lost > 0


def test_the_model_of_a_disk_loses_what_was_not_synced() -> None:
    disk = Disk()
    for operation in (
        Operation(Kind.CREATE, "db"),
        Operation(Kind.SYNC_DIRECTORY),
        Operation(Kind.WRITE, "db", 0, b"a" * 1024),
        Operation(Kind.SYNC, "db"),
        Operation(Kind.WRITE, "db", 512, b"b" * 1024),
        Operation(Kind.CREATE, "db-wal"),
    ):
        disk.apply(operation)
    assert disk.after_power_cut(Loss.ALL) == {"db": b"a" * 1024}
    assert disk.after_power_cut(Loss.NONE) == {"db": b"a" * 512 + b"b" * 1024, "db-wal": b""}
    outcomes = {disk.after_power_cut(Loss.SOME, seed)["db"] for seed in range(50)}
    assert b"a" * 512 + b"b" * 512 in outcomes  # torn: the first of its sectors alone
    assert b"a" * 1024 + b"b" * 512 in outcomes  # the second alone
    disk.apply(Operation(Kind.SYNC, "db-wal"))
    assert disk.after_power_cut(Loss.ALL)["db-wal"] == b""


COMMITTER = """
import sys
from pathlib import Path
from postroad.store import Batch, Key, Record, LayeredStore
store = LayeredStore(Path(sys.argv[1]))
for number in range(1_000_000):
    batch = Batch({Key(queue, number): Record(queue, number, 0, 0, 0, b"x" * 2000) for queue in (1, 2)})
    batch.deletes = {Key(2, max(number - 5, 0))}
    batch.state["number"] = str(number).encode()
    store.commit([batch])
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    """Also: the lock of a killed process is free at once."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMITTER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "200\n":
                process.send_signal(signal.SIGKILL)
                break
        promised = int([line, *process.stdout][-1])
    store = LayeredStore(tmp_path)
    number = int(store.state()["number"])
    assert number in (promised, promised + 1)
    assert [record.lookup_id for record in store.scan(1, limit=1_000_000)] == list(range(number + 1))
    assert [record.lookup_id for record in store.scan(2)] == list(range(number - 4, number + 1))
    store.commit([Batch({Key(1, number + 1): Record(1, number + 1, 0, 0, 0, b"")})])
    store.close()
