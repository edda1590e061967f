"""The lease of a store that several processes share: who is active, who stands by, and who has to stop. No I/O and no
clock here.

The lease is one row. Its epoch grows when another process takes it over, its beat when the holder renews it. Every
commit checks the row in its own transaction, and whoever takes over changes the row first. So no clock can do harm: it
only decides how soon a standby takes over. A standby measures, by its own clock alone, for how long it has looked at
the row without seeing a new beat. Clocks of two machines are never compared, not even two of the database's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

LOOKS = 4  # of a holder, in the time of a lease: a lost one does no harm
WATCH_S = 0.5  # between two looks of a standby, so that a lease that is given up is taken at once
RESTS = 2  # leases for which a process that has given its own up leaves the next one to others


@dataclass(frozen=True, slots=True)
class Row:
    """The lease as one transaction saw it. Nobody holds it while `instance` is None."""

    epoch: int
    beat: int
    instance: UUID | None  # of the process that holds it, or held it last if it is `free`
    holder: str  # HOST:PID of that process, for people
    free: bool = False


class Role(Enum):
    STANDBY = "standby"
    ACTIVE = "active"
    HANDING_OVER = "handing over"  # it finishes what is under way
    RELEASING = "releasing"
    RESTING = "resting"  # it has given the lease up, and leaves it to others for a while
    DEPOSED = "deposed"


class Input(Enum):
    FREE = auto()  # nobody holds the lease
    LEFT = auto()  # nobody holds it, and nobody has taken it for so long that the one who rests may
    BEATING = auto()  # another process renews it
    SILENT = auto()  # another process has not renewed it for the time of the lease
    MINE = auto()
    HAND_OVER = auto()  # somebody asks this process to give it up
    FINISHED = auto()  # nothing is under way any more


class Action(Enum):
    WATCH = auto()  # look again later
    TAKE = auto()  # take the lease over, if its row is still as it was seen
    SERVE = auto()  # it is ours: open the store
    RENEW = auto()
    FINISH = auto()  # answer what is under way, and take nothing new
    RELEASE = auto()  # give it up
    STOP = auto()  # answer nothing more: another process is active


# A pair that is missing changes nothing. A take or release shows in the next row, also if its answer was lost.
TRANSITIONS: dict[tuple[Role, Input], tuple[Action, Role]] = {
    (Role.STANDBY, Input.FREE): (Action.TAKE, Role.STANDBY),
    (Role.STANDBY, Input.LEFT): (Action.TAKE, Role.STANDBY),
    (Role.STANDBY, Input.BEATING): (Action.WATCH, Role.STANDBY),
    (Role.STANDBY, Input.SILENT): (Action.TAKE, Role.STANDBY),
    (Role.STANDBY, Input.MINE): (Action.SERVE, Role.ACTIVE),
    (Role.ACTIVE, Input.MINE): (Action.RENEW, Role.ACTIVE),
    (Role.ACTIVE, Input.HAND_OVER): (Action.FINISH, Role.HANDING_OVER),
    (Role.ACTIVE, Input.FREE): (Action.STOP, Role.DEPOSED),
    (Role.ACTIVE, Input.BEATING): (Action.STOP, Role.DEPOSED),
    (Role.ACTIVE, Input.SILENT): (Action.STOP, Role.DEPOSED),
    (Role.HANDING_OVER, Input.MINE): (Action.RENEW, Role.HANDING_OVER),
    (Role.HANDING_OVER, Input.FINISHED): (Action.RELEASE, Role.RELEASING),
    (Role.HANDING_OVER, Input.FREE): (Action.STOP, Role.DEPOSED),
    (Role.HANDING_OVER, Input.BEATING): (Action.STOP, Role.DEPOSED),
    (Role.HANDING_OVER, Input.SILENT): (Action.STOP, Role.DEPOSED),
    (Role.RELEASING, Input.MINE): (Action.RELEASE, Role.RELEASING),
    (Role.RELEASING, Input.FREE): (Action.WATCH, Role.RESTING),
    (Role.RELEASING, Input.BEATING): (Action.WATCH, Role.STANDBY),
    (Role.RELEASING, Input.SILENT): (Action.WATCH, Role.STANDBY),
    (Role.RESTING, Input.FREE): (Action.WATCH, Role.RESTING),
    (Role.RESTING, Input.LEFT): (Action.TAKE, Role.STANDBY),
    (Role.RESTING, Input.BEATING): (Action.WATCH, Role.STANDBY),
    (Role.RESTING, Input.SILENT): (Action.WATCH, Role.STANDBY),
}


class Lease:
    """One process's view of the lease. `now` is that of a clock of this machine that never goes back, and that goes on
    while the process is stopped."""

    def __init__(self, instance: UUID, lease_s: float) -> None:
        self.instance = instance
        self.lease_s = lease_s
        self.role = Role.STANDBY
        self.row: Row | None = None  # as last seen
        self._since = 0.0  # when this beat, or this look after a time without any, was first seen
        self._until = 0.0  # of an active one: another may have taken over after this
        self._blind = False  # since the last look, the database did not answer

    @property
    def epoch(self) -> int:
        return 0 if self.row is None else self.row.epoch

    @property
    def active(self) -> str | None:
        """HOST:PID of the process that holds the lease."""
        return None if self.row is None or self.row.free else self.row.holder

    def holds(self, now: float) -> bool:
        """Whether no other process can have taken over yet."""
        return self.role in (Role.ACTIVE, Role.HANDING_OVER) and now < self._until

    def saw(self, row: Row, asked_at: float, now: float) -> Action:
        """The row as a look found it, which began at `asked_at` and is over now. A renewal is a look too."""
        before, self.row = self.row, row
        if before is None or self._blind or (before.epoch, before.beat, before.free) != (row.epoch, row.beat, row.free):
            self._since = now
        self._blind = False
        mine = row.instance == self.instance and not row.free
        if mine:
            self._until = asked_at + self.lease_s
            return self._input(Input.MINE)
        waited = now - self._since
        if row.free:
            return self._input(Input.LEFT if waited >= RESTS * self.lease_s else Input.FREE)
        return self._input(Input.SILENT if waited >= self.lease_s else Input.BEATING)

    def unreachable(self) -> None:
        """The database did not answer. A holder may not have reached it either, so its silence counts from the next
        look."""
        self._blind = True

    def hand_over(self) -> Action:
        return self._input(Input.HAND_OVER)

    def finished(self) -> Action:
        return self._input(Input.FINISHED)

    def pause_s(self) -> float:
        """Seconds until the next look."""
        least = self.lease_s / LOOKS
        return least if self.role in (Role.ACTIVE, Role.HANDING_OVER) else min(WATCH_S, least)

    def _input(self, found: Input) -> Action:
        action, self.role = TRANSITIONS.get((self.role, found), (Action.WATCH, self.role))
        return action
