"""Messages from other managers: which queues they may enter, why one refuses them, and which have come already.

MessageIDHistoryTable, [MS-MQQB] 3.1.1.3 and [MC-MQSRM] 3.1.1.1.5: each carrier has its own. What becomes of a duplicate
or of a refused message is the carrier's to say.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from heapq import heapify, heapreplace
from itertools import starmap
from struct import Struct

from postroad.errors import ManagerFull, QuotaExceeded
from postroad.fields.queue import QueuePrivacy
from postroad.names import DirectName, FormatName
from postroad.queues.access import Access
from postroad.queues.collection import QueueCollection
from postroad.queues.delivery import Delivery, is_internal
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.security.access import Token
from postroad.security.refusals import (
    BODY_ENCRYPTED,
    BODY_NOT_ENCRYPTED,
    EXPIRED,
    NO_ACCESS,
    NOT_AUTHENTICATED,
    NOT_TRANSACTIONAL_MESSAGE,
    NOT_TRANSACTIONAL_QUEUE,
    QUEUE_FULL,
    Refused,
)
from postroad.store.interface import Store
from postroad.wire.view import MessageView

HISTORY_STATE = "history/"
_ENTRY = Struct("<20sI")
DROPPED = 64  # of a full table, the share that makes room: one look at all addresses for many newcomers


KNOWN_QUEUES = 1024  # names that are remembered with their queues
_DESTINATIONS = frozenset({QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR})
REMOVALS = _DESTINATIONS | {QueueType.SUBQUEUE}  # where a message is that has arrived and was not read


class Destinations:
    """The queues that others may send to, by the names that they use; a name that recurs is not looked up again."""

    def __init__(self, queues: QueueCollection) -> None:
        self._queues = queues
        self._known: dict[object, Queue] = {}

    def known(self, key: object) -> Queue | None:
        """The queue that `remember` was given for a key, as long as it is there."""
        queue = self._known.get(key)
        if queue is None or queue.deleted or self._queues.by_number.get(queue.number) is not queue:
            return None
        return queue

    def remember(self, key: object, queue: Queue) -> None:
        if len(self._known) >= KNOWN_QUEUES:
            self._known.clear()
        self._known[key] = queue

    def find(self, name: FormatName, *, internal: bool = False) -> Queue | None:
        """The queue of this name; a direct name has led here, whatever it calls this computer. None for queues that are
        not for others, but for the manager's own where `internal` says so."""
        queue = self._queues.by_tail(name.tail) if isinstance(name, DirectName) else self._queues.find(name)
        if queue is None or queue.properties.queue_type not in _DESTINATIONS or (is_internal(queue) and not internal):
            return None
        return queue


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known of a message's sender and of its security, once signature and key have been checked."""

    token: Token
    authenticated: bool = False
    encrypted: bool = False


def refusal(
    queue: Queue, view: MessageView, credentials: Credentials, access: Access, now: float, *, timeless: bool = False
) -> Refused | None:
    """[MS-MQQB] 3.1.5.8.3 and [MC-MQSRM] 3.1.5.1.12: the first check of the queue that fails names the reason.

    A `timeless` message is as true later.
    """
    properties = queue.properties
    if view.transactional != properties.transactional:
        return NOT_TRANSACTIONAL_QUEUE if view.transactional else NOT_TRANSACTIONAL_MESSAGE
    if properties.authenticate and not credentials.authenticated:
        return NOT_AUTHENTICATED
    if properties.privacy is not QueuePrivacy.OPTIONAL:
        if properties.privacy is QueuePrivacy.BODY and not credentials.encrypted:
            return BODY_NOT_ENCRYPTED
        if properties.privacy is QueuePrivacy.NONE and credentials.encrypted:
            return BODY_ENCRYPTED
    if properties.acl is not None and not access.may_send(queue, credentials.token):
        return NO_ACCESS  # the default list lets everyone send
    if not timeless and view.has_expired(now):
        return EXPIRED
    return None


def overflow(delivery: Delivery, queue: Queue, size: int) -> Refused | None:
    """Why the queue has no room for a message; ManagerFull where the manager itself has none."""
    try:
        delivery.check_quota(queue, size)
    except QuotaExceeded as fault:
        if queue.quota_bytes is None or queue.used_bytes + size <= queue.quota_bytes:
            raise ManagerFull(str(fault)) from fault
        return QUEUE_FULL
    return None


def foreign_id(identifier: bytes, address: str) -> bytes:
    """The id of a message that somebody at this address sends in another's name. It makes no message of that other one
    a duplicate: a stranger who guesses the next ids of a manager must not keep its messages out."""
    return blake2b(identifier + address.encode(), digest_size=len(identifier)).digest()


