"""The sessions and links of a connection, [AMQP] 2.5 and 2.6: their numbers, windows and credit.

engine.py reads and writes their frames. A link's node does the work: nodes.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple, Protocol

from postroad.amqp.codec import Described, uint
from postroad.amqp.performatives import SERIAL

_ID = Struct(">I")


class Arrived(NamedTuple):
    """A whole message from the peer. `transaction` is the id of the transaction that it belongs to."""

    delivery_id: int
    settled: bool
    payload: bytes
    transaction: bytes | None = None


class Settled(NamedTuple):
    """What the peer says of a message that we have sent. `settled` is whether it needs no answer."""

    delivery_id: int
    item: Any  # what the node has sent
    state: Described | None
    settled: bool


class Node(Protocol):
    """What a link leads to."""

    def arrived(self, deliveries: Sequence[Arrived], now: float) -> None:
        """Messages from the peer, in order. The node answers each that is not settled, at some time."""

    def feed(self, now: float) -> None:
        """There is credit, or room for output again."""

    def settled(self, outcomes: Sequence[Settled], now: float) -> None: ...

    def detached(self, unsettled: Sequence[Any], now: float) -> None:
        """The link has ended. `unsettled` are the items that the peer has not settled."""


@dataclass(slots=True, eq=False)
class Session:
    """`channel` is ours, and `remote_channel` the peer's."""

    channel: int
    remote_channel: int
    handle_max: int
    next_incoming_id: int
    remote_window: int  # frames with transfers that the peer takes now
    next_outgoing_id: int = 0
    next_delivery: int = 0
    links: dict[int, Link] = field(default_factory=dict)  # by the peer's handle
    own_handles: dict[int, Link] = field(default_factory=dict)
    sent: dict[int, Link] = field(default_factory=dict)  # the links of messages that are not settled, by delivery id
    waiting: deque[bytes] = field(default_factory=deque)  # frames of one message that wait for the peer's window
    answers: list[tuple[int, bytes]] = field(default_factory=list)  # delivery ids with states, for dispositions
    ours_detached: set[int] = field(default_factory=set)  # the peer's handles of links that we ended, until it answers
    ended: bool = False  # by us: what the peer still sends is dropped

    def free_handle(self) -> int | None:
        """The lowest that is free; None if the peer takes no more links."""
        handle = next((each for each in range(len(self.own_handles) + 1) if each not in self.own_handles), 0)
        return handle if handle <= self.handle_max else None


@dataclass(slots=True, eq=False)
class Link:
    """`receives` is whether the peer sends to us. Its delivery count and credit are those that both ends agree on."""

    session: Session
    name: str
    receives: bool
    handle: int  # ours
    remote_handle: int
    address: str = ""
    node: Node | None = None
    delivery_count: int = 0
    credit: int = 0
    drain: bool = False
    immediate: bool = False  # each message goes to the node at once, after what came before on other links
    presettled: bool = False  # what we send is settled
    sent: dict[int, Any] = field(default_factory=dict)  # items of the node that are not settled, by delivery id
    prefix: bytes = b""  # of our transfers
    # A message of several frames
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    delivery: tuple[int, bool, bytes | None] | None = None
    oversized: bool = False
    gathered: list[Arrived] = field(default_factory=list)
    outcomes: list[Settled] = field(default_factory=list)

    def __post_init__(self) -> None:
        handle = uint(self.handle)
        # handle, delivery id, tag, format 0, not settled. The tag is hex: Proton for Python reads UTF-8.
        self.prefix = b"\0\x53\x14\xc0" + bytes((1 + len(handle) + 5 + 10 + 1 + 1, 5)) + handle + b"\x70"

    @property
    def unsettled(self) -> int:
        """How many messages the peer has not settled."""
        return len(self.sent)

    def transfer(self, delivery_id: int, *, settled: bool) -> bytes:
        """The body of a transfer of one frame."""
        number = _ID.pack(delivery_id)
        tag = b"%08x" % delivery_id
        return b"".join((self.prefix, number, b"\xa0\x08", tag, b"\x43\x41" if settled else b"\x43\x42"))

    def first_transfer(self, delivery_id: int, *, settled: bool) -> bytes:
        """The same for the first of several frames."""
        body = bytearray(self.transfer(delivery_id, settled=settled) + b"\x41")
        body[4] += 1
        body[5] += 1
        return bytes(body)

    def more_transfer(self, *, more: bool) -> bytes:
        handle = uint(self.handle)
        content = handle + b"\x40" * 4 + (b"\x41" if more else b"\x42")
        return b"\0\x53\x14\xc0" + bytes((len(content) + 1, 6)) + content

    def use_credit(self) -> None:
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & SERIAL
