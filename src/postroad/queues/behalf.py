"""Limits on the messages that the manager writes because of others, and the acknowledgments that applications here wait
for.

permissions.py decides whether somebody may cause a message. delivery.py writes it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from postroad.errors import QuotaExceeded
from postroad.names import FormatName, parse_format_name
from postroad.queues.outcomes import asks_for
from postroad.queues.queue import Queue
from postroad.queues.tick import MAX_MESSAGE_ID, Tick
from postroad.runtime.bounded import owner_of
from postroad.wire.constants import AckFlags, MessageClass
from postroad.wire.view import MessageView

ACK_SHARE_BYTES = 4 << 20  # may wait to leave because of one stranger: 20,000 acknowledgments
FINAL_SHARE_BYTES = 64 << 20  # with what is owed for accepted messages, which nobody would ask for again
SHARE_QUEUES = 64  # outgoing queues in which it may wait
STRANGERS = 4  # what waits because of all strangers has one part in so many of the manager's quota
COUNTED_S = 1.0  # how often that is counted again while there is no room
STATE = "asked/"  # followed by the first of several message ids: who asked for acknowledgments of them
MAX_ASKED = 100_000  # messages
_ARRIVAL = (AckFlags.POSITIVE_ARRIVAL | AckFlags.NEGATIVE_ARRIVAL).value
_RECEIVE = (AckFlags.POSITIVE_RECEIVE | AckFlags.NEGATIVE_RECEIVE).value
_BATCH = Struct("<IIH")
_ORDINAL = 16  # where the number begins in a message id, after the GUID of its manager


class Shares:
    """What waits in outgoing queues because of messages from one address, or from one subnet of IPv6."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[Queue, None]] = {}
        self._in_all = 0  # bytes: counted, and what was allowed since
        self._counted_at = -COUNTED_S

    def check(self, queue: Queue, size: int, origin: str, most: int, quota: int | None, now: float) -> None:
        """Raises QuotaExceeded if too much waits because of one address, or because of all. `quota` is the manager's,
        in bytes."""
        key = owner_of(origin)
        if quota is not None and self._in_all + size > quota // STRANGERS:
            self._count(now)
            if self._in_all + size > quota // STRANGERS:
                setting = "[relay] allow or [peers]"
                raise QuotaExceeded("what waits because of strangers", quota // STRANGERS, self._in_all, size, setting)
        waiting = {each: None for each in self._queues.get(key, ()) if each.used_bytes}
        used = sum([each.used_bytes for each in waiting])
        if used + size > most or (queue not in waiting and len(waiting) >= SHARE_QUEUES):
            self._queues[key] = waiting
            raise QuotaExceeded(f"what waits because of {origin}", most, used, size, "[relay] allow or [peers]")
        waiting[queue] = None
        self._in_all += size
        if key not in self._queues and len(self._queues) >= MAX_ASKED:
            self._queues = {each: held for each, held in self._queues.items() if any(one.used_bytes for one in held)}
        self._queues[key] = waiting

    def _count(self, now: float) -> None:
        if not 0 <= now - self._counted_at < COUNTED_S:
            self._counted_at = now
            queues = {each: None for held in self._queues.values() for each in held}
            self._in_all = sum([each.used_bytes for each in queues])


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages with consecutive ids whose acknowledgments go to one queue."""

    first: int
    queue: int
    flags: int
    destination: FormatName
    durable: bool
    waiting: dict[int, int]  # by id: the acknowledgments that may still come


class Asked:
    """The newest messages of applications here whose administration queue does not accept messages from everybody.
    Their acknowledgments come from managers that cannot sign. Therefore each acknowledgment may come once, whatever the
    queue demands of others, if `vouched` says that messages to the destination may be answered from its address."""

    def __init__(self, own: bytes, tick: Callable[[], Tick], vouched: Callable[[FormatName, str], bool]) -> None:
        self._own = own
        self._tick = tick
        self._vouched = vouched
        self._batches: OrderedDict[int, _Batch] = OrderedDict()  # by first id
        self._by_id: dict[int, _Batch] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def load(self, stored: Mapping[str, bytes]) -> None:
        for name, value in sorted(stored.items()):
            count, queue, flags = _BATCH.unpack_from(value)
            destination = parse_format_name(value[_BATCH.size :].decode())
            self._add(int(name.removeprefix(STATE)), count, queue, flags, destination, durable=True)

    def note(self, ids: Sequence[int], queue: Queue, flags: int, destination: FormatName, *, durable: bool) -> None:
        """Messages with consecutive ids leave for a destination, and want acknowledgments in a queue here."""
        self._add(ids[0], len(ids), queue.number, flags, destination, durable=durable)
        if durable:
            value = _BATCH.pack(len(ids), queue.number, flags) + str(destination).encode()
            self._tick().set_state(f"{STATE}{ids[0]:010d}", value)
        while len(self._by_id) > MAX_ASKED:
            self._drop(next(iter(self._batches.values())))

    def _add(self, first: int, count: int, queue: int, flags: int, destination: FormatName, *, durable: bool) -> None:
        ids = [each & MAX_MESSAGE_ID for each in range(first, first + count)]
        batch = self._batches[first] = _Batch(first, queue, flags, destination, durable, dict.fromkeys(ids, flags))
        self._by_id.update(dict.fromkeys(ids, batch))

    def _drop(self, batch: _Batch) -> None:
        self._batches.pop(batch.first, None)
        for each in batch.waiting:
            self._by_id.pop(each, None)
        if batch.durable:
            self._tick().set_state(f"{STATE}{batch.first:010d}", None)

    def answers(self, view: MessageView, queue: Queue, address: str | None) -> bool:
        """Whether this is an acknowledgment that may still come into the queue, from this address. The address is None
        if this manager writes it."""
        number = self._number(view)
        batch = None if number is None else self._by_id.get(number)
        if batch is None or number is None or batch.queue != queue.number:
            return False
        if not asks_for(batch.waiting[number], view.message_class):
            return False
        return address is None or self._vouched(batch.destination, address)

    def _number(self, view: MessageView) -> int | None:
        correlation = view.correlation_id
        if view.message_class == MessageClass.NORMAL or correlation[:_ORDINAL] != self._own:
            return None
        return int.from_bytes(correlation[_ORDINAL:], "little")

    def take(self, view: MessageView) -> None:
        """The acknowledgment has come. Those that it excludes cannot come any more."""
        number = self._number(view)
        batch = None if number is None else self._by_id.get(number)
        if number is None or batch is None:
            return
        before = batch.waiting[number]
        if view.message_class == MessageClass.ACK_REACH_QUEUE:
            left = before & ~_ARRIVAL
        elif view.message_class in (MessageClass.ACK_RECEIVE,) or view.message_class >= MessageClass.NACK_Q_DELETED:
            left = before & ~_RECEIVE
        else:
            left = 0
        batch.waiting[number] = left
        if not any(batch.waiting.values()):
            self._drop(batch)
        self._tick().on_failure.append(lambda error: self._restore(batch, number, before))

    def _restore(self, batch: _Batch, number: int, before: int) -> None:
        """The acknowledgment was lost with its tick. Its sender will send it again."""
        batch.waiting[number] = before
        self._batches[batch.first] = batch
        self._by_id.update(dict.fromkeys(batch.waiting, batch))
