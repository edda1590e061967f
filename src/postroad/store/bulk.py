"""When the journal does not pay: commits of a backlog that grows, or is taken away.

No I/O: it looks at what passes.
"""

from __future__ import annotations

from collections.abc import Collection

from postroad.store.interface import MAX_ARRIVAL, Pair

MOST = 0.75  # of the changes of a generation
BULK = 64  # changes in a commit: from there on, one to the database costs no more than journal and database together
WINDOW = 8192  # changes
FEW = 8  # times fewer


class Bulk:
    """Whether commits should go straight to the database.

    While a backlog grows, or is taken away, all that the journal takes has to go into the database as well, so the
    journal only costs. It pays when messages leave soon.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._changes = self._young = 0  # in this window: changes, and deletes of messages that are no older than it
        self._newest = self._floor = 0  # greatest arrival numbers, now and before the last window

    def moved(self, share: float, newest: int) -> None:
        """This share of the changes of a generation had to go into the database."""
        self._is_on = share > MOST
        self._changes = self._young = 0
        self._newest = self._floor = newest

    def takes(self, deletes: Collection[Pair], puts: Collection[Pair]) -> bool:
        if not self._is_on:
            return False
        if len(deletes) + len(puts) < BULK:
            self._is_on = False  # a small commit is cheaper in the journal, and then the next ones have to go there
            return False
        floor = self._floor
        self._young += sum(key[1] & MAX_ARRIVAL > floor for key in deletes)
        self._changes += len(deletes) + len(puts)
        if self._changes > WINDOW:
            self._is_on = self._young * 4 < self._changes
            self._floor, self._newest = self._newest, max((key[1] & MAX_ARRIVAL for key in puts), default=self._newest)
            self._changes = self._young = 0
        return True


def is_cold(deletes: Collection[Pair], puts: Collection[Pair], newest: int, size: int) -> bool:
    """Whether a commit mostly deletes what the database has, where nothing is newer than `newest`. The `size` entries
    of the overlay have to go there first, so they must be few."""
    changes = len(deletes) + len(puts)
    if changes < BULK or size * FEW > changes:
        return False
    return sum(key[1] & MAX_ARRIVAL <= newest for key in deletes) > MOST * changes
