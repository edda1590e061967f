"""Streams, [MC-MQSRM] 3.1.1.1.6 and 3.1.1.2: the numbers and timers by which messages arrive once and in order.

The rules of both ends, and the bytes that survive a restart. The sender and the receiver act on messages; nothing here
knows a queue, a store or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from struct import Struct
from uuid import UUID

from postroad.carriers.steps import Steps
from postroad.errors import ManagerFull
from postroad.names import DirectName
from postroad.queues.tick import Tick
from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.soap.elements import Stream, StreamId
from postroad.store.interface import Pair, Store
from postroad.wire.headers import TxSequenceId
from postroad.wire.octets import NULL_GUID

NO_STREAM = StreamId(NULL_GUID, TxSequenceId(0, 0))
PAST_STREAMS = 32  # names of one sender's past streams: a late first message must not begin such a stream anew
_INCOMING = Struct("<16sIIIIIIHH")
_SEQUENCE = Struct("<II")
_BASE = Struct("<III")  # a name and its base
_VALUE = Struct("<Q")


class Verdict(Enum):
    """What happens to a stream message, 3.1.5.1.6.3."""

    ACCEPTED = "accepted"
    PASSED = "passed"  # its place is taken, but the message came before, in another stream
    IGNORED = "ignored"  # a duplicate, or out of order


@dataclass(slots=True)
class IncomingStream:
    """The Stream at the receiver: from one sender to one of our queues, under one URL of the queue.

    `durable` is the number that a receipt may name: later messages are accepted but not committed yet. `due` is the
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
    again: bool = False  # the sender wants the last receipt once more

    def judge(self, stream: Stream, *, duplicate: bool) -> Verdict:
        """3.1.5.1.6.3: a message must be the next of this stream, whatever is missing in between, or the first of
        another.

        The place of a `duplicate` counts, but not the message. A late first message of an old stream does not begin a
        new one: the stream ids of one manager grow.
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
        # 3.1.1.2: without `previous` it is the number before. A gap may consist of messages that have expired.
        previous = stream.current - 1 if stream.previous is None else stream.previous
        return stream.current > self.number and previous <= self.number

    def advance(self, stream: Stream, now: float) -> None:
        """The message was accepted or finally refused. In both cases the stream moves past it."""
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
        """3.1.5.1.6.3: each message delays the receipt a little, but not for ever."""
        if self.unacked_since is None:
            self.unacked_since = now
        self.due = now if now - self.unacked_since >= longest_s else now + delay_s

    def repeat_receipt(self, now: float, delay_s: float) -> None:
        """A message came again, perhaps because our receipt was lost."""
        self.again = True
        if self.due is None:
            self.due = now + delay_s

    def receipt(self, now: float, delay_s: float) -> int | None:
        """3.1.6.3: the timer has fired. Returns the number to acknowledge; None if there is nothing to acknowledge yet.

        A message that is not durable is not acknowledged. The timer is then set again.
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
        """Reads a stored stream: all of it is durable. What was accepted but not acknowledged is due at once."""
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
    """The Stream at the sender: the messages of one outgoing queue.

    A packet has the number that its transaction gave it. If the packets before it have expired, and perhaps none of
    them has arrived, the stream must still begin at 1. It then gets a name that was never used, and `base` is
    subtracted from each number. Receipts for messages that arrived under an earlier name still use that name, so
    `bases` keeps all names.
    """

    sequence: TxSequenceId  # as in the packets
    name: TxSequenceId  # as on the wire
    bases: dict[TxSequenceId, int]
    started: bool = False  # the receiver has the first message; only then may others follow
    acknowledged: int = 0  # by stream receipts, as a number of the packets

    @classmethod
    def of(cls, sequence: TxSequenceId) -> OutgoingStream:
        return cls(sequence, sequence, {sequence: 0})

    @property
    def base(self) -> int:
        return self.bases[self.name]

    def current(self, number: int) -> int:
        return number - self.base

    def may_follow(self, number: int) -> bool:
        """Whether this message can be sent: it is the first one, or the first one has arrived."""
        return self.started or self.current(number) == 1

    def anew(self, name: TxSequenceId, number: int) -> OutgoingStream:
        """The first message is lost. Returns another stream, of which this message is the first."""
        kept = list(self.bases.items())[1 - PAST_STREAMS :]
        return OutgoingStream(self.sequence, name, {**dict(kept), name: number - 1})

    def element(self, guid: UUID, number: int, previous: int, receipts_url: str) -> Stream:
        """3.1.7.2.4: every copy of the first message has `start`, all other messages have `previous`."""
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


# The incoming streams: which there are, and how they move with the ticks that store their messages. A place in a stream
# becomes durable together with its message, or is lost with it. Anybody may begin streams under any name. So their
# number is limited, and each caller has streams of its own.


INCOMING_STATE = "soap-incoming/"
FORGET_S = 30 * 86400  # a stream without missing receipts is forgotten after this time
UNKNOWN = ""  # the caller of a stream that was stored without one


