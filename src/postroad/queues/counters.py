"""Two numbers that only grow: arrival order ([MS-MQDMPR] SequentialID) and message ids.

Each is kept in the store as a ceiling that was promised in advance, so that no message waits for a commit to get its
number and none is given twice, whatever crashes.
"""

from __future__ import annotations

from struct import Struct

from postroad.store.interface import MAX_ARRIVAL, Batch

STATE = "counters"
_LAYOUT = Struct("<QI")
ARRIVAL_BLOCK = 1 << 20
MESSAGE_ID_BLOCK = 1 << 16
MAX_MESSAGE_ID = (1 << 32) - 1


class Counters:
    """A restart goes on from the last ceiling; a clean stop brings the ceilings down to what was used.

    A new store begins at `first_message_id`: ids that strangers cannot guess are no use to them.
    """

    def __init__(self, stored: bytes | None, first_message_id: int = 1) -> None:
        self._arrival: int = 1
        self._message_id: int = first_message_id  # 0 would say that a message has none yet, [MS-MQQB] 3.1.7.1.1
        if stored:
            self._arrival, self._message_id = _LAYOUT.unpack(stored)
        self._arrival_ceiling = self._arrival
        self._message_id_ceiling = self._message_id

    def next_arrival(self) -> int:
        arrival = self._arrival
        self._arrival = arrival + 1
        return arrival

    def take_message_ids(self, number: int) -> int:
        """The first of `number` consecutive ids; those above MAX_MESSAGE_ID start again at 0."""
        first = self._message_id
        self._message_id = first + number
        return first

    def next_message_id(self) -> int:
        return self.take_message_ids(1) & MAX_MESSAGE_ID

    @property
    def last_arrival(self) -> int:
        return self._arrival - 1

    def reserve(self, batch: Batch) -> None:
        """Raises the ceilings in this batch when half of a block is used up."""
        if (
            self._arrival_ceiling - self._arrival >= ARRIVAL_BLOCK // 2
            and self._message_id_ceiling - self._message_id >= MESSAGE_ID_BLOCK // 2
        ):
            return
        self._arrival_ceiling = min(self._arrival + ARRIVAL_BLOCK, MAX_ARRIVAL)
        self._message_id_ceiling = self._message_id + MESSAGE_ID_BLOCK
        batch.state[STATE] = _LAYOUT.pack(self._arrival_ceiling, self._message_id_ceiling & MAX_MESSAGE_ID)

    def lapse(self) -> None:
        """A tick was lost, and with it perhaps what it promised: the next one promises again."""
        self._arrival_ceiling = self._arrival
        self._message_id_ceiling = self._message_id

    def recover(self, now: float) -> None:
        """The stored ceilings are damaged. The clock is above all that were given: nobody is a thousand a second."""
        self._arrival = max(self._arrival, int(now * 1000))
        self._message_id = max(self._message_id, int(now) & MAX_MESSAGE_ID)
        self.lapse()

    def settle(self, batch: Batch) -> None:
        """At a clean stop: nothing was left unused."""
        batch.state[STATE] = _LAYOUT.pack(self._arrival, self._message_id & MAX_MESSAGE_ID)
