"""Readers come, read, acknowledge, cancel and vanish in any order: what always holds."""

from __future__ import annotations

from random import Random

import pytest

from postroad.errors import OperationCancelled
from postroad.remote_read.values import INFINITE_MS, Ack, Action
from tests.unit.queues.harness import ORDERS
from tests.unit.remote_read.harness import OK, Harness, Read, Reader

STEPS = 150
READERS = 4


class World:
    """A harness, its readers, and what happened to every message."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.harness = Harness()
        self.sent: list[str] = []
        self.taken: list[str] = []
        self.purged: set[str] = set()
        self.reads: list[Read] = []
        self.readers = [self.harness.reader() for _ in range(READERS)]
        self.held: dict[Reader, list[Read]] = {reader: [] for reader in self.readers}

    def step(self) -> None:
        reader = self.chance.choice(self.readers)
        actions = (self.send, self.receive, self.receive, self.peek, self.end, self.end, self.cancel)
        rare = (self.lookup, self.vanish, self.purge, self.leave_while_waiting, self.pass_time)
        self.chance.choice((*actions, *actions, *rare))(reader)
        self.harness.queues.tick()
        self.collect()

    def send(self, reader: Reader) -> None:
        label = f"message {len(self.sent)}"
        self.sent.append(label)
        self.harness.send(label)

    def receive(self, reader: Reader) -> None:
        wait_ms = self.chance.choice((0, 1000, INFINITE_MS))
        self.keep(reader, reader.ask(Action.RECEIVE, wait_ms))

    def peek(self, reader: Reader) -> None:
        self.reads.append(reader.ask(Action.PEEK_CURRENT, self.chance.choice((0, 1000, INFINITE_MS))))

    def lookup(self, reader: Reader) -> None:
        self.keep(reader, reader.lookup(Action.LOOKUP_RECEIVE_NEXT, 0))

    def keep(self, reader: Reader, read: Read) -> None:
        self.reads.append(read)
        self.held[reader].append(read)

    def answered(self, reader: Reader) -> list[Read]:
        return [each for each in self.held[reader] if not each.waits and each.entry is not None]

    def end(self, reader: Reader) -> None:
        for read in self.answered(reader)[:1]:
            self.held[reader].remove(read)
            ack = self.chance.choice((Ack.RR_ACK, Ack.RR_ACK, Ack.RR_NACK))
            assert reader.end(read, ack) == OK
            if ack is Ack.RR_ACK and read.label is not None and read.label not in self.purged:
                self.taken.append(read.label)

    def cancel(self, reader: Reader) -> None:
        for entry in [*reader.remote.waiting.values()][:1]:
            reader.cancel(entry.request_id)

    def leave_while_waiting(self, reader: Reader) -> None:
        for entry in [*reader.remote.waiting.values()][:1]:
            gone = [read for read in self.reads if read.pending is entry]
            queue, waiting = self.harness.waiting(gone[0])
            self.harness.queues.manager.reading.cancel(queue, waiting, OperationCancelled("the reader left"))
            for read in gone:
                self.reads.remove(read)  # nobody is told
                if read in self.held[reader]:
                    self.held[reader].remove(read)

    def vanish(self, reader: Reader) -> None:
        """The rundown of everything that the reader has. A new reader takes its place."""
        for read in self.answered(reader):
            if self.chance.random() < 0.5:  # the handles of reads may come first, or that of the queue
                reader.end(read, Ack.RR_NACK)
        assert reader.close() == OK
        self.readers.remove(reader)
        del self.held[reader]
        fresh = self.harness.reader()
        self.readers.append(fresh)
        self.held[fresh] = []

    def purge(self, reader: Reader) -> None:
        self.purged = set(self.sent) - set(self.taken)
        assert reader.purge() == OK

    def pass_time(self, reader: Reader) -> None:
        self.harness.queues.wait(self.chance.choice((0.4, 2)))

    def collect(self) -> None:
        """What always holds."""
        assert all(len(read.answers) <= 1 for read in self.reads)
        queue = self.harness.queues.queue(ORDERS)
        held = [read for reader in self.readers for read in self.answered(reader)]
        assert len(queue.positions) == len(held) == sum(len(each.remote.unacknowledged) for each in self.readers)
        assert len(queue.waiting) == self.harness.pending() == sum(read.waits for read in self.reads)
        available = self.harness.labels()
        assert [label for label in self.sent if label in set(available)] == available  # each in its place
        if available:
            assert not any(request.destructive for request in queue.waiting)  # nobody waits for what is there


@pytest.mark.spec("QP-3.1.1.3-02", "QP-3.1.1.5-02")
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled_in_any_order(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    for reader in list(world.readers):
        assert reader.close() == OK
    assert len(set(world.taken)) == len(world.taken)
    left = world.harness.labels()
    assert not set(left) & set(world.taken)
    assert set(world.taken) | set(left) | world.purged == set(world.sent)
    assert all(len(read.answers) == 1 for read in world.reads)
    assert (world.harness.mqqp.remote_queues, world.harness.service.opened) == ({}, {})
    queue = world.harness.queues.queue(ORDERS)
    assert (queue.waiting, queue.positions, queue.descriptors) == ([], {}, [])
