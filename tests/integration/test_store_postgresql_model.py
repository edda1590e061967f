"""Random histories of stores and queues, as the other tests of models have them, on a store in PostgreSQL."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from postroad.errors import LeaseLost
from postroad.manager.composition import SECRET
from postroad.queues.local import LocalQueueManager
from postroad.store import Batch, MemoryStore
from postroad.store.postgresql import PostgresqlStore
from tests.clusters import Cluster, new_schema, open_postgresql_store
from tests.integration.test_queue_model import IDENTIFIER, QueueMachine
from tests.unit.test_store_model import Model, Stores


class PostgresqlStores(Stores):
    """A kill here is another process that takes over while the old one lives."""

    cluster: ClassVar[Cluster]

    @initialize(segment_bytes=st.sampled_from((1000, 3000, 100_000)), bulk=st.just(False))
    def begin(self, segment_bytes: int, bulk: bool) -> None:
        self.segment_bytes = segment_bytes
        self.schema = new_schema()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("postroad.store.layered.STEP_ROWS", 2)
        self.patch.setattr("postroad.store.layered.IDLE_ROWS", 3)
        self.patch.setattr("postroad.store.layered.MAX_ENTRIES", 12)
        self.durable = self.open()
        self.memory = MemoryStore()
        self.model = Model()

    def open(self) -> PostgresqlStore:
        return open_postgresql_store(self.cluster, self.schema, segment_bytes=self.segment_bytes)

    @rule()
    def kill(self) -> None:
        deposed = self.durable
        self.durable = self.open()
        with pytest.raises(LeaseLost, match="test:1 has taken over"):
            deposed.commit([Batch(state={"of the deposed": b"x"})])
        deposed.close()

    def teardown(self) -> None:
        if hasattr(self, "durable"):
            self.durable.close()
            self.patch.undo()


class PostgresqlQueues(QueueMachine):
    """What a manager does to its queues, on this store."""

    cluster: ClassVar[Cluster]

    def __init__(self) -> None:
        super().__init__()
        self.schema = new_schema()

    def open_store(self) -> None:
        self.store = open_postgresql_store(self.cluster, self.schema)
        self.manager = LocalQueueManager("alpha", IDENTIFIER, self.store, SECRET)
        self.manager.start(self.now)
        self.commit_tick()


@pytest.fixture(autouse=True)
def server(cluster: Cluster) -> None:
    PostgresqlStores.cluster = PostgresqlQueues.cluster = cluster


TestPostgresqlStores = PostgresqlStores.TestCase
TestPostgresqlStores.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestPostgresqlQueues = PostgresqlQueues.TestCase
TestPostgresqlQueues.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
