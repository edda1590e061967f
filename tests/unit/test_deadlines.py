"""The first of many deadlines, whatever became of the others."""

from __future__ import annotations

from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

from postroad.runtime.deadlines import Deadlines

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50).map(float))),
        st.tuples(st.just(-1), st.integers(0, 50).map(float)),  # what is due by then is taken
    )
)


@given(CHANGES)
def test_it_is_what_a_look_at_all_of_them_would_find(changes: list[tuple[int, float | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, float] = {}
    for key, time in changes:
        if key >= 0:
            deadlines.set(key, time)
            model.pop(key, None)
            if time is not None:
                model[key] = time
        else:
            assert time is not None
            due = {each for each, at in model.items() if at <= time}
            assert set(deadlines.take_due(time)) == due
            for each in due:
                del model[each]
        assert deadlines.first == min(model.values(), default=None)
        assert len(deadlines) == len(model)


def test_what_is_gone_is_not_kept_however_many_come_and_go() -> None:
    """As connections do that have minutes before anything is due."""
    deadlines: Deadlines[_Connection] = Deadlines()
    gone: list[ref[_Connection]] = []
    for number in range(10_000):
        connection = _Connection()
        deadlines.set(connection, 300.0 + number)
        deadlines.set(connection, None)
        gone.append(ref(connection))
    assert sum(each() is not None for each in gone) < 200
    assert deadlines.first is None


class _Connection:
    pass
