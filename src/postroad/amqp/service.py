"""All connections by AMQP of one queue manager: who is connected, what each link may do, and what connections hold.

No sockets here: listener.py has them. Every change is durable before its answer leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from postroad.amqp.codec import read_list, read_value
from postroad.amqp.engine import Engine, EngineSettings, Terminus
from postroad.amqp.links import Link, Node
from postroad.amqp.mapping import PROPERTIES, read_address
from postroad.amqp.nodes import Browser, Consumer, Coordinator, Producer, Work
from postroad.amqp.performatives import (
    COORDINATOR,
    FORCED,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    UNKNOWN_TRANSACTION,
    ConnectionFault,
    Fault,
)
from postroad.errors import AccessDenied, PostroadError
from postroad.names import FormatName, PathName
from postroad.queues.durability import Durability
from postroad.queues.leases import Holder, Leases
from postroad.queues.local import LocalQueueManager
from postroad.queues.permissions import Action, no_right
from postroad.queues.queue import Queue
from postroad.reports.info import AmqpConnectionInfo, AmqpInfo, AmqpLinkInfo
from postroad.reports.operations import QueueAccess, ShareMode
from postroad.security.access import Token, default_queue_descriptor
from postroad.security.sddl import format_sddl

TIMER_S: Final = 0.5
MOST_LISTED: Final = 1000  # connections in a report
DYNAMIC: Final = "private$\\amqp.dynamic."  # followed by an id: queues that end with their link
MOST_DYNAMIC: Final = 4096  # queues of all connections: a queue and its journal take two of 65,536 numbers
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is connected. `right` returns what the visitor may do now: the user may be removed meanwhile."""

    who: str
    address: str
    right: Callable[[], Token]


class Shell(Protocol):
    """The connection of a guest."""

    def check(self, mechanism: str, response: bytes) -> None: ...

    def output(self) -> None:
        """There may be something to send, or links to serve, after this event."""


class AmqpService:
    """`leases` are those of all clients of the manager. `refused` is told of visitors without the right to a queue."""

    def __init__(
        self,
        core: LocalQueueManager,
        leases: Leases,
        durability: Durability,
        clock: Callable[[], float],
        settings: EngineSettings,
        refused: Callable[[Visitor, str | None, PostroadError], object] = lambda visitor, address, error: None,
    ) -> None:
        self.core = core
        self.leases = leases
        self.durability = durability
        self.clock = clock
        self.settings = settings
        self.refused = refused
        self.guests: dict[Guest, None] = {}
        self._dynamic = 0
        self._received = 0  # messages of connections that have ended
        self._sent = 0
        self._changed = False
        core.reviews.append(self.review)
        core.queues.watch_definitions(self._defined)

    def start(self, now: float) -> None:
        """Deletes dynamic queues that the last run has left."""
        for queue in [each for each in self.core.queues if each.properties.path.lower().startswith(DYNAMIC)]:
            if queue.properties.owner is None and not queue.properties.path.endswith(";journal"):
                self.core.delete_queue(queue, now)

    def connect(self, shell: Shell, mechanisms: tuple[str, ...]) -> Guest:
        guest = Guest(self, shell, mechanisms)
        self.guests[guest] = None
        return guest

    def forget(self, guest: Guest) -> None:
        """The connection is gone."""
        if guest in self.guests:
            del self.guests[guest]
            self._received += guest.engine.received_messages
            self._sent += guest.engine.sent_messages

    def create_dynamic(self, guest: Guest, now: float) -> str:
        """The path of a new private queue for replies, which everybody may send to."""
        if self._dynamic >= MOST_DYNAMIC:
            raise Fault(RESOURCE_LIMIT, f"there are {MOST_DYNAMIC} dynamic queues already")
        path, user = f"{DYNAMIC}{self.core.new_id().hex}", guest.token.user
        owner = {} if user is None else {"acl": format_sddl(default_queue_descriptor(user))}
        self.durability.run(lambda: self.core.create_queue(path, now, label="replies by AMQP", **owner))
        self.durability.soon()
        self._dynamic += 1
        return path

    def delete_dynamic(self, queue: Queue, now: float) -> None:
        self._dynamic -= 1
        if not queue.deleted:
            self.durability.run(lambda: self.core.delete_queue(queue, now))
            self.durability.soon()

    def _defined(self) -> None:
        """A queue was created, deleted or changed."""
        self._changed = True
        for guest in self.guests:
            guest.output()
            break

    def review(self, queues: Collection[Queue], now: float) -> None:
        """Rights have changed: whoever has lost one loses the link."""
        for guest in list(self.guests):
            guest.review(now)

    def look(self, now: float) -> None:
        """After each event: links to queues that are gone end."""
        if self._changed:
            self._changed = False
            for guest in list(self.guests):
                guest.review(now)

    def run_timers(self, now: float) -> None:
        self.look(now)
        for guest in list(self.guests):
            guest.run_timers(now)

    def info(self) -> AmqpInfo:
        links = [each for guest in self.guests for each in guest.engine.links]
        return AmqpInfo(
            open=len(self.guests),
            links=len(links),
            unsettled=sum(each.unsettled for each in links),
            received=self._received + sum(guest.engine.received_messages for guest in self.guests),
            sent=self._sent + sum(guest.engine.sent_messages for guest in self.guests),
            connections=tuple(guest.info() for guest in islice(self.guests, MOST_LISTED)),
        )