class MessageIdHistory:
    """The newest `size` ids, each with the time it was last seen. Kept in the store in blocks, one for each tick.

    The address that has most of them gives up its oldest first: a flood from one does not push out another's.
    """

    def __init__(self, store: Store, size: int, lifetime_s: int, prefix: str = HISTORY_STATE) -> None:
        self.size = size
        self.lifetime_s = lifetime_s
        self._prefix = prefix
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._senders: dict[bytes, str] = {}  # by id: the address that it came from, as far as is known
        self._by_sender: dict[str, OrderedDict[bytes, None]] = {}  # the other way round, the oldest first
        self._blocks: OrderedDict[str, int] = OrderedDict()  # by name: how many ids they hold
        self._kept = 0  # ids in all of them
        self._gathering: list[tuple[bytes, int]] = []
        self._tick: Tick | None = None
        self._next_block = 0
        for name, block in sorted(store.state(prefix).items()):
            entries = list(_ENTRY.iter_unpack(block))
            for identifier, seen_s in entries:
                self._note(identifier, seen_s, "")
            self._blocks[name] = len(entries)
            self._kept += len(entries)
            self._next_block = int(name.removeprefix(prefix)) + 1

    def start(self, now: float) -> None:
        """What the store knew is as good as just seen: a clock that was set meanwhile must not make it forgotten."""
        self._seen = OrderedDict.fromkeys(self._seen, int(now))

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._seen

    def seen_at(self, identifier: bytes) -> int | None:
        """When a message came last, in seconds; None for one that did not, or that is forgotten."""
        return self._seen.get(identifier)

    def refresh(self, identifier: bytes, now: float) -> None:
        """3.1.5.8.1: a duplicate came, so more may."""
        self._note(identifier, int(now), self._senders.get(identifier, ""))

    def add(self, identifier: bytes, now: float, tick: Tick | None, address: str = "") -> None:
        """3.1.5.8.2. With a tick the id becomes durable with the message; an express one's is only remembered."""
        self._note(identifier, int(now), address)
        if len(self._seen) > self.size:
            self._make_room()
        if tick is None:
            return
        if tick is not self._tick:
            self._tick = tick
            self._gathering = []
            self._next_block += 1
            tick.on_seal.append(partial(self._write, tick, self._next_block, self._gathering))
        self._gathering.append((identifier, int(now)))

    def _note(self, identifier: bytes, seen_s: int, address: str) -> None:
        if identifier in self._seen:
            self._drop(identifier)
        self._seen[identifier] = seen_s
        self._senders[identifier] = address
        theirs = self._by_sender.get(address)
        if theirs is None:
            theirs = self._by_sender[address] = OrderedDict()
        theirs[identifier] = None

    def _drop(self, identifier: bytes) -> None:
        if self._seen.pop(identifier, None) is None:
            return
        address = self._senders.pop(identifier)
        theirs = self._by_sender[address]
        del theirs[identifier]
        if not theirs:
            del self._by_sender[address]

    def _make_room(self) -> None:
        largest = [(-len(theirs), address) for address, theirs in self._by_sender.items()]
        heapify(largest)
        for _ in range(self.size // DROPPED + 1):
            count, address = largest[0]
            self._drop(next(iter(self._by_sender[address])))
            heapreplace(largest, (count + 1, address))

    def forget(self, identifier: bytes) -> None:
        """A message that the gathering tick was to bring is not coming after all."""
        self._drop(identifier)
        self._gathering[:] = [each for each in self._gathering if each[0] != identifier]

    def _write(self, tick: Tick, number: int, entries: list[tuple[bytes, int]]) -> None:
        """The block of a tick that is sealed; the oldest go when those behind them hold as many as are kept."""
        name = f"{self._prefix}{number:012d}"
        tick.set_state(name, b"".join(starmap(_ENTRY.pack, entries)))
        self._blocks[name] = len(entries)
        self._kept += len(entries)
        dropped: list[tuple[str, int]] = []
        while len(self._blocks) > 1 and self._kept - next(iter(self._blocks.values())) >= self.size:
            dropped.append(self._blocks.popitem(last=False))
            self._kept -= dropped[-1][1]
            tick.set_state(dropped[-1][0], None)
        tick.on_failure.append(lambda error: self._lost(name, entries, dropped))

    def _lost(self, name: str, entries: list[tuple[bytes, int]], dropped: list[tuple[str, int]]) -> None:
        """The tick never was: its messages have not come, and the blocks that it dropped are still there."""
        for identifier, _ in entries:
            self._drop(identifier)
        self._kept -= self._blocks.pop(name, 0)
        for old, count in reversed(dropped):
            self._blocks[old] = count
            self._blocks.move_to_end(old, last=False)
            self._kept += count

    @property
    def deadline(self) -> float | None:
        """MessageIDHistory Cleanup Timer, 3.1.2.8: it runs as long as there is something to forget."""
        oldest = next(iter(self._seen.values()), None)
        return None if oldest is None else oldest + self.lifetime_s + 1

    def clean(self, now: float) -> None:
        """3.1.6.7: ids that nobody has repeated for long are forgotten."""
        while self._seen and next(iter(self._seen.values())) < now - self.lifetime_s:
            self._drop(next(iter(self._seen)))
