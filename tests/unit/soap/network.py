"""Queue managers that post SOAP to each other in memory. A test moves the one clock by hand, and sees all requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from postroad.carriers.flights import TransferWatcher
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import ConnectionStatus, Watcher
from postroad.soap.addresses import Redirections
from postroad.soap.elements import Attachments, Envelope, Msmq, Path, Properties, Services, Stream, StreamId
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.multipart import join_entity, split_entity
from postroad.soap.receiver import Incoming
from postroad.soap.sender import Transfer
from postroad.soap.service import Address, Peer, Post, SoapService
from postroad.soap.settings import SoapSettings
from postroad.store.memory import MemoryStore
from postroad.wire.headers import TxSequenceId
from tests.follow_ups import raised
from tests.unit.stations import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    JOURNAL,
    LEDGER,
    ORDERS,
    STARTED,
    BaseNetwork,
    BaseStation,
    Done,
    chance,
)

__all__ = ["ACKS", "DEADLETTER", "DEADXACT", "JOURNAL", "LEDGER", "ORDERS", "STARTED"]  # as tests know them


@dataclass(eq=False)
class Exchange:
    """One request as seen on the way, and its status. None while there is none."""

    sender: str
    address: Address
    target: str
    content_type: str
    body: bytes
    envelope: Envelope
    attachments: Attachments
    at: float
    status: int | None = None

    @property
    def stream(self) -> Stream:
        assert self.envelope.stream is not None
        return self.envelope.stream

    @property
    def label(self) -> str:
        return self.envelope.path.action.removeprefix("MSMQ:")


class Station(BaseStation):
    """A queue manager, and the Driver of its SOAP service."""

    network: Network

    def __init__(self, network: Network, name: str, number: int, settings: SoapSettings) -> None:
        self.network = network
        self.name = name
        self.address = f"10.0.0.{number}"
        self.identifier = UUID(int=number << 96 | 0xAA)
        self.settings = settings
        self.store = MemoryStore()
        self.closed: list[Address] = []  # peers whose connections were closed
        network.stations[name] = self
        self._start()
        self._make_queues()

    def _start(self) -> None:
        self._promises, self._out = [], None
        self._relying: list[Done] = []  # of those promises, who depend on the sealed tick too
        self.fault: str | None = None  # why the last request that was refused was
        self.core = LocalQueueManager(
            self.name,
            self.identifier,
            self.store,
            chance(self.identifier),
            hosts=(self.address,),
            knows_host=lambda host: host in self.network.peers,
        )
        self.core.watch(Watcher(follow_up_failed=raised))
        self.core.start(self.network.now)
        self.commit()
        self.suspicions: list[tuple[str, Mapping[str, object]]] = []  # what people are told of, with its facts
        watcher = TransferWatcher(suspicious=lambda *told: self.suspicions.append(told))
        self.service = SoapService(self.core, self.settings, self, watcher=watcher)
        self.service.start(self.network.now)

    def restart(self, **settings: object) -> None:
        """The process dies, and with it what no tick has committed. Another process starts."""
        self.network.pending = [each for each in self.network.pending if each[0] is not self]
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]
        self._start()
        self.network.run()

    def url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://{self.address}/msmq/{path}".replace("\\", "/")

    def direct(self, path: str) -> str:
        """The name that others use for a queue here."""
        return f"DIRECT={self.url(path)}"

    # Driver

    def post(self, post: Post) -> None:
        self.network.pending.append((self, post))

    def close(self, peer: Peer) -> None:
        self.closed.append(peer.address)

    # Ticks

    def land(self) -> None:
        self._relying = []
        super().land()

    def _relying_on_it(self) -> list[Done]:
        relying, self._relying = self._relying, []
        return relying

    # Requests

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """Like SoapTransport: the answer waits for the tick if it must."""
        tick = self.core.tick
        writes = tick.writes
        outcome = self.service.received(incoming, self.network.now)
        self.fault = outcome.fault

        def durable(error: BaseException | None) -> None:
            answer(500 if error is not None else outcome.status)

        if outcome.status == 200 and (outcome.repeated or tick.writes != writes):
            self._promises.append(durable)
            if outcome.repeated and self._out is not None:
                self._relying.append(durable)
        else:
            answer(outcome.status)

    def ask(self, envelope: Envelope, attachments: Attachments | None = None, address: str = "10.0.0.99") -> int:
        """A stranger's request. Returns the status."""
        kind, pieces = join_entity(write_envelope(envelope), attachments or Attachments(b"body"), UUID(int=1), 1)
        return self.ask_raw(kind, b"".join(pieces), address)

    def ask_raw(self, content_type: str, body: bytes, address: str = "10.0.0.99") -> int:
        answers: list[int] = []
        self.take(Incoming(content_type, body, address), answers.append)
        self.network.run()
        (status,) = answers
        return status

    # Queues and messages

    def purge(self, name: str) -> None:
        self.core.purge(self.queue(name), self.network.now)
        self.network.run()

    def transfer(self, name: str) -> Transfer:
        return self.service.sender.transfers[self.queue(name)]


