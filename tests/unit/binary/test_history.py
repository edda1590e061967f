"""Which messages have come already, although strangers try to make the manager forget or confuse those of others."""

from __future__ import annotations

from random import Random

import pytest

from postroad.carriers.arrivals import MessageIdHistory, foreign_id
from postroad.queues.tick import Tick
from postroad.store import MemoryStore

HONEST, PARTNER, STRANGER = "192.0.2.1", "192.0.2.2", "192.0.2.66"


def identifier(number: int) -> bytes:
    return number.to_bytes(20, "little")


def history(size: int) -> MessageIdHistory:
    return MessageIdHistory(MemoryStore(), size, lifetime_s=1800)


def test_a_flood_from_one_address_does_not_push_out_what_another_has_sent() -> None:
    known = history(1000)
    for number in range(100):
        known.add(identifier(number), 0.0, None, HONEST)
    for number in range(100_000, 110_000):
        known.add(identifier(number), 1.0, None, STRANGER)
    assert all(identifier(number) in known for number in range(100))
    assert len(known) <= 1100


def test_a_flood_from_many_addresses_pushes_out_no_known_one_and_no_quiet_one() -> None:
    """Twice: with messages that no queue accepts, and with messages that are accepted."""
    known = MessageIdHistory(MemoryStore(), 1000, 1800, is_known=lambda address: address == PARTNER)
    known.add_all([identifier(number) for number in range(900)], 0.0, None, PARTNER)
    known.add_all([identifier(number) for number in range(1000, 1050)], 0.0, None, HONEST)
    for taken in (False, True):
        for number in range(100_000, 120_000):
            known.add(identifier(number), 1.0, None, f"10.0.0.{number % 100}", taken=taken)
        assert len(known) <= known.limit
        assert all(identifier(number) in known for number in range(900))
        assert all(identifier(number) in known for number in range(1000, 1050))
    known.add_all([identifier(1)], 1.0, None, "192.0.2.3", taken=False)  # and somebody new is remembered too
    assert identifier(1) in known


def test_what_is_remembered_stays_in_the_store_whatever_others_send() -> None:
    store = MemoryStore()
    known = MessageIdHistory(store, 100, 1800)
    mine = [identifier(number) for number in range(80)]
    for number in range(200):
        tick = Tick()
        if number < 8:
            known.add_all(mine[10 * number : 10 * number + 10], 0.0, tick, HONEST)
        known.add_all([identifier(1000 + 10 * number + each) for each in range(10)], 0.0, tick, STRANGER)
        for callback in tick.on_seal:
            callback()
        store.commit([tick.batch])
        assert sum(map(len, store.state("history/").values())) // 24 <= 100 + 180 + 20
    again = MessageIdHistory(store, 100, 1800)
    assert all(each in again for each in mine)
    for number in range(10_000):
        again.add(identifier(5000 + number), 1.0, None, f"10.0.{number % 200}.1")
    assert all(each in again for each in mine)


def test_the_oldest_of_the_address_with_most_are_forgotten() -> None:
    known = history(3)
    for number in range(4):
        known.add(identifier(number), 0.0, None, HONEST)
    assert [number for number in range(4) if identifier(number) in known] == [1, 2, 3]


def test_a_repeated_message_counts_once() -> None:
    known = history(2)
    for _ in range(5):
        known.add(identifier(1), 0.0, None, HONEST)
    known.add(identifier(2), 0.0, None, STRANGER)
    assert identifier(1) in known
    assert identifier(2) in known


def test_a_message_in_anothers_name_is_no_duplicate_of_the_others() -> None:
    mine = identifier(7)
    assert foreign_id(mine, STRANGER) != mine
    assert foreign_id(mine, STRANGER) == foreign_id(mine, STRANGER)
    assert foreign_id(mine, STRANGER) != foreign_id(mine, HONEST)
    assert len(foreign_id(mine, STRANGER)) == len(mine)


def test_what_has_expired_is_forgotten_for_every_address() -> None:
    known = history(10)
    known.add(identifier(1), 0.0, None, HONEST)
    known.add(identifier(2), 2000.0, None, STRANGER)
    known.clean(2000.0)
    assert identifier(1) not in known
    assert identifier(2) in known


def test_several_that_come_together_are_known_at_once() -> None:
    known = history(10)
    some = [identifier(number) for number in range(5)]
    assert not known.has_any(some)
    assert known.has_any([identifier(6), identifier(6)])  # one of them would be a duplicate of the other
    known.add_all(some, 1.0, None, HONEST)
    assert known.has_any([identifier(9), identifier(4)])
    assert not known.has_any([identifier(9)])
    assert known.deadline == 1.0 + 1800 + 1


@pytest.mark.parametrize("seed", range(10))
def test_together_or_one_by_one_the_same_are_known_and_written(seed: int) -> None:
    """A batch may forget fewer of the oldest ids on its way, but never more than it must."""
    random = Random(seed)
    together, singly = history(50), history(50)
    ticks = Tick(), Tick()
    number = 0
    for now in range(20):
        address = random.choice((HONEST, STRANGER, STRANGER, ""))
        some = [identifier(number + place) for place in range(random.randrange(1, 9))]
        number += len(some)
        together.add_all(some, now, ticks[0], address)
        for each in some:
            singly.add(each, now, ticks[1], address)
        if random.random() < 0.2:
            for known in (together, singly):
                known.refresh(some[0], now + 0.5)
                known.forget(some[-1])
        assert len(together) <= 150
        assert all(each in together for each in some[:-1])
    for tick in ticks:
        for callback in tick.on_seal:
            callback()
    assert ticks[0].batch.state == ticks[1].batch.state
    assert abs(len(together) - len(singly)) <= 27


def test_one_that_is_alone_gives_up_only_its_own_oldest() -> None:
    known = history(108)
    known.add_all([identifier(number) for number in range(20)], 0.0, None, HONEST)
    known.add_all([identifier(number) for number in range(100, 208)], 0.0, None, STRANGER)
    known.add_all([identifier(300), identifier(301)], 0.0, None, STRANGER)
    assert len(known) == 127
    assert [number for number in range(100, 110) if identifier(number) not in known] == [100, 101, 102]
    assert all(identifier(number) in known for number in range(20))


def test_a_lost_tick_is_forgotten_and_nothing_else() -> None:
    known = history(100)
    known.add_all([identifier(1), identifier(2)], 0.0, None, HONEST)
    tick = Tick()
    known.add_all([identifier(3), identifier(4)], 0.0, tick, HONEST)
    known.add(identifier(5), 0.0, tick, STRANGER)
    for callback in tick.on_seal:
        callback()
    for lost in tick.on_failure:
        lost(None)  # type: ignore[arg-type]
    assert [number for number in range(6) if identifier(number) in known] == [1, 2]
