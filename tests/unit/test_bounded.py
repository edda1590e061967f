"""The bounded table: which entry makes room for which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.runtime.bounded import BoundedTable, Standing, owner_of

FLOOD = 500


def flood(table: BoundedTable[str, int], owner: str, standing: Standing, count: int = FLOOD) -> None:
    for number in range(count):
        table.put(f"{owner}/{number}", number, owner, standing)
        assert len(table) <= table.limit


def test_the_longest_silent_of_one_owner_leaves_first() -> None:
    table: BoundedTable[str, int] = BoundedTable(3)
    for key in "abc":
        table.put(key, 1, "one")
    table.touch("a")
    table.put("d", 1, "one")
    assert list(table) == ["c", "a", "d"]


@pytest.mark.parametrize("standing", list(Standing))
def test_a_flood_of_one_owner_pushes_out_its_own(standing: Standing) -> None:
    table: BoundedTable[str, int] = BoundedTable(64)
    for number in range(10):
        table.put(f"honest {number}", 1, "honest", standing)
    flood(table, "stranger", standing)
    assert all(f"honest {number}" in table for number in range(10))


def test_nothing_leaves_for_a_lower_standing_however_many_owners_there_are() -> None:
    table: BoundedTable[str, int] = BoundedTable(64)
    for number in range(40):
        table.put(f"honest {number}", 1, "honest", Standing.PROVEN)
    for number in range(10):
        table.put(f"known {number}", 1, "known", Standing.KNOWN)
    for number in range(FLOOD):
        table.put(f"stranger {number}", 1, f"stranger {number}", Standing.STRANGER)
    assert sum(key.startswith("honest") for key in table) == 40
    for number in range(FLOOD):
        table.put(f"proven {number}", 1, f"proven {number}", Standing.PROVEN)
    assert sum(key.startswith("known") for key in table) == 10
    assert len(table) <= 64


def test_a_table_of_proven_entries_has_room_for_somebody_new() -> None:
    table: BoundedTable[str, int] = BoundedTable(64)
    flood(table, "one", Standing.KNOWN)
    flood(table, "two", Standing.PROVEN)
    assert table.put("new", 1, "newcomer", Standing.STRANGER)
    table.rise("new", Standing.PROVEN)
    flood(table, "one", Standing.KNOWN)
    flood(table, "two", Standing.PROVEN)
    flood(table, "three", Standing.STRANGER)
    assert "new" in table


def test_what_is_in_use_stays_and_a_newcomer_is_refused() -> None:
    asked = 0

    def in_use(key: str, value: int) -> bool:
        nonlocal asked
        asked += 1
        return key.startswith("used")

    table: BoundedTable[str, int] = BoundedTable(128, in_use=in_use)
    for number in range(128):
        assert table.put(f"used {number}", 1, "one", Standing.STRANGER)
    for number in range(FLOOD):
        assert not table.put(f"new {number}", 1, f"owner {number}", Standing.KNOWN)
    assert len(table) == 128
    assert table.refused == FLOOD
    assert asked < 128 * FLOOD * 2  # not the whole table for each newcomer
    table.pop("used 5")
    assert table.put("new", 1, "two", Standing.STRANGER)


@pytest.mark.parametrize("standing", list(Standing))
def test_entries_in_use_do_not_make_those_of_another_owner_leave(standing: Standing) -> None:
    used: set[str] = set()
    table: BoundedTable[str, int] = BoundedTable(64, in_use=lambda key, value: key in used)
    for number in range(3):
        table.put(f"honest {number}", 1, f"honest {number}", standing)
    used.update(f"stranger/{number}" for number in range(FLOOD))
    flood(table, "stranger", standing)  # all within one transaction
    flood(table, "another", standing)
    assert all(f"honest {number}" in table for number in range(3))
    used.clear()
    welcome = [table.put("new", 1, "newcomer", standing) for _ in range(2)]  # a full table refuses one without a look
    assert welcome[-1]
    assert all(f"honest {number}" in table for number in range(3))


def test_an_entry_that_has_risen_meanwhile_is_asked_before_it_leaves() -> None:
    table: BoundedTable[str, int] = BoundedTable(
        64, standing=lambda key, value: Standing.KNOWN if key == "partner" else Standing.STRANGER
    )
    table.put("partner", 1, "one", Standing.STRANGER)
    flood(table, "one", Standing.STRANGER)
    assert "partner" in table
    assert table.standing("partner") is Standing.KNOWN


def test_one_owner_has_no_more_than_it_may() -> None:
    left: list[str] = []
    table: BoundedTable[str, int] = BoundedTable(100, most=10, dropped=lambda key, value: left.append(key))
    flood(table, "one", Standing.PROVEN, 25)
    assert len(table) == 10
    assert left == [f"one/{number}" for number in range(15)]


def test_an_ipv6_subnet_is_one_owner() -> None:
    assert owner_of("2001:db8::1") == owner_of("2001:db8::ffff:1%eth0") == "2001:db8::/64"
    assert owner_of("::ffff:192.0.2.1") == owner_of("192.0.2.1") == "192.0.2.1"
    assert owner_of("::1") == "::1"
    assert owner_of("a:name") == "a:name"


_OPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "touch", "rise", "pop"]),
        st.integers(0, 60),
        st.integers(0, 4),
        st.sampled_from(list(Standing)),
    ),
    max_size=150,
)


@given(st.integers(1, 40), st.integers(1, 40), _OPS)
def test_whatever_happens_the_limits_hold(
    limit: int, most: int, operations: list[tuple[str, int, int, Standing]]
) -> None:
    used = {0, 1}
    before: dict[int, Standing] = {}
    newcomer = Standing.STRANGER
    made_by_most = False

    def dropped(key: int, value: int) -> None:
        assert key not in used
        assert made_by_most or before[key] <= newcomer

    table: BoundedTable[int, int] = BoundedTable(
        limit, most=most, in_use=lambda key, value: key in used, dropped=dropped
    )
    for what, key, owner, standing in operations:
        before = {each: table.standing(each) for each in table}
        if what == "put":
            newcomer, made_by_most = standing, most < limit
            kept = key in table
            assert table.put(key, key, str(owner), standing) == (key in table)
            assert key in table or not kept or standing > before[key] or most < limit
        elif key in table:
            newcomer, made_by_most = standing, False
            if what == "touch":
                table.touch(key)
                assert list(table)[-1] == key
            elif what == "rise":
                table.rise(key, standing)
            else:
                assert table.pop(key) == key
        assert len(table) <= limit
        shares = [(table.owner(each), table.standing(each)) for each in table if each not in used]
        assert all(shares.count(each) <= most for each in set(shares))
        assert list(table.values()) == list(table)
