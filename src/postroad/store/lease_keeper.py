"""Keeps the lease of a store in PostgreSQL: looks at its row, takes it, renews it and gives it up, in a thread with a
connection of its own.

When to do what is decided in lease.py. A renewal does not wait for a replica: it only tells the others that this
process lives. A take does, so that everything that the new holder reads is on the replica too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Any

import psycopg

from postroad.errors import StorageError
from postroad.store.lease import Action, Lease, Role, Row
from postroad.store.postgresql_connection import (
    Blame,
    Connection,
    Connector,
    DatabaseFault,
    close_quietly,
    is_broken,
    is_synchronous,
    prepare_tables,
)

log = logging.getLogger(__name__)

RELEASE_S = 3.0  # for which a stop waits for the database
SEEN_S = 5.0  # a standby that was not seen for so long has gone
NOTED_S = 1.0  # between two notes of a standby that it is there

_ROW = "epoch, beat, instance, holder, free"
_LOOK = f"SELECT {_ROW} FROM lease"
_RENEW = f"UPDATE lease SET beat = beat + 1 WHERE epoch = %s AND instance = %s AND NOT free RETURNING {_ROW}"
_TAKE = f"""
UPDATE lease SET fence = fence + 1, epoch = epoch + 1, beat = beat + 1, free = false, instance = %s, holder = %s
WHERE epoch = %s AND beat = %s RETURNING {_ROW}"""
_RELEASE = f"""
UPDATE lease SET fence = fence + 1, beat = beat + 1, free = true WHERE epoch = %s AND instance = %s AND NOT free
RETURNING {_ROW}"""
_CONFIRM = "UPDATE lease SET beat = beat + 1 WHERE epoch = %s AND instance = %s"
_HERE = """
INSERT INTO standby VALUES (%s, %s, clock_timestamp())
ON CONFLICT (instance) DO UPDATE SET seen_at = excluded.seen_at"""
_GONE = "DELETE FROM standby WHERE instance = %s OR seen_at < clock_timestamp() - interval '1 day'"
_STANDBYS = """
SELECT name FROM standby WHERE seen_at > clock_timestamp() - %s * interval '1 second' AND instance <> %s
ORDER BY name"""
# Connections of the process that had the lease: a transaction that it has left open must not keep its locks.
_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND usename = current_user AND datname = current_database()"""


