"""What the store costs: processor time of a message that arrives and leaves, and records per second.

`python -m benchmarks.store`. It is compared with the database alone, without the journal, and with plain apsw on the
same disk with the same pragmas. The plain variant has no checksums, no damage checks and no lock.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import apsw

from benchmarks.harness import print_table
from postroad.store import NEVER, PRIORITY_SHIFT, Batch, Key, LayeredStore, MemoryStore, Record
from postroad.store.database import CHECKPOINT_PAGES, PRAGMAS
from postroad.store.rows import Mark, pack_key
from postroad.store.sqlite import SqliteStore

PACKET_BYTES = 1400  # a body of 1 KiB with its headers
ROUNDS = 3
WAITING = 4  # commits until a message leaves
COMMIT_SIZES = {1: 500, 10: 4_000, 100: 20_000, 1000: 60_000}  # records in a commit: records in a round


class Subject(Protocol):
    def commit(self, batches: Iterable[Batch]) -> None: ...

    def close(self) -> None: ...


class Database(SqliteStore):
    """The database alone, with a transaction for each commit."""

    def commit(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.write(batch.deletes, batch.puts, batch.state, Mark(0, 0))


class Plain:
    """A table of keys and packets."""

    def __init__(self, directory: Path) -> None:
        self._connection = apsw.Connection(str(directory / "plain.sqlite"))
        for pragma in (*PRAGMAS, f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"):
            self._connection.execute(pragma).fetchall()
        self._connection.execute("CREATE TABLE message (key INTEGER PRIMARY KEY, packet BLOB)")

    def commit(self, batches: Iterable[Batch]) -> None:
        execute = self._connection
        execute.execute("BEGIN")
        for batch in batches:
            execute.executemany("DELETE FROM message WHERE key = ?", [(pack_key(*key),) for key in batch.deletes])
            rows = [(pack_key(*key), record.packet) for key, record in batch.puts.items()]
            execute.executemany("INSERT INTO message VALUES (?, ?)", rows)
        execute.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "journal and database": LayeredStore,
    "database alone": Database,
    "plain apsw": Plain,
    "memory": lambda directory: MemoryStore(),
}


def batches(count: int, size: int) -> list[Batch]:
    """Yields batches. Each puts messages, and deletes those of a few commits before."""
    body = os.urandom(PACKET_BYTES)
    made: list[Batch] = []
    for first in range(1, count + 1, size):
        records = [Record(1, 3 << PRIORITY_SHIFT | first + place, 0, NEVER, 0, body) for place in range(size)]
        puts: dict[tuple[int, int], Record] = {Key(1, record.lookup_id): record for record in records}
        deletes = set(made[-WAITING].puts) if len(made) >= WAITING else set()
        made.append(Batch(puts, deletes, {"count/1": bytes(24)}))
    return made


@contextmanager
def opened(make: Callable[[Path], Subject]) -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as directory:
        subject = make(Path(directory))
        try:
            yield subject
        finally:
            subject.close()


def measure(make: Callable[[Path], Subject], count: int, size: int) -> tuple[float, float]:
    """Microseconds for a message that is put and deleted: processor time, and by the clock."""
    work = batches(count, size)
    with opened(make) as subject:
        clock, used = time.perf_counter(), time.process_time()
        for batch in work:
            subject.commit([batch])
        return (time.process_time() - used) / count * 1e6, (time.perf_counter() - clock) / count * 1e6


def main() -> None:
    """Prints the best of several rounds: noise on a shared machine only ever adds time."""
    rows = []
    for size, count in COMMIT_SIZES.items():
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in SUBJECTS}
        for _ in range(ROUNDS):  # in turn, so that all see the same noise
            for name, make in SUBJECTS.items():
                found[name].append(measure(make, count, size))
        for name, figures in found.items():
            used, clock = (min(each) for each in zip(*figures, strict=True))
            rows.append((f"{name}, commits of {size}", f"{used:.1f}", f"{clock:.1f}", f"{1e6 / clock:,.0f}"))
    print_table(
        f"A message of {PACKET_BYTES} bytes, put and deleted",
        ("", "processor time, us", "by the clock, us", "messages/s"),
        rows,
    )


if __name__ == "__main__":
    main()
