"""Targets of AMQP: a stream into a connection that is logged in, with links, and a message into our form and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from postroad.amqp.engine import EngineSettings
from postroad.amqp.mapping import read_address, read_message, write_message
from postroad.amqp.service import AmqpService, Guest, Visitor
from postroad.errors import PostroadError, QueueNotFound
from postroad.message import Composer, Message
from postroad.names import FormatName, PathName, parse_format_name
from postroad.queues.core_settings import Chance
from postroad.queues.durability import Durability
from postroad.queues.leases import Leases
from postroad.queues.local import LocalQueueManager, QueueManagerState
from postroad.security.access import Token
from postroad.store import Batch, MemoryStore
from postroad.store.interface import NEVER, Record
from tests.amqp_peer import (
    LOGIN,
    attach_receiver,
    attach_sender,
    begin,
    coordinator,
    data,
    disposition,
    flow,
    opening,
    source,
    target,
    transfer,
)

ORDERS, TX = r"private$\orders", r"private$\tx"
_SELF = UUID(int=1)
_HELD = 1 << 20
_OPENED = LOGIN + opening() + begin()
_LINKED = (
    *(_OPENED, attach_sender(target(ORDERS)), attach_sender(target(TX), 1, "b"), attach_sender(coordinator(), 2, "c")),
    *(attach_receiver(source(ORDERS), 3), flow(5, 3), attach_receiver(source(TX), 4, "d"), flow(5, 4)),
)


def _chance() -> Chance:
    numbers = itertools.count(2)
    return Chance(lambda: UUID(int=next(numbers)), lambda below: 0)


class _Timer:
    def cancel(self) -> None:
        """It never runs."""


class _Loop:
    """Runs callbacks when it is asked to."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> _Timer:
        self._soon.append(lambda: callback(*arguments))
        return _Timer()

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> _Timer:
        return self.call_soon(callback, *arguments)

    def run(self) -> None:
        while self._soon:
            self._soon.pop(0)()


class _Committer:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def submit(self, batch: Batch, done: Callable[[Exception | None], object]) -> None:
        self._store.commit([batch])
        done(None)

    def tidy(self) -> None:
        """There is no disk."""

    def close(self) -> None:
        """There is no thread."""


class _Shell:
    def __init__(self) -> None:
        self.guest: Guest

    def use(self, guest: Guest) -> None:
        self.guest = guest

    def check(self, mechanism: str, response: bytes) -> None:
        self.guest.logged_in(Visitor("local", "127.0.0.1", Token.administrator))

    def output(self) -> None:
        """The target asks for it."""


def fuzz_amqp(stream: bytes) -> None:
    """A connection before its login, one that is open, and one with links. Whatever it is sent, it has an answer, and
    what it held is back when it ends."""
    for before in (b"", _OPENED, b"".join(_LINKED)):
        loop, store = _Loop(), MemoryStore()
        core = LocalQueueManager("alpha", _SELF, store, _chance())
        core.start(0.0)
        core.enter(QueueManagerState.READY)
        durability = Durability(core, lambda: 1000.0)
        durability.drive(loop, _Committer(store))
        core.create_queue(ORDERS, 0.0)
        core.create_queue(TX, 0.0, transactional=True)
        service = AmqpService(core, Leases(core), durability, lambda: 1000.0, EngineSettings("alpha", 8192, 4, 16))
        shell = _Shell()
        guest = service.connect(shell, ("ANONYMOUS",))
        shell.use(guest)
        for piece in (before, stream[:50], stream[50:]):
            guest.engine.receive(piece, 1000.0)
            for _ in range(3):
                guest.serve(1000.0)
                guest.engine.data_to_send(1000.0)
                loop.run()
            assert guest.engine.held < _HELD
        guest.lost(1001.0)
        loop.run()
        assert not service.guests
        assert not core.transactions
        for queue in core.queues:
            assert not queue.positions, (queue, queue.positions)
            assert not queue.waiting
            assert not queue.descriptors


def _resolve(name: PathName) -> FormatName:
    if name.tail.name != "orders":
        raise QueueNotFound(str(name))
    return parse_format_name(f"PRIVATE={_SELF}\\8")


def fuzz_amqp_message(payload: bytes) -> None:
    """What can be read becomes a packet, and what readers get of that can be read again."""
    with suppress(PostroadError, UnicodeDecodeError):
        read_address(payload[:200].decode())
    with suppress(PostroadError):
        message = read_message(payload, _resolve)
        packet = Composer(_SELF, parse_format_name("DIRECT=OS:alpha\\private$\\orders"), _resolve).compose(
            message, 7, 9
        )
        again = read_message(_written(packet), _unresolved)
        assert again.label == message.label
    # an extension may have come from anybody
    for extension in (payload, b"\0\x53\x74" + payload, b"\0\x53\x73" + payload):
        composer = Composer(_SELF, parse_format_name("DIRECT=OS:alpha\\private$\\orders"))
        with suppress(PostroadError):
            packet = composer.compose(Message(b"", extension=extension), 7, 9)
            read_message(_written(packet), _unresolved)


def _unresolved(name: PathName) -> FormatName:
    return parse_format_name(f"PRIVATE={_SELF}\\8")


def _written(packet: bytes) -> bytes:
    return write_message(Record(1, 1, 0, NEVER, 0, packet), 10.0)


TARGETS = {"amqp": fuzz_amqp, "amqp_message": fuzz_amqp_message}
SEEDS = {
    "amqp": (
        transfer(data(b"x")) + disposition(0, 0, b"\0\x53\x24\x45"),
        transfer(b"\0\x53\x77\0\x53\x31\x45", 1, 2),
        flow(5, 3, drain=True) + begin(1),
        attach_receiver(source(None, dynamic=True), 6, "x") + flow(1, 6),
    ),
    "amqp_message": (
        data(b"x"),
        b"\0\x53\x70\xc0\x04\x02\x41\x50\x04\0\x53\x73\xc0\x07\x01\xa1\x04id-1\0\x53\x77\xa1\x04text",
        b"\0\x53\x72\xc1\x0d\x02\xa3\x09x-opt-foo\x41\0\x53\x74\xc1\x05\x02\xa1\x01a\x41\0\x53\x77\xc0\x02\x01\x41",
    ),
}
