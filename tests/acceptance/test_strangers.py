"""Strangers at another loopback address who know the protocol, on real processes. The manager believes nothing that
they say about others, and calls nobody because of them."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import urlopen
from uuid import UUID, uuid4

import pytest

import postroad as client
from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Received, singly
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.reports.info import QueueInfo
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import FinalAck, OrderAck, order_queue
from postroad.wire.patch import stamp_transaction
from postroad.wire.view import MessageView
from tests.commands import PATIENCE_S, ServerProcess

ALPHA, BETA, SINK, VICTIM, STRANGER = (f"127.0.0.{number}" for number in (31, 32, 33, 34, 39))
PORTS = {ALPHA: 11831, BETA: 11832, SINK: 11833}
BINARY_PORT = 1801  # where a manager calls a host that nothing is known of
UNKNOWN_MANAGERS = 12_000
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {port}
ping = false
http = false
rpc = false
api = 0
[binary]
retry_connect_s = 0.2
resend_s = [1, 1, 1]
insecure_nacks = true
[relay]
allow = {allow}
[peers]
"127.0.0.31" = {{ binary = 11831 }}
"127.0.0.32" = {{ binary = 11832 }}
"127.0.0.33" = {{ binary = 11833 }}
[[queue]]
path = 'private$\\plain'
[[queue]]
path = 'private$\\acks'
[[queue]]
path = 'private$\\orders'
transactional = true
"""


class Caller:
    """A session of the test's own, with any GUID that it claims."""

    def __init__(self, connection: socket.socket, session: Session) -> None:
        self.connection = connection
        self.session = session
        self.taken: list[MessageView | OrderAck | FinalAck] = []
        self.exchange(lambda: bool(session.opened_at))

    @classmethod
    def call(cls, host: str, guid: UUID | None = None, source: str = STRANGER) -> Caller:
        connection = socket.create_connection((host, PORTS[host]), timeout=PATIENCE_S, source_address=(source, 0))
        return cls(connection, Session.initiate(guid or uuid4(), NULL_GUID, BinarySettings(), time.time()))

    @classmethod
    def answer(cls, listener: socket.socket, guid: UUID) -> Caller:
        connection, _ = listener.accept()
        connection.settimeout(PATIENCE_S)
        return cls(connection, Session.accept(guid, BinarySettings(), time.time()))

    def exchange(self, done: Callable[[], bool]) -> None:
        """Goes on until it is done, or until the other end closes the connection."""
        self._flush()
        while not done():
            try:
                data = self.connection.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                self.session.disconnected()
                return
            self.session.receive_data(data, time.time())
            for event in singly(self.session.events()):
                if isinstance(event, Received):
                    self.taken.append(event.packet)
                    self.session.stored(event.number, time.time())
            self._flush()

    def _flush(self) -> None:
        if data := self.session.data_to_send():
            try:
                self.connection.sendall(data)
            except ConnectionError:
                self.session.disconnected()

    def send(self, *packets: bytes) -> None:
        """Returns once the last has left. The other end may still refuse it."""
        for packet in packets:
            self.exchange(lambda: self.session.closed or self.session.free > 0)
            if self.session.closed:
                return
            view = MessageView(packet)
            self.session.send(packet, None, time.time(), recoverable=view.recoverable, plain=not view.base_flags)
        self._flush()

    def close(self) -> None:
        self.connection.close()


