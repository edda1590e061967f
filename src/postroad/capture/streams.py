"""TCP streams reassembled from captured segments, one direction at a time, and cut into packets.

Segments may come late, twice, overlapping or never. Memory is limited, and everything dropped is reported.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from postroad.capture.cutter import Cutter
from postroad.capture.internet import Endpoints, Segment
from postroad.capture.items import Item, Origin

# Bytes of one direction that wait for an earlier segment. A sender has at most a window in flight; when more than
# that has come, the missing segment is not late but lost.
MAX_WAITING = 4 * 1_048_576
MAX_WAITING_SEGMENTS = 16_384
# Directions that are followed at once, and bytes held for all of them: the longest silent one is closed first.
MAX_DIRECTIONS = 4_096
MAX_HELD = 128 * 1_048_576
# A segment further back than this is no retransmission: the ports were used again and the capture missed the start.
MAX_BACK = 1 << 30

_MODULUS = 1 << 32
_HALF = 1 << 31


@dataclass(slots=True)
class _Direction:
    """One direction. Positions count from the first byte seen, without wrap; `first` is the sequence number there."""

    first: int
    cutter: Cutter
    expected: int = 0
    waiting: list[tuple[int, int, bytes, Origin]] = field(default_factory=list)  # a heap by position, then arrival
    waiting_bytes: int = 0
    arrivals: int = 0

    @property
    def held(self) -> int:
        return self.waiting_bytes + self.cutter.buffered

    def distance(self, sequence: int) -> int:
        """How far ahead of the expected byte a sequence number is; negative if it is behind."""
        ahead = (sequence - self.first - self.expected) % _MODULUS
        return ahead - _MODULUS if ahead >= _HALF else ahead

    def take(self, distance: int, payload: bytes, origin: Origin) -> list[Item]:
        if distance > 0:
            heapq.heappush(self.waiting, (self.expected + distance, self.arrivals, payload, origin))
            self.arrivals += 1
            self.waiting_bytes += len(payload)
            if self.waiting_bytes > MAX_WAITING or len(self.waiting) > MAX_WAITING_SEGMENTS:
                return self._give_up_gap()
            return []
        items = self._deliver(payload[-distance:] if distance else payload, origin)
        return items + self._deliver_waiting()

    def finish(self) -> list[Item]:
        items: list[Item] = []
        while self.waiting:
            items += self._give_up_gap()
        return items + self.cutter.finish()

    def _deliver(self, payload: bytes, origin: Origin) -> list[Item]:
        if not payload:
            return []
        self.expected += len(payload)
        return self.cutter.feed(payload, origin)

    def _deliver_waiting(self) -> list[Item]:
        items: list[Item] = []
        while self.waiting and self.waiting[0][0] <= self.expected:
            position, _, payload, origin = heapq.heappop(self.waiting)
            self.waiting_bytes -= len(payload)
            items += self._deliver(payload[self.expected - position :], origin)
        return items

    def _give_up_gap(self) -> list[Item]:
        missing = self.waiting[0][0] - self.expected
        items = self.cutter.lose(missing, f"the capture lacks {missing} bytes of the stream here")
        self.expected += missing
        return items + self._deliver_waiting()


class Streams:
    """Feed it segments in the order of the capture; it returns the items of the streams."""

    def __init__(self) -> None:
        self._directions: OrderedDict[Endpoints, _Direction] = OrderedDict()  # the one silent for longest first
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes kept for later, over all directions."""
        return self._held

    def feed(self, segment: Segment, origin: Origin) -> list[Item]:
        items: list[Item] = []
        key, sequence = segment.endpoints, segment.sequence
        direction = self._directions.get(key)
        if segment.syn:
            sequence = (sequence + 1) % _MODULUS
            # The same connection request again changes nothing; another one starts a new stream.
            if direction is None or direction.first != sequence:
                items += self._close(key)
                direction = self._open(key, sequence, None)
        if segment.payload:
            if direction is None or direction.distance(sequence) < -MAX_BACK:
                items += self._close(key)
                direction = self._open(key, sequence, "the capture begins inside this stream")
            items += self._take(key, direction, sequence, segment.payload, origin)
        while self._held > MAX_HELD or len(self._directions) > MAX_DIRECTIONS:
            items += self._close(next(iter(self._directions)))
        return items

    def finish(self) -> list[Item]:
        """The capture ends: drops what still waits, and reports streams that end inside a packet."""
        items: list[Item] = []
        while self._directions:
            items += self._close(next(iter(self._directions)))
        return items

    def _open(self, key: Endpoints, first: int, opening: str | None) -> _Direction:
        direction = self._directions[key] = _Direction(first, Cutter(opening=opening))
        return direction

    def _take(self, key: Endpoints, direction: _Direction, sequence: int, payload: bytes, origin: Origin) -> list[Item]:
        self._directions.move_to_end(key)
        distance = direction.distance(sequence)
        if distance + len(payload) <= 0:
            return []  # nothing new
        before = direction.held
        origin = replace(origin, source=key.source_text, destination=key.destination_text)
        items = direction.take(distance, payload, origin)
        self._held += direction.held - before
        return items

    def _close(self, key: Endpoints) -> list[Item]:
        direction = self._directions.pop(key, None)
        if direction is None:
            return []
        self._held -= direction.held
        return direction.finish()
