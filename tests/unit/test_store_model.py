"""Random histories: the durable store and memory against a plain dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from struct import iter_unpack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from postroad.store import MAX_ARRIVAL, PRIORITY_SHIFT, Batch, Key, LayeredStore, MemoryStore, Record, Store

QUEUES = (0, 1, 65535)
NAMES = ("a", "ab", "b/1", "b/☃")

lookup_ids = st.one_of(
    st.integers(0, 12),
    st.builds(
        lambda priority, arrival: priority << PRIORITY_SHIFT | arrival,
        st.integers(0, 7),
        st.one_of(st.integers(0, 5), st.just(MAX_ARRIVAL)),
    ),
)
keys = st.builds(Key, st.sampled_from(QUEUES), lookup_ids)
packets = st.one_of(st.binary(max_size=20), st.integers(0, 20_000).map(bytes))
heads = st.tuples(st.integers(0, 1 << 43), st.one_of(st.just(0), st.integers(1, 30)), st.integers(0, 3))
values = st.one_of(st.none(), st.binary(max_size=20))
records = st.builds(
    lambda key, head, packet: Record(key.queue, key.lookup_id, head[0], head[1], head[2], packet), keys, heads, packets
)
batches = st.builds(
    lambda puts, deletes, state: Batch(
        {Key(record.queue, record.lookup_id): record for record in puts}, deletes, state
    ),
    st.lists(records, max_size=6),
    st.sets(keys, max_size=6),
    st.dictionaries(st.sampled_from(NAMES), values, max_size=2),
)


class Model:
    """What a store holds, in the plainest way."""

    def __init__(self, records: dict[Key, Record] | None = None, state: dict[str, bytes] | None = None) -> None:
        self.records = dict(records or {})
        self.state = dict(state or {})

    def apply(self, batch: Batch) -> None:
        for key in batch.deletes:
            self.records.pop(Key(*key), None)
        self.records.update({Key(*key): record for key, record in batch.puts.items()})
        for name, value in batch.state.items():
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value

    def scan(self, queue: int, after: int, limit: int) -> list[Record]:
        ids = sorted(key.lookup_id for key in self.records if key.queue == queue and key.lookup_id > after)
        return [self.records[Key(queue, lookup_id)] for lookup_id in ids[:limit]]

    def scan_back(self, queue: int, before: int, limit: int) -> list[Record]:
        ids = sorted(key.lookup_id for key in self.records if key.queue == queue and key.lookup_id < before)
        return [self.records[Key(queue, lookup_id)] for lookup_id in ids[::-1][:limit]]

    def expired(self, now_s: int, limit: int) -> list[Record]:
        due = [record for record in self.records.values() if 0 < record.expires_s < now_s]
        return sorted(due, key=lambda record: (record.expires_s, record.queue, record.lookup_id))[:limit]


def check_reads(subject: Store, model: Model, key: Key, limit: int, now_s: int) -> None:
    assert subject.scan(key.queue, key.lookup_id, limit) == model.scan(key.queue, key.lookup_id, limit)
    assert subject.scan_back(key.queue, key.lookup_id, limit) == model.scan_back(key.queue, key.lookup_id, limit)
    assert subject.get(*key) == model.records.get(key)
    assert subject.expired(now_s, limit) == model.expired(now_s, limit)
    kept = [record for record in model.expired(now_s, 1000) if record.queue != key.queue]
    assert subject.expired(now_s, limit, lambda each: each.queue == key.queue) == kept[:limit]
    assert dict(subject.state("b")) == {name: value for name, value in model.state.items() if name.startswith("b")}
    # Lookup order is arrival order within a priority: the first of each priority is its oldest.
    firsts: dict[tuple[int, int], Record] = {}
    for each in sorted(model.records):
        firsts.setdefault((each.queue, each.lookup_id >> PRIORITY_SHIFT), model.records[each])
    assert dict(subject.oldest()) == {
        queue: min(record.arrived_ms for (other, _), record in firsts.items() if other == queue)
        for queue in {each.queue for each in model.records}
    }
    assert not subject.damaged


def check_columns(subject: Store, model: Model, key: Key, last: int, limit: int, most_bytes: int) -> None:
    wanted = [each for each in model.scan(key.queue, key.lookup_id, 1000) if each.lookup_id <= last][:limit]
    assert subject.lookup_ids(key.queue, key.lookup_id, last, limit) == [each.lookup_id for each in wanted]
    while len(wanted) > 1 and sum(len(each.packet) for each in wanted) > most_bytes:
        wanted.pop()
    columns = subject.columns(key.queue, key.lookup_id, last, limit, most_bytes)
    assert columns is not None
    assert [row[:6] for row in iter_unpack(">8q", columns.numbers)] == [
        (each.lookup_id, len(each.packet), each.arrived_ms, each.expires_s, each.aborts, each.reason) for each in wanted
    ]
    assert columns.packets == b"".join(each.packet for each in wanted)


class Stores(RuleBasedStateMachine):
    """The two stores, batch for batch. The small segments of the journal are full after a few commits, and what they
    hold moves into the database in small steps."""

    @initialize(segment_bytes=st.sampled_from((1000, 3000, 100_000)), bulk=st.booleans())
    def begin(self, segment_bytes: int, bulk: bool) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.segment_bytes = segment_bytes
        self.kills = 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("postroad.store.layered.STEP_ROWS", 2)
        self.patch.setattr("postroad.store.layered.IDLE_ROWS", 3)
        self.patch.setattr("postroad.store.layered.MAX_ENTRIES", 12)
        if bulk:  # some commits go straight to the database
            self.patch.setattr("postroad.store.layered.BULK", 3)
            self.patch.setattr("postroad.store.layered.MOST", -1.0)
            self.patch.setattr("postroad.store.layered.HALF", 0.0)
        self.durable: Store = self.open()
        self.memory = MemoryStore()
        self.model = Model()

    def open(self) -> Store:
        return LayeredStore(self.directory / str(self.kills), segment_bytes=self.segment_bytes)

    @rule(group=st.lists(batches, max_size=4))
    def commit(self, group: list[Batch]) -> None:
        for batch in group:
            self.model.apply(batch)
        self.durable.commit(group)
        self.memory.commit(group)

    @rule(key=keys, limit=st.integers(1, 5), now_s=st.integers(0, 40))
    def read(self, key: Key, limit: int, now_s: int) -> None:
        check_reads(self.durable, self.model, key, limit, now_s)
        check_reads(self.memory, self.model, key, limit, now_s)

    @rule(
        key=keys,
        last=lookup_ids | st.just((1 << 62) - 1),
        limit=st.integers(1, 5),
        most_bytes=st.sampled_from((1, 100, 1 << 20)),
    )
    def read_columns(self, key: Key, last: int, limit: int, most_bytes: int) -> None:
        check_columns(self.durable, self.model, key, last, limit, most_bytes)
        check_columns(self.memory, self.model, key, last, limit, most_bytes)

    @rule()
    def reopen(self) -> None:
        self.durable.close()
        self.durable = self.open()

    @rule()
    def kill(self) -> None:
        """The files as they are now are all that a killed process leaves."""
        left = self.directory / str(self.kills)
        self.kills += 1
        shutil.copytree(left, self.directory / str(self.kills))
        self.durable.close()
        shutil.rmtree(left)
        self.durable = self.open()

    @rule(busy=st.booleans())
    def tidy(self, busy: bool) -> None:
        self.durable.tidy(busy=busy)

    @invariant()
    def all_is_there(self) -> None:
        if hasattr(self, "model"):
            for queue in QUEUES:
                expected = self.model.scan(queue, -1, 1000)
                assert self.durable.scan(queue, limit=1000) == expected
                assert self.memory.scan(queue, limit=1000) == expected
            assert self.durable.state() == self.memory.state() == self.model.state

    def teardown(self) -> None:
        if hasattr(self, "durable"):
            self.durable.close()
            self.patch.undo()
            shutil.rmtree(self.directory)


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