class IncomingStreams:
    """Streams by sender and destination name, as in [MS-MQDMPR] 3.1.1.5, and by the address that brings the messages.

    A stream goes on from any address, because whoever continues it knows its id. A new stream replaces only those of
    its own address, so nobody can end another manager's stream by claiming to be that manager.
    """

    def __init__(
        self,
        store: Store,
        forget: Callable[[bytes], None],
        most: int = 10_000,
        *,
        is_known: Callable[[str], bool] = lambda address: False,
        dropped: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`forget` is called with the ids of messages that were lost again. `dropped` is called with the state name of
        a stream that made room for another."""
        self._steps = Steps(forget)
        self._is_known = is_known
        self._dropped = dropped
        stored = {name: IncomingStream.decode(value) for name, value in store.state(INCOMING_STATE).items()}
        self._streams: BoundedTable[str, IncomingStream] = BoundedTable(  # proven: a message of it went into a queue
            most,
            lowest=Standing.PROVEN,
            in_use=lambda name, stream: name in self._steps,
            standing=lambda name, _: self._standing(name, Standing.STRANGER),
            dropped=self._forget,
        )
        self._of_base: dict[str, dict[str, None]] = {}  # by sender and destination
        for name, stream in sorted(stored.items(), key=lambda each: each[1].last_access_s):
            self._keep(name, stream, Standing.PROVEN)

    def __iter__(self) -> Iterator[IncomingStream]:
        return self._streams.values()

    def __len__(self) -> int:
        return len(self._streams)

    def names(self) -> list[str]:
        return list(self._streams)

    def get(self, name: str) -> IncomingStream | None:
        return self._streams.get(name)

    def of(self, stream_id: StreamId, destination: DirectName, address: str) -> tuple[str, IncomingStream]:
        """Returns the state's name, and the stream of this manager's messages to this queue name. A new stream is kept
        once it has advanced."""
        digest = blake2b(destination.key.encode(), digest_size=8).hexdigest()
        base = f"{INCOMING_STATE}{stream_id.guid.bytes_le.hex()}/{digest}"
        for name in self._of_base.get(base, ()):
            stream = self._streams.get(name)
            assert stream is not None
            if stream.stream_id == stream_id or stream_id.sequence.value in stream.past:
                return name, stream
        own = f"{base}/{address}"
        return own, self._streams.get(own) or IncomingStream(format_name=str(destination))

    @staticmethod
    def address(name: str) -> str:
        """The address that brought the first message of the stream with this state name."""
        _, _, address = name.removeprefix(INCOMING_STATE).partition("/")[2].partition("/")
        return address or UNKNOWN

    # Room

    def _standing(self, name: str, lowest: Standing) -> Standing:
        return Standing.KNOWN if self._is_known(self.address(name)) else lowest

    def _keep(self, name: str, stream: IncomingStream, lowest: Standing) -> bool:
        if not self._streams.put(name, stream, owner_of(self.address(name)), self._standing(name, lowest)):
            return False
        self._of_base.setdefault(_base(name), {})[name] = None
        return True

    def forget_old(self, tick: Tick, now: float) -> None:
        """Forgets streams that are finished and old."""
        for name, stream in list(self._streams.items()):
            if stream.last_access_s + FORGET_S > now:
                return
            if stream.acknowledged == stream.number and name not in self._steps:
                self._streams.pop(name)
                self._forget(name, stream)
                tick.set_state(name, None)

    def _forget(self, name: str, stream: IncomingStream) -> None:
        names = self._of_base[_base(name)]
        del names[name]
        if not names:
            del self._of_base[_base(name)]
        self._dropped(name)

    # Messages

    def reject(self, tick: Tick, name: str, now: float) -> None:
        """Notes that a message came out of order, or again."""
        stream = self._streams.get(name)
        if stream is None:
            return
        stream.rejects += 1
        stream.last_access_s = int(now)
        self._streams.touch(name)
        if stream.number and stream.durable == stream.number:  # a place that may still be lost is not written
            tick.set_state(name, stream.encode())

    def note_receipt(self, tick: Tick, name: str) -> None:
        """Stores how far receipts have gone. After a restart, the rest must still be acknowledged."""
        stream = self._streams.get(name)
        if stream is not None and stream.durable == stream.number:
            tick.set_state(name, stream.encode())

    def advance(
        self,
        tick: Tick,
        name: str,
        stream: IncomingStream,
        element: Stream,
        identifier: bytes,
        now: float,
        *,
        proven: bool = False,
    ) -> list[Pair]:
        """The message was accepted or finally refused. `proven` means that a queue took it.

        Returns the list for what the tick gets because of it. Raises ManagerFull if there is no room for a new
        stream.
        """
        lowest = Standing.PROVEN if proven else Standing.STRANGER
        if name in self._streams:
            self._streams.touch(name)
            self._streams.rise(name, lowest)
        elif not self._keep(name, stream, lowest):
            raise ManagerFull("the limit of incoming streams is reached, see [limits] remote_managers")
        step = self._steps.of(tick, name, stream)
        stream.advance(element, now)
        step.identifiers.append(identifier)
        self._steps.moved(step)
        return step.added


def _base(name: str) -> str:
    """The sender and destination in a state name."""
    return "/".join(name.split("/", 3)[:3])