class House:
    """Managers as processes, each at an address of its own, and without a directory."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.processes: dict[str, ServerProcess] = {}

    def start(self, name: str, host: str, allow: str = "[]", rest: str = "") -> ServerProcess:
        file = self._directory / f"{name}.toml"
        file.write_text(CONFIGURATION.format(name=name, host=host, port=PORTS[host], allow=allow) + rest)
        process = self.processes[name] = ServerProcess(file)
        self._stack.callback(process.close)
        return process

    def call(self, host: str, guid: UUID) -> Caller:
        return self._stack.enter_context(closing(Caller.call(host, guid)))

    def answer(self, listener: socket.socket, guid: UUID) -> Caller:
        return self._stack.enter_context(closing(Caller.answer(listener, guid)))

    def manager(self, name: str) -> client.QueueManager:
        return self._stack.enter_context(client.connect(self.processes[name].api))

    def metric(self, name: str, metric: str) -> float:
        with urlopen(f"{self.processes[name].api}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{metric} "):
                    return float(line.split()[1])
        raise AssertionError(f"there is no metric {metric}")

    def wait_for(self, name: str, metric: str, least: float) -> None:
        """Waits until the manager has counted what was done to it."""
        until = time.monotonic() + PATIENCE_S
        while self.metric(name, metric) < least:
            assert time.monotonic() < until, f"{metric} of {name} stays below {least}"
            time.sleep(0.05)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path, stack)


@pytest.fixture
def listening() -> Iterator[Callable[[str, int], socket.socket]]:
    with ExitStack() as stack:

        def listen(host: str, port: int) -> socket.socket:
            listener = stack.enter_context(socket.create_server((host, port)))
            listener.settimeout(PATIENCE_S)
            return listener

        yield listen


Listen = Callable[[str, int], socket.socket]


def outgoing(manager: client.QueueManager) -> list[QueueInfo]:
    return [queue for queue in manager.queues() if queue.state is not None]


def compose(source: UUID, destination: str, message: Message, number: int = 1) -> bytes:
    return Composer(source, parse_format_name(destination)).compose(message, number, int(time.time()))


def acknowledgments(view: MessageView, manager: UUID, to: str) -> tuple[bytes, bytes]:
    """An OrderAck and a FinalAck that are right in everything, except perhaps in whom they belong to."""
    header = view.transaction_header
    assert header is not None
    order = OrderAck(
        source_queue_manager=manager,
        message_id=1,
        sent_time=int(time.time()),
        destination_queue=order_queue(to),
        sequence_id=header.sequence_id,
        sequence_number=header.sequence_number,
        previous_sequence_number=header.previous_sequence_number,
    )
    final = FinalAck(
        source_queue_manager=manager,
        message_id=2,
        sent_time=int(time.time()),
        destination_queue=order_queue(to),
        sequence_id=header.sequence_id,
        sequence_number=header.sequence_number,
        previous_sequence_number=header.previous_sequence_number,
        final_class=MessageClass.ACK_RECEIVE,
        source_guid=view.source_queue_manager,
        acknowledged_message_id=view.message_id,
    )
    return order.encode(), final.encode()


def test_acknowledgments_from_an_unrelated_address_delete_nothing(house: House, listening: Listen) -> None:
    listener = listening(SINK, PORTS[SINK])
    house.start("alpha", ALPHA)
    alpha = house.manager("alpha")
    there = rf"DIRECT=TCP:{SINK}\private$\orders"
    with alpha.transaction() as transaction:
        alpha.queue(there).send(client.Message(b"x", label="a", journal=True), transaction)
    guid = uuid4()
    sink = house.answer(listener, guid)
    sink.exchange(lambda: bool(sink.taken))
    (view,) = sink.taken
    assert isinstance(view, MessageView)
    order, final = acknowledgments(view, guid, ALPHA)
    stranger = house.call(ALPHA, guid)
    stranger.send(order, final)
    house.wait_for("alpha", "postroad_session_acks_refused_total", 2)
    assert [queue.messages for queue in outgoing(alpha)] == [1]
    assert alpha.queue(";journal").info().messages == 0
    assert not stranger.session.closed
    sink.send(order, final)  # the same words, of whoever they are to come from
    assert alpha.queue(";journal").receive(timeout=PATIENCE_S).label == "a"
    assert "acknowledgment refused" in house.processes["alpha"].log


def test_who_claims_a_managers_guid_gets_nothing_of_its_own(house: House) -> None:
    alpha_process = house.start("alpha", ALPHA)
    house.start("beta", BETA)
    alpha, beta = house.manager("alpha"), house.manager("beta")
    guid = UUID(alpha_process.ready["id"])
    asking = client.Message(b"x", label="a", ack="full", admin_queue=r"private$\acks", recoverable=True)
    alpha.queue(rf"DIRECT=TCP:{BETA}\private$\plain").send(asking)
    assert alpha.queue(r"private$\acks").receive(timeout=PATIENCE_S).class_name == "ack-reach-queue"
    house.processes["alpha"].end(signal.SIGKILL)
    idle = house.call(BETA, guid)  # it only says who it is
    assert beta.queue(r"private$\plain").receive(timeout=PATIENCE_S).label == "a"
    house.start("alpha", ALPHA)
    alpha = house.manager("alpha")
    assert alpha.queue(r"private$\acks").receive(timeout=PATIENCE_S).class_name == "ack-receive"
    loud = house.call(BETA, guid)  # the manager lives: nobody else sends in its name
    loud.send(compose(guid, rf"DIRECT=TCP:{BETA}\private$\plain", Message(b"forged", recoverable=True)))
    loud.exchange(lambda: loud.session.closed)
    house.wait_for("beta", "postroad_session_claims_refused_total", 1)
    assert beta.queue(r"private$\plain").info().messages == 0
    assert (idle.taken, loud.taken) == ([], [])


def test_transactions_without_a_directory_end_after_restarts_of_either_side(house: House) -> None:
    for name, host in (("alpha", ALPHA), ("beta", BETA)):
        house.start(name, host)
    alpha = house.manager("alpha")
    there = rf"DIRECT=TCP:{BETA}\private$\orders"
    with alpha.transaction() as transaction:
        alpha.queue(there).send([client.Message(b"x", label=f"{n}", journal=True) for n in range(3)], transaction)
    beta = house.manager("beta")
    assert beta.queue(r"private$\orders").receive(timeout=PATIENCE_S).label == "0"
    for name, host in (("alpha", ALPHA), ("beta", BETA)):
        house.processes[name].end(signal.SIGKILL)
        house.start(name, host)
    alpha, beta = house.manager("alpha"), house.manager("beta")
    received = [beta.queue(r"private$\orders").receive(timeout=PATIENCE_S).label for _ in range(2)]
    journal = alpha.queue(";journal")
    assert received == ["1", "2"]
    assert {journal.receive(timeout=PATIENCE_S).label for _ in range(3)} == {"0", "1", "2"}


@pytest.mark.spec("QB-3.1.7.15-08")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_stranger_makes_a_manager_call_nobody(house: House, listening: Listen, allowed: bool) -> None:
    listener = listening(VICTIM, BINARY_PORT)
    house.start("beta", BETA, allow=f'["{VICTIM}"]' if allowed else "[]")
    guid = uuid4()
    stranger = house.call(BETA, guid)
    here = rf"DIRECT=TCP:{BETA}\private$"
    for number, (queue, admin) in enumerate(
        (
            ("plain", rf"DIRECT=TCP:{VICTIM}\private$\x"),
            ("plain", rf"DIRECT=OS:{VICTIM}\private$\x"),
            ("nowhere", rf"DIRECT=TCP:{VICTIM}\private$\y"),
            ("plain", rf"DIRECT=HTTP://{VICTIM}:{BINARY_PORT}/msmq/private$/z"),
        ),
        1,
    ):
        message = Message(b"x", ack="full", admin_queue=admin, recoverable=True)
        stranger.send(compose(guid, rf"{here}\{queue}", message, number))
    beta = house.manager("beta")
    if allowed:
        called = house.answer(listener, uuid4())
        called.exchange(lambda: bool(called.taken))
        assert called.taken
        return
    house.wait_for("beta", "postroad_relay_refused_total", 4)
    for _ in range(3):
        beta.queue(r"private$\plain").receive(timeout=PATIENCE_S)
    house.wait_for("beta", "postroad_relay_refused_total", 7)
    assert outgoing(beta) == []
    assert select.select([listener], [], [], 1.0)[0] == []
    assert "allow its host in [relay]" in house.processes["beta"].log


# Floods. The manager keeps what it remembers of a partner, whatever a stranger makes up. No directory and no [peers]
# names the partner: only its messages speak for it.

SEQUENCE = TxSequenceId(3, 7)
REMEMBERED = 64
FEW = f"[limits]\nremote_managers = {REMEMBERED}\n"
PARTNER = "127.0.0.35"
REPEATED, DUPLICATES, ADDRESSES = 300, 10_000, 60


def transactional(source: UUID, destination: str, label: str, number: int) -> bytes:
    packet = Composer(source, parse_format_name(destination)).compose(
        Message(label=label, recoverable=True), number, int(time.time()), transactional=True
    )
    return stamp_transaction(packet, SEQUENCE, number, number - 1, 1, first=True, last=True)


def labels(manager: client.QueueManager, queue: str) -> list[str]:
    return [message.label for message in manager.queue(queue).messages()]


def test_made_up_names_make_no_sequence_forgotten(house: House) -> None:
    """On one connection, to queues that do not exist, and under many names of a queue that does."""
    house.start("beta", BETA, rest=FEW)
    manager, partner = house.manager("beta"), uuid4()
    name = rf"DIRECT=TCP:{BETA}\private$\orders"
    with closing(Caller.call(BETA, partner, PARTNER)) as first:
        first.send(transactional(partner, name, "once", 1))
        wait_until(lambda: labels(manager, r"private$\orders") == ["once"])
    stranger = uuid4()
    caller = house.call(BETA, stranger)
    for number in range(3 * REMEMBERED):
        caller.send(transactional(stranger, rf"DIRECT=TCP:{BETA}\private$\no{number}", "x", 1))
        caller.send(transactional(stranger, rf"DIRECT=OS:host{number}\private$\orders", "x", 1))
        wait_until(lambda number=number: manager.queue(r"private$\orders").info().messages == number + 2)  # type: ignore[misc]
    with closing(Caller.call(BETA, partner, PARTNER)) as again:
        again.send(transactional(partner, name, "once", 1), transactional(partner, name, "next", 2))
        wait_until(lambda: "next" in labels(manager, r"private$\orders"))
    assert [label for label in labels(manager, r"private$\orders") if label != "x"] == ["once", "next"]


def test_short_sessions_make_no_address_forgotten(house: House) -> None:
    house.start("beta", BETA, rest=FEW)
    manager, partner = house.manager("beta"), uuid4()
    name = rf"DIRECT=TCP:{BETA}\private$\plain"
    with closing(Caller.call(BETA, partner, PARTNER)) as first:
        first.send(compose(partner, name, Message(label="mine", recoverable=True)))
        wait_until(lambda: labels(manager, r"private$\plain") == ["mine"])
    for number in range(3 * REMEMBERED):
        each = uuid4()
        with closing(Caller.call(BETA, each)) as caller:
            caller.send(compose(each, name, Message(label="x", recoverable=True)))
            wait_until(lambda number=number: len(labels(manager, r"private$\plain")) == number + 2)  # type: ignore[misc]
    thief = house.call(BETA, partner)
    thief.send(compose(partner, name, Message(label="stolen"), 2))
    thief.exchange(lambda: thief.session.closed)
    assert "stolen" not in labels(manager, r"private$\plain")
    newcomer = uuid4()
    house.call(BETA, newcomer).send(compose(newcomer, name, Message(label="new")))
    wait_until(lambda: "new" in labels(manager, r"private$\plain"))


@pytest.mark.parametrize("queue", ["acks", "nowhere"])
def test_sixty_addresses_make_no_message_forgotten(house: House, queue: str) -> None:
    house.start("beta", BETA)
    manager, partner = house.manager("beta"), uuid4()
    name = rf"DIRECT=TCP:{BETA}\private$\plain"
    mine = [compose(partner, name, Message(label=str(number)), number) for number in range(1, REPEATED + 1)]
    with closing(Caller.call(BETA, partner, PARTNER)) as first:
        first.send(*mine)
        wait_until(lambda: manager.queue(r"private$\plain").info().messages == REPEATED)
    each = 2 * DUPLICATES // ADDRESSES
    for address in range(ADDRESSES):
        source = uuid4()
        packets = [
            compose(source, rf"DIRECT=TCP:{BETA}\private$\{queue}", Message(label="x"), number)
            for number in range(1, each + 1)
        ]
        last = compose(source, name, Message(label="end"), each + 1)
        with closing(Caller.call(BETA, source, f"127.0.1.{address + 1}")) as caller:
            caller.send(*packets, last)
            wait_until(
                lambda address=address: manager.queue(r"private$\plain").info().messages == REPEATED + address + 1  # type: ignore[misc]
            )
    with closing(Caller.call(BETA, partner, PARTNER)) as again:
        again.send(*mine, compose(partner, name, Message(label="last"), REPEATED + 1))
        wait_until(lambda: "last" in labels(manager, r"private$\plain"))
    assert manager.queue(r"private$\plain").info().messages == REPEATED + ADDRESSES + 1


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.spec("QB-3.1.5.8.5-02")
def test_messages_for_unknown_managers_are_not_stored(house: House) -> None:
    house.start("beta", BETA)
    guid = uuid4()
    stranger = house.call(BETA, guid)
    message = Message(b"x" * 500, dead_letter=True, recoverable=True)
    for number in range(1, UNKNOWN_MANAGERS + 1):
        stranger.send(compose(guid, f"PRIVATE={UUID(int=number)}\\9", message, number))
    house.wait_for("beta", "postroad_relay_refused_total", UNKNOWN_MANAGERS)
    beta = house.manager("beta")
    assert outgoing(beta) == []
    assert beta.queue(";deadletter").info().messages == 0
    assert len(house.processes["beta"].log) < 100_000
