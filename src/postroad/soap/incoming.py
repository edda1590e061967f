"""The streams that come in: which there are, and how they move with the ticks that store their messages.

The rules are in streams.py; here a place in a stream becomes durable together with the message, or is lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from uuid import UUID

from postroad.names import DirectName
from postroad.queues.tick import Tick
from postroad.soap.elements import Stream, StreamId
from postroad.soap.streams import IncomingStream
from postroad.store.interface import Key, Store

INCOMING_STATE = "soap-incoming/"


@dataclass(slots=True, eq=False)
class _Step:
    """What one tick does to a stream."""

    tick: Tick
    before: tuple[StreamId, int, int, str, list[int]]
    number: int = 0
    stream_id: StreamId | None = None
    added: list[Key] = field(default_factory=list)  # messages, and what follows from their arrival
    identifiers: list[bytes] = field(default_factory=list)  # of those messages


class IncomingStreams:
    """By sender and destination name, as [MS-MQDMPR] 3.1.1.5 has it."""

    def __init__(self, store: Store, forget: Callable[[bytes], None]) -> None:
        """`forget` is told the ids of messages that have not come after all."""
        self._forget = forget
        self._streams = {name: IncomingStream.decode(value) for name, value in store.state(INCOMING_STATE).items()}
        self._steps: dict[str, _Step] = {}  # of the newest tick that has moved each

    def __iter__(self) -> Iterator[IncomingStream]:
        return iter(self._streams.values())

    def items(self) -> list[tuple[str, IncomingStream]]:
        return list(self._streams.items())

    def of(self, source: UUID, destination: DirectName) -> tuple[str, IncomingStream]:
        """The state's name and the stream of this manager's messages to this name of a queue; a new one is kept once it
        has advanced."""
        digest = blake2b(destination.key.encode(), digest_size=8).hexdigest()
        name = f"{INCOMING_STATE}{source.bytes_le.hex()}/{digest}"
        return name, self._streams.get(name) or IncomingStream(format_name=str(destination))

    @staticmethod
    def sender(name: str) -> UUID:
        """SenderIdentifier of the stream whose state has this name."""
        return UUID(bytes_le=bytes.fromhex(name.removeprefix(INCOMING_STATE).partition("/")[0]))

    def reject(self, tick: Tick, name: str, now: float) -> None:
        """The message came out of order, or again."""
        stream = self._streams.get(name)
        if stream is None:
            return
        stream.rejects += 1
        stream.last_access_s = int(now)
        if stream.number and stream.durable == stream.number:  # a place that may still be lost is not written
            tick.set_state(name, stream.encode())

    def note_receipt(self, tick: Tick, name: str) -> None:
        """How far the sender was told is kept: a restart must not forget what was not acknowledged."""
        stream = self._streams[name]
        if stream.durable == stream.number:
            tick.set_state(name, stream.encode())

    def advance(
        self, tick: Tick, name: str, stream: IncomingStream, element: Stream, identifier: bytes, now: float
    ) -> list[Key]:
        """The message is accepted, or finally refused. What the tick gets by it belongs into the list."""
        self._streams[name] = stream
        step = self._steps.get(name)
        if step is None or step.tick is not tick:
            before = (
                stream.stream_id,
                stream.number,
                stream.acknowledged,
                stream.send_receipts_to,
                stream.past,
            )
            step = self._steps[name] = _Step(tick, before)
            tick.on_seal.append(partial(self._write, name, step))
            tick.on_commit.append(partial(self._committed, name, step))
            tick.undo.append(partial(self._lost, name, step))
        tick.writes += 1  # it is written when the tick is sealed; the answer has to wait for that all the same
        stream.advance(element, now)
        step.number, step.stream_id = stream.number, stream.stream_id
        step.identifiers.append(identifier)
        return step.added

    def _write(self, name: str, step: _Step) -> None:
        if step.number:
            step.tick.set_state(name, self._streams[name].encode())

    def _committed(self, name: str, step: _Step) -> None:
        stream = self._streams[name]
        if step.number and step.stream_id == stream.stream_id:
            stream.durable = step.number
        if self._steps.get(name) is step:
            del self._steps[name]

    def _lost(self, name: str, step: _Step, gathering: Tick) -> None:
        """Back to where it was. What came on top of the lost messages goes too: it would stand before them."""
        if not step.number:
            return
        stream = self._streams[name]
        (
            stream.stream_id,
            stream.number,
            stream.acknowledged,
            stream.send_receipts_to,
            stream.past,
        ) = step.before
        stream.durable = stream.number  # ticks land one after the other: those before this one have
        later = self._steps.pop(name, None)
        if later is not None and later is not step:
            for key in later.added:
                gathering.take_back(key)
            for identifier in later.identifiers:
                self._forget(identifier)
            gathering.batch.state.pop(name, None)
            later.number = 0  # nothing follows from it any more
