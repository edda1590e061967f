"""The streams that come in: which there are, and how they move with the ticks that store their messages.

The rules are in streams.py; here a place in a stream becomes durable together with the message, or is lost with it.
Anybody may begin streams under any name, so that there is room for so many, and each caller has streams of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b

from postroad.bounded import BoundedTable, Standing, owner_of
from postroad.errors import ManagerFull
from postroad.names import DirectName
from postroad.queues.tick import Tick
from postroad.soap.elements import Stream, StreamId
from postroad.soap.streams import IncomingStream
from postroad.store.interface import Pair, Store
from postroad.transfer.steps import Steps

INCOMING_STATE = "soap-incoming/"
FORGET_S = 30 * 86400  # a stream whose messages all have their receipt is forgotten when it was silent so long
UNKNOWN = ""  # the caller of a stream that was stored without one


class IncomingStreams:
    """By sender and destination name, as [MS-MQDMPR] 3.1.1.5 has it, and by the address that brings the messages.

    A stream goes on from any address, since whoever continues it knows its id; one that begins replaces those of its
    own address alone, so that nobody ends the stream of another manager by claiming to be that one.
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
        """`forget` is told the ids of messages that have not come after all, `dropped` the state of a stream that made
        room for another."""
        self._steps = Steps(forget)
        self._is_known = is_known
        self._dropped = dropped
        stored = {name: IncomingStream.decode(value) for name, value in store.state(INCOMING_STATE).items()}
        self._streams: BoundedTable[str, IncomingStream] = BoundedTable(  # proven: a message of it was put into a queue
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
        """The state's name and the stream of this manager's messages to this name of a queue; a new one is kept once it
        has advanced."""
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
        """The address that brought the first message of the stream whose state has this name."""
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
        """What is finished and old is forgotten."""
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
        """The message came out of order, or again."""
        stream = self._streams.get(name)
        if stream is None:
            return
        stream.rejects += 1
        stream.last_access_s = int(now)
        self._streams.touch(name)
        if stream.number and stream.durable == stream.number:  # a place that may still be lost is not written
            tick.set_state(name, stream.encode())

    def note_receipt(self, tick: Tick, name: str) -> None:
        """How far the sender was told is kept: a restart must not forget what was not acknowledged."""
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
        """The message is accepted, or finally refused; `proven` where a queue takes it.

        What the tick gets by it belongs into the list. ManagerFull where there is no room for a new stream.
        """
        lowest = Standing.PROVEN if proven else Standing.STRANGER
        if name in self._streams:
            self._streams.touch(name)
            self._streams.rise(name, lowest)
        elif not self._keep(name, stream, lowest):
            raise ManagerFull("more streams come in than [limits] remote_managers allows")
        step = self._steps.of(tick, name, stream)
        stream.advance(element, now)
        step.identifiers.append(identifier)
        self._steps.moved(step)
        return step.added


def _base(name: str) -> str:
    """Sender and destination of the stream whose state has this name."""
    return "/".join(name.split("/", 3)[:3])
