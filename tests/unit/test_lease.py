"""The lease of a store: who may take it over, and when a process has to stop."""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from postroad.store.lease import TRANSITIONS, Action, Lease, Role, Row

MINE, OTHER = UUID(int=1), UUID(int=2)
LEASE_S = 10.0
NOBODYS = Row(0, 0, None, "", free=True)
OTHERS = Row(4, 100, OTHER, "b:2")


def lease() -> Lease:
    return Lease(MINE, LEASE_S)


def active(now: float = 0.0) -> Lease:
    found = lease()
    assert found.saw(Row(5, 1, MINE, "a:1"), now, now) is Action.SERVE
    return found


def test_a_lease_that_nobody_holds_is_taken_at_once() -> None:
    assert lease().saw(NOBODYS, 0, 0) is Action.TAKE


def test_a_lease_is_taken_over_once_its_holder_was_silent_for_its_time() -> None:
    standby = lease()
    assert standby.saw(OTHERS, 0, 0) is Action.WATCH
    assert standby.active == "b:2"
    assert standby.saw(OTHERS, 9.9, 9.9) is Action.WATCH
    assert standby.saw(OTHERS, 10, 10) is Action.TAKE
    assert standby.saw(OTHERS, 10.5, 10.5) is Action.TAKE  # the first try may have failed


def test_each_beat_of_the_holder_begins_its_time_again() -> None:
    standby = lease()
    standby.saw(OTHERS, 0, 0)
    standby.saw(Row(4, 101, OTHER, "b:2"), 9, 9)
    assert standby.saw(Row(4, 101, OTHER, "b:2"), 18, 18) is Action.WATCH
    assert standby.saw(Row(4, 101, OTHER, "b:2"), 19, 19) is Action.TAKE


def test_time_in_which_the_database_was_away_does_not_count_as_silence() -> None:
    standby = lease()
    standby.saw(OTHERS, 0, 0)
    standby.unreachable()
    assert standby.saw(OTHERS, 3600, 3600) is Action.WATCH
    assert standby.saw(OTHERS, 3610, 3610) is Action.TAKE


def test_a_holder_may_answer_until_the_time_since_it_asked_is_over() -> None:
    holder = active()
    assert holder.saw(Row(5, 2, MINE, "a:1"), 4, 6) is Action.RENEW
    assert holder.holds(13.9)
    assert not holder.holds(14)  # from when it asked, not from the answer


def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed() -> None:
    holder = active()
    holder.unreachable()
    assert not holder.holds(100)
    assert holder.saw(Row(5, 2, MINE, "a:1"), 100, 100) is Action.RENEW
    assert holder.holds(105)


def test_a_holder_that_finds_another_stops_for_good() -> None:
    holder = active()
    assert holder.saw(Row(6, 3, OTHER, "b:2"), 20, 20) is Action.STOP
    assert holder.role is Role.DEPOSED
    assert not holder.holds(20)
    assert holder.saw(Row(5, 2, MINE, "a:1"), 21, 21) is Action.WATCH
    assert not holder.holds(21)


def test_a_holder_stops_too_if_the_other_has_given_the_lease_up_since() -> None:
    assert active().saw(Row(6, 9, OTHER, "b:2", free=True), 20, 20) is Action.STOP


def test_a_handover_renews_until_it_has_finished_and_then_releases() -> None:
    holder = active()
    assert holder.hand_over() is Action.FINISH
    assert holder.saw(Row(5, 2, MINE, "a:1"), 1, 1) is Action.RENEW
    assert holder.holds(2)
    assert holder.finished() is Action.RELEASE
    assert not holder.holds(2)
    assert holder.saw(Row(5, 3, MINE, "a:1"), 2, 2) is Action.RELEASE  # the first one was lost
    free = Row(5, 4, MINE, "a:1", free=True)
    assert holder.saw(free, 3, 3) is Action.WATCH
    roles = [holder.role]
    assert holder.saw(Row(6, 5, OTHER, "b:2"), 4, 4) is Action.WATCH
    assert [*roles, holder.role] == [Role.RESTING, Role.STANDBY]


def test_who_has_given_the_lease_up_takes_it_again_if_nobody_else_does() -> None:
    holder = active()
    holder.hand_over()
    holder.finished()
    free = Row(5, 2, MINE, "a:1", free=True)
    assert holder.saw(free, 0, 0) is Action.WATCH
    assert holder.saw(free, 19, 19) is Action.WATCH
    assert holder.saw(free, 20, 20) is Action.TAKE


def test_a_take_whose_answer_was_lost_shows_in_the_next_row() -> None:
    standby = lease()
    assert standby.saw(NOBODYS, 0, 0) is Action.TAKE
    standby.unreachable()
    assert standby.saw(Row(1, 1, MINE, "a:1"), 5, 5) is Action.SERVE


def test_every_state_can_be_left_but_deposed() -> None:
    left = {role for (role, _), (_, to) in TRANSITIONS.items() if to is not role}
    assert left == set(Role) - {Role.DEPOSED}


class Processes(RuleBasedStateMachine):
    """Three processes, one row, late and lost answers. A commit counts only if its epoch is the row's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.row = NOBODYS
        self.processes = [Lease(UUID(int=number), LEASE_S) for number in (1, 2, 3)]
        self.holders: dict[int, UUID] = {}

    @rule(which=st.integers(0, 2), lost=st.booleans(), late_s=st.floats(0, 15), acts=st.booleans())
    def look(self, which: int, lost: bool, late_s: float, acts: bool) -> None:
        each = self.processes[which]
        asked_at, row = self.now, self.row
        if each.role in (Role.ACTIVE, Role.HANDING_OVER) and self._is_held_by(each):
            self.row = row = Row(row.epoch, row.beat + 1, row.instance, row.holder)
        self.now += late_s
        if lost:
            each.unreachable()
            return
        action = each.saw(row, asked_at, self.now)
        if action is Action.TAKE and acts and row == self.row:
            self.row = Row(row.epoch + 1, row.beat + 1, each.instance, f"p:{which}")
            assert self.holders.setdefault(self.row.epoch, each.instance) == each.instance
        elif action is Action.RELEASE and acts and self._is_held_by(each):
            self.row = Row(row.epoch, self.row.beat + 1, each.instance, f"p:{which}", free=True)

    @rule(which=st.integers(0, 2), finished=st.booleans())
    def hand_over(self, which: int, finished: bool) -> None:
        if finished:
            self.processes[which].finished()
        else:
            self.processes[which].hand_over()

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def _is_held_by(self, each: Lease) -> bool:
        return not self.row.free and self.row.instance == each.instance and self.row.epoch == each.epoch

    @invariant()
    def no_epoch_has_two_holders(self) -> None:
        acting = [(each.epoch, each.instance) for each in self.processes if each.role is Role.ACTIVE]
        assert len({epoch for epoch, _ in acting}) == len(acting)
        assert all(self.holders[epoch] == instance for epoch, instance in acting)


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
