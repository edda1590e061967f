"""Messages from other managers: which queues they may enter, why a queue refuses them, and which have arrived already.

MessageIDHistoryTable, [MS-MQQB] 3.1.1.3 and [MC-MQSRM] 3.1.1.1.5: each carrier has its own. The carrier decides what
happens to a duplicate or a refused message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import repeat
from struct import Struct

from postroad.errors import ManagerFull, QuotaExceeded
from postroad.names import DirectName, FormatName
from postroad.queues.collection import QueueCollection
from postroad.queues.delivery import Delivery, new_records
from postroad.queues.permissions import Access, Credentials
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.security.refusals import (
    EXPIRED,
    NOT_TRANSACTIONAL_MESSAGE,
    NOT_TRANSACTIONAL_QUEUE,
    QUEUE_FULL,
    Refused,
)
from postroad.store.interface import NEVER, PRIORITY_SHIFT, Record, Store
from postroad.wire.constants import INFINITE
from postroad.wire.runs import Run
from postroad.wire.view import MessageView

HISTORY_STATE = "history/"
_ENTRY = Struct("<20sI")
_SECONDS = Struct("<I")
ADDRESSES = 8  # how many addresses keep all of their newest ids
KNOWN_ADDRESSES = 1024  # addresses whose owners are cached
OWNERS_S = 30.0  # how long an owner stays cached

KNOWN_QUEUES = 1024  # names that are cached with their queues
_DESTINATIONS = frozenset({QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR})
REMOVALS = _DESTINATIONS | {QueueType.SUBQUEUE}  # where an arrived message is until it is read


class Destinations:
    """The queues that others may send to, by the names that they use. A name that recurs is not looked up again."""

    def __init__(self, queues: QueueCollection) -> None:
        self._queues = queues
        self._known: dict[object, Queue] = {}

    def known(self, key: object) -> Queue | None:
        """The queue that `remember` got for a key, as long as it exists."""
        queue = self._known.get(key)
        if queue is None or queue.deleted or self._queues.by_number.get(queue.number) is not queue:
            return None
        return queue

    def remember(self, key: object, queue: Queue) -> None:
        if len(self._known) >= KNOWN_QUEUES:
            self._known.clear()
        self._known[key] = queue

    def find(self, name: FormatName, *, internal: bool = False) -> Queue | None:
        """The queue of this name. A direct name has led here, whatever it calls this computer. None for queues that
        others must not use; `internal` admits the manager's own. The notification queue is for others while somebody
        reads it."""
        queue = self._queues.by_tail(name.tail) if isinstance(name, DirectName) else self._queues.find(name)
        if queue is None or queue.properties.queue_type not in _DESTINATIONS:
            return None
        if queue.is_internal and not internal and not self._queues.takes_notifications(queue):
            return None
        return queue


def refusal(
    queue: Queue, view: MessageView, credentials: Credentials, access: Access, now: float, *, timeless: bool = False
) -> Refused | None:
    """[MS-MQQB] 3.1.5.8.3 and [MC-MQSRM] 3.1.5.1.12: the queue's first check that fails gives the reason.

    A `timeless` message does not expire: it is as true later.
    """
    if view.transactional != queue.properties.transactional:
        return NOT_TRANSACTIONAL_QUEUE if view.transactional else NOT_TRANSACTIONAL_MESSAGE
    refused = access.refusal(queue, credentials)
    if refused is None and not timeless and view.has_expired(now):
        return EXPIRED
    return refused


def overflow(delivery: Delivery, queue: Queue, size: int) -> Refused | None:
    """Why the queue has no room for a message. Raises ManagerFull if the manager itself has none."""
    demand_room(delivery, size)
    return None if queue.has_room(size) else QUEUE_FULL


def demand_room(delivery: Delivery, size: int) -> None:
    """Raises ManagerFull if the manager has no room for a message, or for its dead letter: a full manager does not
    refuse what would then leave none."""
    try:
        delivery.check_manager_quota(size)
    except QuotaExceeded as fault:
        raise ManagerFull(str(fault)) from fault


def has_room(delivery: Delivery, queue: Queue, size: int) -> bool:
    try:
        delivery.check_quota(queue, size)
    except QuotaExceeded:
        return False
    return True


def arrive_all(delivery: Delivery, queue: Queue, run: Run, now: float) -> list[Record]:
    """Puts the messages of a run into their queue, which has room for them."""
    view, packets = run.view, run.packets
    priority = 0 if view.transactional else view.priority
    first = (7 - priority) << PRIORITY_SHIFT | delivery.counters.take_arrivals(len(packets))
    if view.time_to_be_received == INFINITE and not queue.is_outgoing:
        expiries: Iterable[int] = repeat(NEVER)
    else:
        expiries = [delivery.expiry(queue, packet, now) for packet in packets]
    lookup_ids = range(first, first + len(packets))
    records = new_records(queue.number, lookup_ids, int(now * 1000), expiries, packets)
    delivery.put_all(queue, records, now)
    return records


def foreign_id(identifier: bytes, address: str) -> bytes:
    """The id of a message that somebody at this address sends in another's name. It differs from the other's own id: a
    stranger who guesses the next ids of a manager must not make its messages look like duplicates."""
    return blake2b(identifier + address.encode(), digest_size=len(identifier)).digest()


class MessageIdHistory:
    """The newest ids, each with the time when it was last seen. The store keeps them in blocks, one for each tick.

    `size` ids are kept for one address, and `ADDRESSES` times as many in all. When that is full, the address with the
    most ids gives up its oldest first. An address that `is_known` never gives up an id for one that is not, so a flood
    does not push out another's ids.
    """

    def __init__(
        self,
        store: Store,
        size: int,
        lifetime_s: int,
        prefix: str = HISTORY_STATE,
        is_known: Callable[[str], bool] = lambda address: False,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """`begun` is called when there is a `deadline` again, after a time without one."""
        self.size = size
        self.lifetime_s = lifetime_s
        self._prefix = prefix
        self._seen: BoundedTable[bytes, int] = BoundedTable(ADDRESSES * size, most=size)  # when it was last seen
        self._is_known = is_known
        self._begun = begun
        self._ages = False  # until `clean` finds nothing
        # By address: the owner, whether it is known, and when it was looked up.
        self._owners: dict[str, tuple[str, bool, float]] = {}
        self._blocks: OrderedDict[str, bytes] = OrderedDict()
        self._in_blocks = 0  # ids in all blocks
        self._gathering: list[bytes] = []  # the entries of the gathering tick, one or several in each
        self._tick: Tick | None = None
        self._next_block = 0
        for name, block in sorted(store.state(prefix).items()):
            for identifier, seen_s in _ENTRY.iter_unpack(block):
                self._seen.put(identifier, seen_s, f"earlier {len(self._seen) // size}", Standing.KNOWN)
            self._blocks[name] = block
            self._in_blocks += len(block) // _ENTRY.size
            self._next_block = int(name.removeprefix(prefix)) + 1

    def start(self, now: float) -> None:
        """Ids from the store count as just seen, so that none is forgotten because the clock was set meanwhile."""
        self._seen.set_values(int(now))
        if self._seen:
            self._ages = True
            self._begun()

    @property
    def limit(self) -> int:
        """For all addresses together."""
        return self._seen.limit

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._seen

    def has_any(self, identifiers: list[bytes]) -> bool:
        """Whether one of them has arrived already, or occurs twice."""
        return self._seen.has_any(identifiers) or len(set(identifiers)) < len(identifiers)

    def seen_at(self, identifier: bytes) -> int | None:
        """When a message last came, in seconds. None if it never came, or if that is forgotten."""
        return self._seen.get(identifier)

    def refresh(self, identifier: bytes, now: float) -> None:
        """3.1.5.8.1: a duplicate came, so more may follow."""
        if identifier in self._seen:
            self._seen.put(identifier, int(now), self._seen.owner(identifier), self._seen.standing(identifier))

    def add(self, identifier: bytes, now: float, tick: Tick | None, address: str = "", *, taken: bool = True) -> None:
        """3.1.5.8.2. With a tick, the id becomes durable with the message. Without one, for an express message, it is
        kept in memory only. The id of a message that no queue accepted is forgotten first."""
        self._seen.pop(identifier)
        self.add_all((identifier,), now, tick, address, taken=taken)

    def add_all(
        self, identifiers: Sequence[bytes], now: float, tick: Tick | None, address: str, *, taken: bool = True
    ) -> None:
        """The same for several messages that have not come before."""
        seen_s = int(now)
        cached = self._owners.get(address)
        if cached is None or not 0 <= now - cached[2] < OWNERS_S:
            cached = self._look_up_owner(address, now)
        owner, known, _ = cached
        standing = Standing.KNOWN if known else Standing.PROVEN if taken else Standing.STRANGER
        self._seen.put_all(identifiers, seen_s, owner, standing)
        if not self._ages:
            self._ages = True
            self._begun()
        if tick is None:
            return
        if tick is not self._tick:
            self._tick = tick
            self._gathering = []
            self._next_block += 1
            tick.on_seal.append(partial(self._write, tick, self._next_block, self._gathering))
        stamp = _SECONDS.pack(seen_s)
        self._gathering.append(stamp.join(identifiers) + stamp)

    def _look_up_owner(self, address: str, now: float) -> tuple[str, bool, float]:
        """Cached, because the answer is the same for many messages of one address."""
        if len(self._owners) >= KNOWN_ADDRESSES:
            self._owners.clear()
        self._owners[address] = owner_of(address), self._is_known(address), now
        return self._owners[address]

    def forget(self, identifier: bytes) -> None:
        """A message of the gathering tick does not come after all."""
        self._seen.pop(identifier)
        entries = _ENTRY.iter_unpack(b"".join(self._gathering))
        self._gathering[:] = [_ENTRY.pack(*entry) for entry in entries if entry[0] != identifier]

    def _write(self, tick: Tick, number: int, entries: list[bytes]) -> None:
        """Writes the block of a sealed tick. If the blocks have many forgotten ids, the oldest block leaves, and its
        other ids move into this one."""
        name = f"{self._prefix}{number:012d}"
        block = b"".join(entries)
        dropped: list[tuple[str, bytes]] = []
        moved: list[bytes] = []
        self._in_blocks += len(block) // _ENTRY.size
        while self._blocks and self._in_blocks > self.size + len(self._seen):
            dropped.append(self._blocks.popitem(last=False))
            alive = [entry for entry in _ENTRY.iter_unpack(dropped[-1][1]) if entry[0] in self._seen]
            moved += [_ENTRY.pack(*entry) for entry in alive]
            self._in_blocks -= len(dropped[-1][1]) // _ENTRY.size - len(alive)
            tick.set_state(dropped[-1][0], None)
        self._blocks[name] = b"".join((*moved, block))
        tick.set_state(name, self._blocks[name])
        tick.on_failure.append(lambda error: self._lost(name, block, dropped))

    def _lost(self, name: str, block: bytes, dropped: list[tuple[str, bytes]]) -> None:
        """The tick is lost. Its messages have not come, and the blocks that it dropped are still there."""
        for identifier, _ in _ENTRY.iter_unpack(block):
            self._seen.pop(identifier)
        self._blocks.pop(name, None)
        for old, content in reversed(dropped):
            self._blocks[old] = content
            self._blocks.move_to_end(old, last=False)
        self._in_blocks = sum(map(len, self._blocks.values())) // _ENTRY.size

    @property
    def deadline(self) -> float | None:
        """MessageIDHistory Cleanup Timer, 3.1.2.8. It runs while there are ids."""
        oldest = next(iter(self._seen.values()), None)
        return None if oldest is None else oldest + self.lifetime_s + 1

    def clean(self, now: float) -> None:
        """3.1.6.7: drops ids that have not been repeated for long."""
        while (oldest := next(iter(self._seen.items()), None)) is not None and oldest[1] < now - self.lifetime_s:
            self._seen.pop(oldest[0])
        self._ages = bool(self._seen)
