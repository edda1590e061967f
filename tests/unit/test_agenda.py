"""What is due next among many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroad.runtime.deadlines import Agenda

times = st.none() | st.integers(0, 20).map(float)


@given(st.lists(st.tuples(st.sampled_from("abcde"), times) | st.integers(0, 20).map(float), max_size=40))
def test_an_agenda_is_as_good_as_looking_at_everything(steps: list[tuple[str, float | None] | float]) -> None:
    when: dict[str, float | None] = {}
    agenda: Agenda[str] = Agenda(lambda item: when.get(item))
    for step in steps:
        if isinstance(step, tuple):
            item, time = step
            when[item] = time
            agenda.add(item)
        else:
            due = agenda.due(step)
            assert sorted(due) == sorted(each for each, time in when.items() if time is not None and time <= step)
            for item in due:
                del when[item]
        known = [time for time in when.values() if time is not None]
        assert agenda.next == (min(known) if known else None)


def test_what_is_put_off_again_and_again_stands_in_it_once() -> None:
    when = {"a": 0.0}
    agenda: Agenda[str] = Agenda(lambda item: when.get(item))
    for time in range(1000):
        when["a"] = float(time)
        agenda.add("a")
    assert (len(agenda), agenda.next, len(agenda)) == (1, 999.0, 1)