class Guest:
    """One connection: the broker of its engine."""

    def __init__(self, service: AmqpService, shell: Shell, mechanisms: tuple[str, ...]) -> None:
        self.service = service
        self.core = service.core
        self.leases = service.leases
        self.clock = service.clock
        self.change_then = service.durability.change_then
        self.soon = service.durability.soon
        self.caller = Visitor("", "", Token.nobody)
        self.works: dict[bytes, Work] = {}
        self.uncommitted = 0  # bytes of messages that wait for the disk
        self.engine = Engine(self, service.settings, mechanisms, service.clock())
        self._shell = shell
        self._refill: dict[Consumer, None] = {}
        self._ending: list[tuple[Consumer, PostroadError]] = []

    @property
    def token(self) -> Token:
        return self.caller.right()

    @property
    def owner(self) -> str:
        """Who it is, for operators."""
        client = self.engine.container
        name = f"{client} by AMQP" if client.strip() and client.isprintable() else "AMQP"
        return f"{name} from {self.caller.address}"

    @property
    def nodes(self) -> Iterator[tuple[Link, Any]]:
        return ((link, link.node) for link in self.engine.links if link.node is not None)

    def run(self, operation: Callable[[], T]) -> T:
        """Runs an operation whose answer need not wait for the disk."""
        return self.service.durability.run(operation)[0]

    def commits(self, size: int) -> None:
        """So many bytes more wait for the disk, or fewer."""
        self.uncommitted += size

    # Broker

    def check(self, mechanism: str, response: bytes) -> None:
        self._shell.check(mechanism, response)

    def logged_in(self, caller: Visitor) -> None:
        self.caller = caller
        self.engine.logged_in(self.clock())

    def opened(self, container: str) -> None:
        if self.token.only is not None:
            raise ConnectionFault(UNAUTHORIZED, "this user may neither send nor receive")

    def output(self) -> None:
        self._shell.output()

    def attach(self, link: Link, terminus: Terminus) -> Node:
        if terminus.code == COORDINATOR:
            link.address, link.immediate = "transactions", True
            return Coordinator(self, link)
        address = terminus.address
        if link.receives:
            if terminus.dynamic:
                raise Fault(NOT_ALLOWED, "a target must not be dynamic: attach a receiver with a dynamic source")
            link.address = address or ""
            return Producer(self, link, None if address is None else self.sendable(address))
        try:
            return self._reader(link, terminus, address)
        except AccessDenied as error:
            self.note_refusal(error, address)
            raise

    def _reader(self, link: Link, terminus: Terminus, address: str | None) -> Node:
        now = self.clock()
        if terminus.dynamic:
            address = self.service.create_dynamic(self, now)
        elif not address:
            raise Fault(INVALID_FIELD, "a source must have an address, or be dynamic")
        name = read_address(address)
        copies = terminus.copies and not terminus.dynamic
        action = Action.PEEK if copies else Action.RECEIVE
        queue = self.core.queues.find(name)
        if queue is not None and not self.core.access.allows(queue, self.token, action):
            raise AccessDenied(no_right(action, queue))
        access = QueueAccess.PEEK if copies else QueueAccess.RECEIVE
        if copies and queue is not None and queue.is_outgoing:
            access = QueueAccess.PEEK_ADMIN
        holder = self.holder()
        descriptor = self.core.open(name, access, ShareMode.DENY_NONE, now, None if copies else holder)
        assert descriptor.queue is not None
        link.address = address
        return (Browser if copies else Consumer)(self, link, descriptor, descriptor.queue, holder, terminus.dynamic)

    def holder(self) -> Holder:
        """A new holder of messages or of a transaction. It never times out: it ends with its link."""
        caller = self.caller
        return Holder(self.owner, lasting=True, user=self.token.user, address=caller.address, token=caller.right)

    # For nodes

    def sendable(self, address: str | FormatName) -> PathName | FormatName:
        """The name of a queue to which the guest may send. Raises QueueNotFound, AccessDenied and others."""
        name = read_address(address) if isinstance(address, str) else address
        queue = self.core.delivery.sendable(name)
        token = self.token
        allowed = token.only is None if queue is None else self.core.access.allows(queue, token, Action.SEND)
        if not allowed:
            error = AccessDenied(f"no right to send to {name}" if queue is None else no_right(Action.SEND, queue))
            self.note_refusal(error, str(name))
            raise error
        return name

    def address_in(self, payload: bytes) -> str:
        """Where a message goes that was sent on a link without an address: its `to`."""
        at, end = 0, len(payload)
        while at + 3 < end and payload[at : at + 2] == b"\0\x53":
            if payload[at + 2] == PROPERTIES:
                values, _ = read_list(payload, at + 3, end)
                if len(values) > 2 and isinstance(values[2], str):
                    return values[2]
                break
            _, at = read_value(payload, at, end)
        raise Fault(INVALID_FIELD, "a message on a link without an address must have `to`")

    def note_refusal(self, error: PostroadError, address: str | None) -> None:
        self.service.refused(self.caller, address, error)

    def refill(self, consumer: Consumer) -> None:
        """Serves the reader again, after this event."""
        self._refill[consumer] = None
        self.output()

    def end_later(self, consumer: Consumer, error: PostroadError) -> None:
        self._ending.append((consumer, error))
        self.output()

    # Transactions

    def declare(self, now: float) -> bytes:
        found = self.leases.begin(self.holder(), now)
        self.works[found.bytes] = Work(self, found.bytes, partial(self._transaction, found))
        return found.bytes

    def _transaction(self, identifier: UUID) -> Any:
        return self.leases.transaction(identifier, self.clock())

    def work(self, identifier: bytes) -> Work:
        work = self.works.get(identifier)
        if work is None:
            raise Fault(UNKNOWN_TRANSACTION, "there is no such transaction on this connection")
        return work

    # Events of the shell

    def serve(self, now: float) -> None:
        """What this event has left to do. Call it before `engine.data_to_send`."""
        self.service.look(now)
        ending, self._ending = self._ending, []
        for consumer, error in ending:
            self.engine.detach(consumer.link, error, now)
        refill, self._refill = self._refill, {}
        for consumer in refill:
            consumer.feed(now)

    def blocked(self, now: float) -> None:
        """The peer does not read: nothing may come to its links by itself."""
        self.engine.block()
        for _, node in self.nodes:
            if isinstance(node, Consumer):
                node.stop_waiting()

    def unblocked(self, now: float) -> None:
        self.engine.unblock(now)

    def lost(self, now: float) -> None:
        """The connection is gone: all that it holds goes back."""
        self.engine.lost(now)
        for work in list(self.works.values()):
            try:
                work.abort(now)
            except PostroadError:
                work.give_up(now)
        self.works.clear()
        self.service.forget(self)
        self.soon()

    def shut_down(self, now: float) -> None:
        self.engine.close(ConnectionFault(FORCED, "the queue manager stops"), now)

    def review(self, now: float) -> None:
        if self.token.only is not None and self.engine.container:
            self.engine.close(ConnectionFault(UNAUTHORIZED, "this user may not be connected any more"), now)
        for link, node in list(self.nodes):
            error = node.review(now)
            if error is not None:
                self.engine.detach(link, error, now)

    def run_timers(self, now: float) -> None:
        self.engine.run_timers(now)
        for _, node in list(self.nodes):
            node.run_timers(now)
        self.output()

    def info(self) -> AmqpConnectionInfo:
        return AmqpConnectionInfo(
            peer=self.caller.address,
            container=self.engine.container,
            user=self.caller.who,
            links=tuple(
                AmqpLinkInfo(
                    name=link.name[:256],
                    address=link.address,
                    role="receiver" if not link.receives else "sender",
                    credit=link.credit,
                    unsettled=node.in_flight if isinstance(node, Producer) else link.unsettled,
                )
                for link, node in self.nodes
            ),
        )
