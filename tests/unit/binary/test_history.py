"""Which messages have come already, where strangers try to make others' forgotten or mistaken."""

from __future__ import annotations

from postroad.store import MemoryStore
from postroad.transfer.arrivals import MessageIdHistory, foreign_id

HONEST, STRANGER = "192.0.2.1", "192.0.2.66"


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
    assert len(known) <= 1000


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
