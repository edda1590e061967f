"""Streams, [MC-MQSRM] 3.1.1.1.6 and 3.1.1.2: the numbers and timers that make messages arrive once and in order.

The rules of both ends, and the bytes that outlive a restart. What is done with a message is the sender's and the
receiver's; nothing here knows a queue, a store or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from uuid import UUID

from postroad.soap.elements import Stream, StreamId
from postroad.wire.layout import NULL_GUID
from postroad.wire.transaction_header import TxSequenceId

NO_STREAM = StreamId(NULL_GUID, TxSequenceId(0, 0))
PAST_STREAMS = 32  # names of one sender's streams that are known again: a start that was late must not begin them anew
_INCOMING = Struct("<16sIIIIIIHH")
_SEQUENCE = Struct("<II")
_BASE = Struct("<III")  # a name, and its base
_VALUE = Struct("<Q")


class Verdict(Enum):
    """What becomes of a stream message, 3.1.5.1.6.3."""

    ACCEPTED = "accepted"
    PASSED = "passed"  # its place is taken, but it has been here before under another stream
    IGNORED = "ignored"  # a duplicate, or out of order


@dataclass(slots=True)
class IncomingStream:
    """Stream at the receiver: one sender to one of our queues, as one URL calls it.

    `durable` is the number that a receipt may name: messages above it are accepted but not yet committed. `due` is the
    Stream Receipt Coalescing Timer.
    """

    stream_id: StreamId = NO_STREAM  # IncomingId
    number: int = 0  # IncomingSequenceNumber
    durable: int = 0
    acknowledged: int = 0  # LastAcknowledgedStreamMessage
    send_receipts_to: str = ""
    format_name: str = ""
    rejects: int = 0
    last_access_s: int = 0
    past: list[int] = field(default_factory=list)
    unacked_since: float | None = None  # UnackedStreamMessageArrivalTime
    due: float | None = None
    again: bool = False  # the sender has asked for the last receipt once more

    def judge(self, stream: Stream, *, duplicate: bool) -> Verdict:
        """3.1.5.1.6.3: the next of this stream, whatever is missing in between, or the first of another one.

        Of a `duplicate` the place counts and the message does not. The first message of an old stream that comes late
        is no new stream: the ids of one manager's streams grow.
        """
        if not self._follows(stream):
            return Verdict.IGNORED
        if not duplicate:
            return Verdict.ACCEPTED
        older = stream.stream_id.sequence < self.stream_id.sequence
        return Verdict.IGNORED if older else Verdict.PASSED

    def _follows(self, stream: Stream) -> bool:
        if stream.stream_id != self.stream_id:
            known = stream.stream_id.sequence.value in self.past
            return stream.send_receipts_to is not None and stream.current == 1 and not known
        if stream.current == self.number + 1:
            return True
        # 3.1.1.2: without `previous` it is the number before; the gap may be of messages that have expired.
        previous = stream.current - 1 if stream.previous is None else stream.previous
        return stream.current > self.number and previous <= self.number

    def advance(self, stream: Stream, now: float) -> None:
        """The message is accepted, or finally refused: either way the stream moves past it."""
        if stream.stream_id != self.stream_id:
            if self.number:
                self.past = [*self.past, self.stream_id.sequence.value][-PAST_STREAMS:]
            self.stream_id = stream.stream_id
            self.durable = self.acknowledged = 0
            self.unacked_since = None
            self.send_receipts_to = stream.send_receipts_to or ""
        self.number = stream.current
        self.rejects = 0
        self.last_access_s = int(now)

    @property
    def sequence_key(self) -> StreamId:
        return self.stream_id

    def saved(self) -> object:
        return self.stream_id, self.number, self.acknowledged, self.send_receipts_to, self.past

    def restore(self, saved: object) -> None:
        self.stream_id, self.number, self.acknowledged, self.send_receipts_to, self.past = saved  # type: ignore[misc]

    def schedule_receipt(self, now: float, delay_s: float, longest_s: float) -> None:
        """3.1.5.1.6.3: each message puts the receipt off a little, but not for ever."""
        if self.unacked_since is None:
            self.unacked_since = now
        self.due = now if now - self.unacked_since >= longest_s else now + delay_s

    def repeat_receipt(self, now: float, delay_s: float) -> None:
        """A message came again: perhaps our receipt was lost."""
        self.again = True
        if self.due is None:
            self.due = now + delay_s

    def receipt(self, now: float, delay_s: float) -> int | None:
        """3.1.6.3: the number to acknowledge when the timer has fired; None where there is nothing to say yet.

        What is not durable is not acknowledged, and has a turn of its own.
        """
        self.due = None if self.durable == self.number else now + delay_s
        self.unacked_since = None if self.durable == self.number else now
        if self.durable <= self.acknowledged and not (self.again and self.durable):
            return None
        self.again = False
        self.acknowledged = self.durable
        return self.durable

    def encode(self) -> bytes:
        texts = [each.encode() for each in (self.send_receipts_to, self.format_name)]
        sequence = self.stream_id.sequence
        fixed = _INCOMING.pack(
            self.stream_id.guid.bytes_le,
            sequence.ordinal,
            sequence.time_stamp,
            self.number,
            self.acknowledged,
            self.rejects,
            self.last_access_s,
            *map(len, texts),
        )
        return b"".join((fixed, *texts, *map(_VALUE.pack, self.past)))

    @classmethod
    def decode(cls, data: bytes) -> IncomingStream:
        """As it was stored: all of it is durable. What was accepted and not acknowledged is due at once."""
        guid, ordinal, time_stamp, number, acknowledged, rejects, last_access_s, *sizes = _INCOMING.unpack_from(data)
        texts = []
        position = _INCOMING.size
        for size in sizes:
            texts.append(data[position : position + size].decode())
            position += size
        url, name = texts
        return cls(
            StreamId(UUID(bytes_le=guid), TxSequenceId(ordinal, time_stamp)),
            number,
            number,
            acknowledged,
            url,
            name,
            rejects,
            last_access_s,
            [value for (value,) in _VALUE.iter_unpack(data[position:])],
            due=0.0 if number > acknowledged else None,
        )


@dataclass(slots=True)
class OutgoingStream:
    """Stream at the sender: the messages of one outgoing queue.

    A packet has the number that its transaction gave it. Where those before it have expired and perhaps none has
    arrived, the stream has to begin at 1 all the same, under a name that was never used: `base` is what is then taken
    off each number. What had arrived under a name before it is still spoken of by that: `bases` has them all.
    """

    sequence: TxSequenceId  # as the packets have it
    name: TxSequenceId  # as the wire has it
    bases: dict[TxSequenceId, int]
    started: bool = False  # the far end has the first message: only then others may follow
    acknowledged: int = 0  # by stream receipts, in the numbers of the packets

    @classmethod
    def of(cls, sequence: TxSequenceId) -> OutgoingStream:
        return cls(sequence, sequence, {sequence: 0})

    @property
    def base(self) -> int:
        return self.bases[self.name]

    def current(self, number: int) -> int:
        return number - self.base

    def may_follow(self, number: int) -> bool:
        """Whether this message can be sent: as the first one, or behind one that has arrived."""
        return self.started or self.current(number) == 1

    def anew(self, name: TxSequenceId, number: int) -> OutgoingStream:
        """The start is lost: this message becomes the first of another stream."""
        kept = list(self.bases.items())[1 - PAST_STREAMS :]
        return OutgoingStream(self.sequence, name, {**dict(kept), name: number - 1})

    def element(self, guid: UUID, number: int, previous: int, receipts_url: str) -> Stream:
        """3.1.7.2.4: `start` in each copy of the first message, `previous` in all others."""
        current = self.current(number)
        return Stream(
            StreamId(guid, self.name),
            current,
            None if current == 1 else max(1, previous - self.base),
            receipts_url if current == 1 else None,
        )

    def encode(self) -> bytes:
        names = (_BASE.pack(each.ordinal, each.time_stamp, base) for each, base in self.bases.items())
        return b"".join(
            (_SEQUENCE.pack(self.sequence.ordinal, self.sequence.time_stamp), *names, bytes([self.started]))
        )

    @classmethod
    def decode(cls, data: bytes) -> OutgoingStream:
        sequence = TxSequenceId(*_SEQUENCE.unpack_from(data))
        bases = {TxSequenceId(*name): base for *name, base in _BASE.iter_unpack(data[_SEQUENCE.size : -1])}
        return cls(sequence, list(bases)[-1], bases, bool(data[-1]))
