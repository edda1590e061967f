"""The connection to PostgreSQL is cut at every message of its protocol: each commit takes place, once and in order."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from struct import unpack
from threading import Lock, Thread
from uuid import uuid4

import pytest

from postroad.errors import LeaseLost
from postroad.store import Batch, Record
from postroad.store.postgresql import PostgresqlStore, first_generation
from postroad.store.postgresql_connection import Connector, Place, prepare_tables
from tests.clusters import Cluster, new_schema, postgresql_store
from tests.unit.test_store_model import Model

STEP = int(os.environ.get("POSTROAD_CUT_STEP", "67"))  # all cuts together, with 1, take more than ten minutes
COMMITS = 12


class Cutter:
    """Passes messages on between a client and the server, and cuts the connection of the n-th one before it passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = Lock()
        self._cut_at = 0
        self.passed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def cut_at(self, number: int) -> None:
        with self._lock:
            self.passed, self._cut_at = 0, number

    def close(self) -> None:
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += [client, server]
                Thread(target=self._pump, args=(client, server, True), daemon=True).start()
                Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, starts: bool) -> None:
        """The first message of a client has no type."""
        try:
            with source.makefile("rb") as stream:
                while True:
                    kind = b"" if starts else stream.read(1)
                    size = stream.read(4)
                    if len(size) < 4:
                        break
                    body = stream.read(unpack(">I", size)[0] - 4)
                    starts = False
                    with self._lock:
                        self.passed += 1
                        if self.passed == self._cut_at:
                            break
                    target.sendall(kind + size + body)
        except (OSError, ValueError):
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutter(cluster: Cluster) -> Iterator[Cutter]:
    made = Cutter(cluster.port)
    yield made
    made.close()


@contextmanager
def store_through(cutter: Cutter, schema: str) -> Iterator[PostgresqlStore]:
    """A store whose connections go through the cutter. Its generations are full after a few commits."""
    url = f"postgresql://postgres@127.0.0.1:{cutter.port}/postgres?sslmode=disable&gssencmode=disable"
    connector = Connector(Place(url, schema))
    instance = uuid4()
    with connector.connect("lease") as connection:
        prepare_tables(connector, connection, first_generation)
        connection.execute("UPDATE lease SET epoch = 1, free = false, instance = %s, holder = 'x:1'", (instance,))
    store = PostgresqlStore(connector, 1, instance, lambda holder: None, segment_bytes=1000)
    try:
        yield store
    finally:
        store.close()


def batches() -> list[Batch]:
    """Each commit adds two messages, deletes one of the last commits, and counts in the state."""
    made = []
    for number in range(COMMITS):
        records = [Record(1, 10 * number + each, 5, 0, 0, b"%d" % number * 30) for each in (1, 2)]
        batch = Batch({(each.queue, each.lookup_id): each for each in records}, state={"count": b"%d" % number})
        if number > 3:
            batch.deletes.add((1, 10 * (number - 4) + 1))
            batch.puts[1, 10 * (number - 3) + 2] = replaced = Record(1, 10 * (number - 3) + 2, 6, 0, number, b"again")
            assert replaced.aborts == number
        made.append(batch)
    return made


def commit_all(store: PostgresqlStore, model: Model) -> None:
    for batch in batches():
        store.commit([batch])
        model.apply(batch)
        store.tidy(busy=True)
    store.tidy()


def test_a_cut_at_any_message_loses_and_doubles_nothing(cluster: Cluster, cutter: Cutter) -> None:
    with store_through(cutter, new_schema()) as store:
        cutter.cut_at(0)
        commit_all(store, Model())
        last = cutter.passed
    assert last > 10 * COMMITS
    for number in range(1, last + 1, STEP):
        schema, model = new_schema(), Model()
        with store_through(cutter, schema) as store:
            cutter.cut_at(number)
            commit_all(store, model)
        with postgresql_store(cluster, schema) as store:
            assert store.scan(1, limit=1000) == model.scan(1, -1, 1000), number
            assert store.state() == model.state, number
            assert not store.damaged


def test_a_commit_that_was_on_its_way_does_not_arrive_after_a_takeover(cluster: Cluster, cutter: Cutter) -> None:
    schema = new_schema()
    with store_through(cutter, schema) as deposed:
        deposed.commit([batches()[0]])
        with postgresql_store(cluster, schema) as successor:
            assert [each.lookup_id for each in successor.scan(1)] == [1, 2]
            for number in (1, 2, 3):
                cutter.cut_at(number)
                with pytest.raises(LeaseLost):
                    deposed.commit([batches()[number]])
            assert [each.lookup_id for each in successor.scan(1)] == [1, 2]
            successor.commit([batches()[4]])
        with postgresql_store(cluster, schema) as again:
            assert [each.lookup_id for each in again.scan(1)] == [2, 12, 41, 42]