def clock() -> float:
    """A clock that never goes back, and that goes on while the process or the computer sleeps."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


@dataclass(frozen=True, slots=True)
class View:
    """What is known about the lease. `active` is HOST:PID of its holder."""

    role: Role = Role.STANDBY
    epoch: int = 0
    active: str | None = None
    standbys: tuple[str, ...] = ()
    synchronous: bool | None = None
    trouble: str | None = None  # why the database does not answer


class LeaseKeeper:
    """`changed` is called, in the keeper's thread, after the role or the active process has changed. `deposed` is
    called, with the view, if another process has taken over from this one; nothing may be answered after that."""

    def __init__(
        self,
        connector: Connector,
        lease: Lease,
        name: str,
        first_generation: Callable[[], int],
        changed: Callable[[View], object],
        deposed: Callable[[View], object],
    ) -> None:
        self.view = View()
        self.name = name
        self._connector = connector
        self._lease = lease
        self._first_generation = first_generation
        self._changed = changed
        self._deposed = deposed
        self._connection: Connection | None = None
        self._lock = Lock()  # for the lease
        self._wake = Event()
        self._looked = Event()
        self._stopping = False
        self._noted_at = 0.0
        self._thread = Thread(target=self._run, name="postroad-lease", daemon=True)

    @property
    def instance(self) -> Any:
        return self._lease.instance

    def start(self) -> None:
        self._thread.start()

    def holds(self) -> bool:
        """Whether no other process can have taken over yet."""
        return self._lease.holds(clock())

    def look(self, most_s: float) -> bool:
        """Looks at the lease now, and waits for the answer. Returns whether it came."""
        self._looked.clear()
        self._wake.set()
        return self._looked.wait(most_s)

    def hand_over(self) -> None:
        """This process is going to give the lease up. It still renews it, until `finished`."""
        with self._lock:
            self._lease.hand_over()
        self._wake.set()

    def finished(self) -> None:
        """Nothing is under way any more: gives the lease up."""
        with self._lock:
            self._lease.finished()
        self._wake.set()

    def stop(self) -> None:
        """Gives up a lease that is `finished`, and ends the thread, unless the database does not answer."""
        self._stopping = True
        self._wake.set()
        self._thread.join(RELEASE_S)

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except (psycopg.Error, OSError, StorageError) as error:
                self._failed(error)
            except Exception:
                log.exception("the lease's thread failed")
            self._looked.set()
            if self._stopping and self._lease.role is not Role.RELEASING:
                break
            self._wake.wait(self._lease.pause_s())
            self._wake.clear()
        with suppress(psycopg.Error, OSError):
            if self._connection is not None:
                self._connection.execute(_GONE, (self.instance,))
        close_quietly(self._connection)

    def _turn(self) -> None:
        connection = self._connect()
        asked_at = clock()
        lease = self._lease
        row = None
        if lease.role in (Role.ACTIVE, Role.HANDING_OVER):
            row = _row(connection, _RENEW, (lease.epoch, lease.instance))
        elif lease.role is Role.RELEASING:
            row = _row(connection, _RELEASE, (lease.epoch, lease.instance))
        if row is None:
            row = _row(connection, _LOOK)
        if row is None:
            raise DatabaseFault(f"{self._connector.place}: the row of the lease is missing", Blame.SERVER)
        action = self._saw(row, asked_at)
        if action is Action.TAKE and not self._stopping:
            asked_at = clock()
            taken = self._take(connection, row)
            if taken is not None:
                self._saw(taken, asked_at)
        if lease.role in (Role.STANDBY, Role.RESTING) and asked_at - self._noted_at > NOTED_S:
            self._noted_at = asked_at
            connection.execute(_HERE, (lease.instance, self.name))
        standbys = connection.execute(_STANDBYS, (SEEN_S, lease.instance)).fetchall()
        self._show(standbys=tuple(each for (each,) in standbys), synchronous=is_synchronous(connection), trouble=None)

    def _saw(self, row: Row, asked_at: float) -> Action:
        with self._lock:
            action = self._lease.saw(row, asked_at, clock())
        if action is Action.STOP:
            self._show()
            self._deposed(self.view)
        return action

    def _take(self, connection: Connection, row: Row) -> Row | None:
        lease = self._lease
        with connection.transaction():
            connection.execute("SET LOCAL synchronous_commit TO 'on'")
            connection.expect_confirmation()
            taken = _row(connection, _TAKE, (lease.instance, self.name, row.epoch, row.beat))
        while taken is not None and connection.unconfirmed:
            with connection.transaction():
                connection.execute("SET LOCAL synchronous_commit TO 'on'")
                connection.expect_confirmation()
                connection.execute(_CONFIRM, (taken.epoch, lease.instance))
        if taken is not None:
            connection.execute(_END_OTHERS, (self._connector.application("store"),))
            connection.execute(_GONE, (lease.instance,))
        return taken

    def _connect(self) -> Connection:
        if self._connection is None or is_broken(self._connection):
            close_quietly(self._connection)
            self._connection = None
            connection = self._connector.connect("lease")
            prepare_tables(self._connector, connection, self._first_generation)
            connection.execute("SET synchronous_commit TO local")
            self._connection = connection
        return self._connection

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._lease.unreachable()
        fault = error if isinstance(error, StorageError) else self._connector.explain("looking at the lease", error)  # type: ignore[arg-type]
        close_quietly(self._connection)
        self._connection = None
        if self.view.trouble is None:
            log.warning("the database does not answer", extra={"reason": fault})
        self._show(trouble=str(fault))

    def _show(self, **known: Any) -> None:
        lease = self._lease
        before, view = self.view, replace(self.view, **known)
        self.view = view = replace(view, role=lease.role, epoch=lease.epoch, active=lease.active)
        if before.trouble is not None and view.trouble is None:
            log.info("the database answers again")
        if view != before:
            self._changed(view)


def _row(connection: Connection, query: str, parameters: tuple[object, ...] = ()) -> Row | None:
    found = connection.execute(query.encode(), parameters or None).fetchone()
    if found is None:
        return None
    epoch, beat, instance, holder, free = found
    return Row(epoch, beat, instance, holder, free)
