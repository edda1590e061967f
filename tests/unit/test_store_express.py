"""Records that leave an ExpressStore together: whichever they are, the others stay, in order."""

from __future__ import annotations

from random import Random

import pytest

from postroad.store import NEVER, PRIORITY_SHIFT, Record
from postroad.store.express import ExpressStore


def record(queue: int, arrival: int, rank: int = 4, expires_s: int = NEVER) -> Record:
    return Record(queue, rank << PRIORITY_SHIFT | arrival, 0, expires_s, 0, b"packet", 0)


FIRST = [record(1, arrival) for arrival in range(1, 21)]
EXPIRING = [record(1, arrival, expires_s=100) for arrival in range(21, 24)]
URGENT = [record(1, arrival, rank=3) for arrival in range(30, 33)]
OTHER = [record(2, arrival) for arrival in range(1, 6)]  # with the lookup ids of queue 1
EVERYTHING = [*FIRST, *EXPIRING, *URGENT, *OTHER]


def check(store: ExpressStore, left: list[Record]) -> None:
    for queue in (1, 2):
        expected = sorted((each for each in left if each.queue == queue), key=lambda each: each.lookup_id)
        assert store.scan(queue, limit=100) == expected
    assert store.expired(1000) == [each for each in left if each.expires_s]


@pytest.mark.parametrize(
    "gone",
    [
        [],
        FIRST[:5],
        FIRST[3:7],
        [FIRST[0], FIRST[2]],
        [*FIRST, *EXPIRING],
        URGENT,
        [*URGENT, *FIRST[:2]],
        [FIRST[0], OTHER[1], FIRST[2]],
        OTHER[:4],
        [record(3, 1)],
    ],
)
def test_records_that_leave_together(gone: list[Record]) -> None:
    store = ExpressStore()
    store.put_all(EVERYTHING)
    store.delete_all(gone)
    check(store, [each for each in EVERYTHING if each not in gone])


def test_records_that_leave_in_any_order_and_partly_twice() -> None:
    for seed in range(200):
        random = Random(seed)
        store, left = ExpressStore(), list(EVERYTHING)
        store.put_all(EVERYTHING)
        for _ in range(8):
            start = random.choice((0, 0, random.randrange(len(EVERYTHING))))
            gone = left[start : start + random.randrange(6)] + random.sample(EVERYTHING, random.choice((0, 0, 2)))
            store.delete_all(gone)
            left = [each for each in left if each not in gone]
            check(store, left)