@dataclass
class Network(BaseNetwork):
    """What stations share. `answers` are statuses that a host gives without looking; None loses the answer."""

    now: float = STARTED
    stations: dict[str, Station] = field(default_factory=dict)
    pending: list[tuple[Station, Post]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    answers: dict[str, int | None] = field(default_factory=dict)
    lost_answers: set[str] = field(default_factory=set)  # hosts that take requests and are not heard
    down: set[str] = field(default_factory=set)
    peers: set[str] = field(default_factory=set)  # hosts that every station has in [peers]
    too_large: int | None = None  # what stands before all hosts answers 413 to requests of this size

    def station(self, name: str, number: int, **settings: object) -> Station:
        return Station(self, name, number, SoapSettings(**settings))  # type: ignore[arg-type]

    def _step(self) -> bool:
        committed = [each.commit() for each in self.stations.values() if each.commits]
        return any(committed) or self._carry()

    def _carry(self) -> bool:
        pending, self.pending = self.pending, []
        for station, post in pending:
            self._deliver(station, post)
        return bool(pending)

    def _deliver(self, station: Station, post: Post) -> None:
        request, address = post.request, post.peer.address
        kind = request.headers["Content-Type"]
        text, attachments = split_entity(kind, request.body)
        exchange = Exchange(
            station.name,
            address,
            request.target,
            kind,
            request.body,
            read_envelope(text),
            attachments,
            self.now,
        )
        self.exchanges.append(exchange)
        host = address.host.lower()
        target = next((each for each in self.stations.values() if host in (each.name, each.address)), None)
        service = station.service

        def answer(status: int) -> None:
            exchange.status = status
            if station.service is service and host not in self.lost_answers:
                service.answered(post, status, self.now)

        if self.too_large is not None and len(request.body) >= self.too_large:
            answer(413)
        elif host in self.answers:
            status = self.answers[host]
            if status is not None:
                answer(status)
        elif target is None or host in self.down or target.name in self.down:
            fault = f"cannot connect to {host}"
            service.failed(post, ConnectionStatus.CONNECT_SOCKET_FAILURE, fault, self.now)
        else:
            target.take(Incoming(kind, request.body, station.address), answer)

    def _deadlines(self) -> Iterable[float | None]:
        return [each.core.deadlines.first for each in self.stations.values()]

    def _on_timer(self) -> None:
        for station in list(self.stations.values()):
            station.core.run_timers(self.now)
            station.core.deadlines.run(self.now)

    # What was seen

    def posts(self, sender: str, to: str = "") -> list[Exchange]:
        """What a station posted to targets with this ending."""
        return [each for each in self.exchanges if each.sender == sender and each.target.endswith(to.lower())]

    def user_posts(self, sender: str) -> list[Exchange]:
        return [each for each in self.posts(sender) if not _is_receipt(each.envelope)]

    def stream_receipts(self, sender: str) -> list[Exchange]:
        return [
            each
            for each in self.posts(sender)
            if each.envelope.stream_receipt is not None and each.envelope.commitment_receipt is None
        ]

    def final_receipts(self, sender: str) -> list[Exchange]:
        return [
            each
            for each in self.posts(sender)
            if each.envelope.stream_receipt is not None and each.envelope.commitment_receipt is not None
        ]

    def receipts(self, sender: str) -> list[Exchange]:
        """Delivery and commitment receipts."""
        return [
            each for each in self.posts(sender) if _is_receipt(each.envelope) and each.envelope.stream_receipt is None
        ]


def _is_receipt(envelope: Envelope) -> bool:
    blocks = (envelope.delivery_receipt, envelope.commitment_receipt, envelope.stream_receipt)
    return any(each is not None for each in blocks)


# Envelopes of strangers

STRANGER = UUID("99999999-0000-0000-0000-000000000099")


def stranger_message(
    to: str,
    number: int = 1,
    *,
    label: str = "note",
    now: float = STARTED,
    source: UUID = STRANGER,
    lifetime_s: int = 3600,
    **msmq: object,
) -> Envelope:
    """A regular message of a manager that does not exist."""
    words: dict[str, object] = {
        "message_class": 0,
        "priority": 3,
        "source_qm_guid": source,
        "ttrq": int(now) + lifetime_s,
        **msmq,
    }
    return Envelope(
        path=Path(f"MSMQ:{label}", to, f"uuid:{number}@{source}"),
        properties=Properties(int(now) + lifetime_s, int(now)),
        msmq=Msmq(**words),  # type: ignore[arg-type]
    )


def stream_message(
    to: str,
    current: int,
    *,
    sequence: int = 1,
    previous: int | None = None,
    start: str | None = "http://stranger/msmq/private$/order_queue$",
    number: int | None = None,
    label: str | None = None,
    **words: object,
) -> Envelope:
    """A message in a stream of the stranger. Only the first one has a start."""
    index = sequence * 1000 + current if number is None else number
    envelope = stranger_message(to, index, label=label or f"{sequence}.{current}", **words)  # type: ignore[arg-type]
    source = envelope.msmq.source_qm_guid if envelope.msmq is not None else STRANGER
    stream = Stream(StreamId(source, TxSequenceId(sequence, 1)), current, previous, start if current == 1 else None)
    return replace(envelope, stream=stream, services=Services(durable=True))


def no_redirections() -> Redirections:
    return Redirections()
