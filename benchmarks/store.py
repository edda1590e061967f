"""What the store costs: records a second through our API, beside plain apsw on the same disk with the same pragmas.

`python -m benchmarks.store`. The plain side has no checksums, no damage checks and no lock: it is the ceiling.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from postroad.store import NEVER, PRIORITY_SHIFT, Batch, Key, LayeredStore, MemoryStore, Record, Store
from postroad.store.database import CHECKPOINT_PAGES, PRAGMAS
from postroad.store.row import pack_key

PACKET_BYTES = 1024
QUEUES = 4
PRIORITIES = 4
ROUNDS = 5
COMMIT_SIZES = {1: 500, 10: 4_000, 100: 20_000, 1000: 40_000}  # records in a commit: records in a round

Rates = tuple[float, float]  # put, scan and delete: records a second


def records(count: int) -> list[Record]:
    body = os.urandom(PACKET_BYTES - 8)
    made = []
    for number in range(count):
        lookup_id = (number // QUEUES % PRIORITIES) << PRIORITY_SHIFT | number
        packet = number.to_bytes(8, "little") + body
        made.append(Record(number % QUEUES, lookup_id, 1_700_000_000_000 + number, NEVER, 0, packet))
    return made


def run_store(store: Store, count: int, size: int) -> Rates:
    work = records(count)
    start = time.perf_counter()
    for place in range(0, count, size):
        batch = Batch({Key(record.queue, record.lookup_id): record for record in work[place : place + size]})
        store.commit([batch])
    half = time.perf_counter()
    for queue in range(QUEUES):
        after = -1
        while found := store.scan(queue, after, size):
            after = found[-1].lookup_id
            store.commit([Batch(deletes={Key(record.queue, record.lookup_id) for record in found})])
    end = time.perf_counter()
    return count / (half - start), count / (end - half)


def run_plain(connection: apsw.Connection, count: int, size: int) -> Rates:
    work = [(pack_key(record.queue, record.lookup_id), record.packet) for record in records(count)]
    start = time.perf_counter()
    for place in range(0, count, size):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO message VALUES (?, ?)", work[place : place + size])
        connection.execute("COMMIT")
    half = time.perf_counter()
    after: apsw.SQLiteValue = -1
    scan = "SELECT key, packet FROM message WHERE key > ? ORDER BY key LIMIT ?"
    while rows := connection.execute(scan, (after, size)).fetchall():
        after = rows[-1][0]
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM message WHERE key = ?", [row[:1] for row in rows])
        connection.execute("COMMIT")
    end = time.perf_counter()
    return count / (half - start), count / (end - half)


def ours(count: int, size: int) -> Rates:
    with tempfile.TemporaryDirectory() as directory:
        store = LayeredStore(Path(directory))
        try:
            return run_store(store, count, size)
        finally:
            store.close()


def plain(count: int, size: int) -> Rates:
    with tempfile.TemporaryDirectory() as directory:
        connection = apsw.Connection(str(Path(directory) / "plain.sqlite"))
        for pragma in (*PRAGMAS, f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"):
            connection.execute(pragma)
        connection.execute("CREATE TABLE message (key INTEGER PRIMARY KEY, packet BLOB)")
        try:
            return run_plain(connection, count, size)
        finally:
            connection.close()


def memory(count: int, size: int) -> Rates:
    return run_store(MemoryStore(), count, size)


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that computes all the time, as an event loop under load does."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(number * number for number in range(200))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def median(runs: list[Rates]) -> Rates:
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def compare(name: str, count: int, size: int, rounds: int = ROUNDS) -> None:
    """Both sides in turn, so both see the same noise."""
    runs = [(ours(count, size), plain(count, size)) for _ in range(rounds)]
    mine, other = median([run[0] for run in runs]), median([run[1] for run in runs])
    print(
        f"{name:<28} {mine[0]:>9,.0f} {other[0]:>9,.0f} {mine[0] / other[0]:>6.2f}"
        f" {mine[1]:>12,.0f} {other[1]:>9,.0f} {mine[1] / other[1]:>6.2f}",
        flush=True,
    )


def in_memory(name: str, run: Callable[[int, int], Rates], size: int) -> None:
    put, read = median([run(20_000, size) for _ in range(ROUNDS)])
    print(f"{name:<28} {put:>9,.0f} {'':>9} {'':>6} {read:>12,.0f}", flush=True)


def main() -> None:
    """Prints records a second: medians of rounds."""
    print(f"store: records of {PACKET_BYTES} bytes a second, {QUEUES} queues, {PRIORITIES} priorities")
    print(f"{'':<28} {'put':>9} {'plain':>9} {'ratio':>6} {'scan+delete':>12} {'plain':>9} {'ratio':>6}")
    for size, count in COMMIT_SIZES.items():
        compare(f"commits of {size}", count, size)
    with busy_thread():
        compare("of 100, beside a busy thread", 1_000, 100, 3)
    in_memory("memory, of 100", memory, 100)
    in_memory("memory, of 1", memory, 1)


if __name__ == "__main__":
    main()
