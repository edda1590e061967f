"""A copy of a domain: a snapshot after some changes is the snapshot of a copy that was read at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.directory.domain_copy import Changes, DomainCopy, Stamp
from postroad.directory.domain_reader import changed_between
from postroad.directory.objects import Queue, QueueManager
from postroad.directory.snapshot import Directory
from postroad.names import PathName
from tests.enterprises import client, guid, site

MANAGERS = ("alpha", "beta", "ALPHA2")
NAMES = ("orders", "Orders", "bills", "a", "z")


def manager(name: str, place: str = "Computers", twin: int = 0) -> QueueManager:
    identifier = guid(f"{name} {twin}")
    return replace(client(name, "London"), identifier=identifier, full_path=f"CN=msmq,CN={name},CN={place}")


def public(number: int, name: str, holder: QueueManager, label: str = "") -> Queue:
    return Queue(
        identifier=guid(f"queue {number}"),
        pathname=PathName.parse(f"{holder.computer_name}\\{name}"),
        queue_manager_identifier=holder.identifier,
        full_path=f"CN={name},{holder.full_path}{label}",
    )


holders = st.builds(manager, st.sampled_from(MANAGERS), st.sampled_from(("Computers", "Other")), st.integers(0, 1))
queues = st.builds(public, st.integers(0, 9), st.sampled_from(NAMES), holders, st.sampled_from(("", "x")))
changes = st.builds(
    Changes,
    managers=st.lists(holders, max_size=2),
    queues=st.lists(queues, max_size=4),
    gone=st.sets(st.builds(lambda number: guid(f"queue {number}"), st.integers(0, 9)), max_size=2),
)


def described(found: Directory, faults: list[str]) -> object:
    by_manager = {each.identifier: tuple(found.queues_of(each.identifier)) for each in found.managers}
    by_identifier = {number: found.queue(guid(f"queue {number}")) for number in range(10)}
    return found.managers, found.queues, by_manager, by_identifier, faults


@given(st.lists(changes, min_size=1, max_size=8))
def test_a_snapshot_after_changes_is_that_of_everything(some: list[Changes]) -> None:
    copy = DomainCopy()
    copy.apply(Changes(sites=[site("London")], managers=[manager(name) for name in MANAGERS]))
    copy.snapshot()
    for each in some:
        before = described(*copy.snapshot())
        differs = copy.apply(each)
        whole = DomainCopy()
        whole.read(copy_lines(copy))
        found = described(*copy.snapshot())
        assert found == described(*whole.snapshot())
        assert differs or found == before


def copy_lines(copy: DomainCopy) -> list[bytes]:
    copy.confirm(Stamp("d", "s", "i", 1, "u"), 0.0)
    return list(copy.lines())


def test_a_change_of_one_queue_leaves_the_rest_as_it_is() -> None:
    """Made again for 100,000 queues, a snapshot would hold the interpreter, and with it the event loop."""
    copy = DomainCopy()
    alpha, beta = manager("alpha"), manager("beta")
    some = [public(number, f"q{number:03}", alpha) for number in range(100)]
    others = [public(number + 200, "orders", beta) for number in range(1)]
    copy.apply(Changes(sites=[site("London")], managers=[alpha, beta], queues=[*others, *some]))
    first, _ = copy.snapshot()
    changed, new = replace(some[50], base_priority=7), public(100, "q050a", alpha)
    assert not copy.apply(Changes(managers=[beta], queues=others))
    assert copy.apply(Changes(queues=[changed, new], gone={some[3].identifier}))
    second, _ = copy.snapshot()
    assert first.queues == (*some, *others)
    assert second.queues == (*some[:3], *some[4:50], changed, new, *some[51:], *others)
    assert second.queues_of(beta.identifier) is first.queues_of(beta.identifier)


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (7, 7, "(|(uSNChanged=7))"),
        (7, 9, "(|(uSNChanged=7)(uSNChanged=8)(uSNChanged=9))"),
        (7, 506, None),
        (7, 507, "(uSNChanged>=7)"),
    ],
)
def test_a_few_changes_are_asked_for_by_their_numbers(first: int, last: int, text: str | None) -> None:
    found = changed_between(first, last)
    assert found == text if text is not None else found.count("uSNChanged=") == 500
