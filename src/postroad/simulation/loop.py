"""Virtual time. Callbacks run in the order of their times; callbacks for one time run in the order they were added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from postroad.wire.framer import Framer, Packet, decode_packet
from postroad.wire.internal import ConnectionParameters, EstablishConnection, SessionAck
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.view import MessageView

STARTED = 1_700_000_000.0  # a moment that every time stamp in a packet can express


class Timer:
    """A callback that will run unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """`now` does not change during a callback."""

    def __init__(self, now: float = STARTED) -> None:
        self.now = now
        self.steps = 0  # callbacks that have run
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = count()

    def at(self, time: float, callback: Callable[[], object]) -> Timer:
        """Adds a callback. A time in the past means now, after the callbacks that already wait for now."""
        timer = Timer(callback)
        heappush(self._heap, (max(time, self.now), next(self._count), timer))
        return timer

    def after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self.at(self.now + seconds, callback)

    def run(self, until: float) -> None:
        """Runs everything up to `until`. The time is `until` afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, timer = heappop(heap)
            if timer.callback is not None:
                self.steps += 1
                timer.callback()
        self.now = until


# The event log of a run. Two runs of one seed give the same text, to the last character.


class Log:
    """Keeps nothing unless it is `wanted`. Times are in seconds since the start."""

    def __init__(self, loop: Loop, *, wanted: bool) -> None:
        self.wanted = wanted
        self.lines: list[str] = []
        self._loop = loop

    def note(self, who: str, what: str) -> None:
        if self.wanted:
            self.lines.append(f"{self._loop.now - STARTED:12.6f}  {who:<8}  {what}")


def packet_lines(data: bytes) -> Iterator[str]:
    """Describes each packet that a session has written, in one line."""
    for packet in Framer().feed(data):
        yield describe(decode_packet(packet))


def describe(packet: Packet) -> str:
    match packet:
        case EstablishConnection():
            return "establish connection"
        case ConnectionParameters():
            return "connection parameters"
        case SessionAck():
            header = packet.session
            return (
                f"session ack {header.ack_sequence_number}, "
                f"stored {header.recoverable_msg_ack_seq_number}/{header.recoverable_msg_ack_flags:#x}"
            )
        case OrderAck():
            return f"order ack {packet.sequence_id.value:#x} up to {packet.sequence_number}"
        case FinalAck():
            return f"final ack {packet.final_class:#06x} of message {packet.acknowledged_message_id}"
        case MessageView():
            return _message(packet)


def _message(view: MessageView) -> str:
    words = [f"message {view.message_id}"]
    if view.message_class:
        words.append(f"class {view.message_class:#06x}")
    if (fields := view.transaction_fields) is not None:
        words.append(f"number {fields[3]} after {fields[4]} of {fields[2] << 32 | fields[1]:#x}")
    else:
        words.append("recoverable" if view.recoverable else "express")
    if view.session_header is not None:
        words.append("with a session ack")
    return ", ".join(words)
