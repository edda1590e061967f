"""The rate of an embedded queue manager in one process, compared with the same work on plain SQLite.

Bodies of 1 KiB. SQLite's rates are the limit: a table, executemany, the same number of rows and syncs, and nothing
else.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from benchmarks.harness import print_table
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.store import open_store

BODY = b"x" * 1024
BATCH = 100
MESSAGES = 20_000
ROUNDS = 3


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        sqlite_send, sqlite_receive = _best(lambda: _plain_sqlite(Path(directory)))
    for kind in ("recoverable", "transactional", "express"):
        send, receive = _best(lambda kind=kind: asyncio.run(_manager(kind)))  # type: ignore[misc]
        limits = ("-", "-") if kind == "express" else (f"{send / sqlite_send:.2f}", f"{receive / sqlite_receive:.2f}")
        rows.append((kind, f"{send:,.0f}", limits[0], f"{receive:,.0f}", limits[1]))
    rows.append(("plain SQLite, executemany", f"{sqlite_send:,.0f}", "1.00", f"{sqlite_receive:,.0f}", "1.00"))
    print_table(
        f"Embedded queue manager, 1 KiB bodies, {BATCH} messages a call or transaction, messages a second",
        ("delivery", "send", "of SQLite", "receive", "of SQLite"),
        rows,
        f"best of {ROUNDS} rounds of {MESSAGES:,} messages",
    )


def _best(measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    results = [measure() for _ in range(ROUNDS)]
    return max(send for send, _ in results), max(receive for _, receive in results)


async def _manager(kind: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as directory:
        manager = build_manager(default_configuration("bench"), open_store(directory))
        await manager.start()
        path = r"private$\bench"
        await manager.create_queue(path, transactional=kind == "transactional")
        batch = [Message(BODY, label="bench", recoverable=kind == "recoverable")] * BATCH

        async def send() -> None:
            transaction = manager.begin() if kind == "transactional" else None
            await manager.send(path, batch, transaction)
            if transaction is not None:
                await manager.commit(transaction)

        async def receive() -> None:
            transaction = manager.begin() if kind == "transactional" else None
            await manager.reads.receive(path, BATCH, 0, transaction)
            if transaction is not None:
                await manager.commit(transaction)

        rates = await _rate(send), await _rate(receive)
        await manager.stop()
        return rates


async def _rate(step: Callable[[], Awaitable[None]]) -> float:
    start = time.perf_counter()
    for _ in range(MESSAGES // BATCH):
        await step()
    return MESSAGES / (time.perf_counter() - start)


def _plain_sqlite(directory: Path) -> tuple[float, float]:
    """One table, one writer, WAL and synchronous FULL."""
    file = directory / "plain.sqlite"
    file.unlink(missing_ok=True)
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, packet BLOB NOT NULL)")
    start = time.perf_counter()
    for batch in range(MESSAGES // BATCH):
        with connection:
            connection.executemany(
                "INSERT INTO message VALUES (?, ?)", [(batch * BATCH + each, BODY) for each in range(BATCH)]
            )
    send = MESSAGES / (time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(MESSAGES // BATCH):
        with connection:
            rows = connection.execute("SELECT id, packet FROM message ORDER BY id LIMIT ?", (BATCH,)).fetchall()
            connection.executemany("DELETE FROM message WHERE id = ?", [(row[0],) for row in rows])
    receive = MESSAGES / (time.perf_counter() - start)
    connection.close()
    return send, receive


if __name__ == "__main__":
    main()
