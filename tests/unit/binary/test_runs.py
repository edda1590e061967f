"""Messages that come together are accepted together. Only the time that this takes may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from random import Random

import pytest

from postroad.binary.session import BinarySettings
from postroad.binary.states import ReceivedRun
from postroad.carriers.flights import TransferWatcher
from postroad.message import Message
from postroad.queues.open_queue import WaitingRead
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.security.refusals import Refused
from postroad.wire import SessionHeader, UserMessage
from postroad.wire.headers import SecurityHeader, TxSequenceId
from postroad.wire.patch import is_recoverable, with_session_header
from postroad.wire.view import MessageView
from tests.security_vectors import SID
from tests.unit.binary.network import ACKS, LEDGER, ORDERS, STARTED, Network, Station
from tests.unit.binary.stranger import Stranger

WIDE = BinarySettings(window_size=1024)  # no acknowledgment is due while the messages of a test arrive
SMALL, MISSING = r"private$\small", r"private$\missing"
SEQUENCE = TxSequenceId(3, 7)
Cut = Callable[[Random, bytes], Iterator[bytes]]


class House:
    """A manager, and a stranger with a session to it. What the stranger writes comes in pieces, and the disk waits."""

    def __init__(self) -> None:
        self.network = Network()
        self.network.listed = False
        self.beta = self.network.station("beta", 2, WIDE, insecure_nacks=True)
        self.beta.create(SMALL, quota_kb=2)
        self.refused: list[tuple[bytes, Refused]] = []
        self.beta.service.receiver._watcher = TransferWatcher(
            refused=lambda view, refused: self.refused.append((view.identifier, refused))
        )
        self.stranger = Stranger(self.network, "stranger", 9)
        self.stranger.settings = WIDE
        self.stranger.call(self.beta)
        (link,) = self.network.links
        self.session = next(session for session, party in link.ends.items() if party is self.beta)
        self.beta.commits = False

    def receive(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self.beta.service.received(self.session, piece, self.network.now)

    def state(self) -> dict[str, object]:
        """Everything that the messages have changed, once it is durable."""
        receiver, delivery = self.beta.service.receiver, self.beta.core.delivery
        before = asdict(self.session.received), self.session.deadline, self.session.closed
        self.beta.commit()
        queues = self.beta.core.queues
        return {
            "session": before,
            "acknowledged": asdict(self.session.received),
            "records": {queue.name: list(queue.everything()) for queue in queues.by_number.values()},
            "counts": {queue.name: (queue.count, queue.used_bytes) for queue in queues.by_number.values()},
            "history": [(each, receiver.history.seen_at(each)) for each in receiver.history._seen],
            "sequences": [asdict(each) for each in receiver.incoming],
            "stored": {name: value for name, value in self.beta.store.state().items() if not name.startswith("queue/")},
            "refused": self.refused,
            "tally": asdict(delivery.tally),
            "deadline": self.beta.core.deadlines.first,
            "claims": receiver.claims,
        }


def whole(random: Random, stream: bytes) -> Iterator[bytes]:
    yield stream


def bytewise(random: Random, stream: bytes) -> Iterator[bytes]:
    for place in range(len(stream)):
        yield stream[place : place + 1]


def in_pieces(random: Random, stream: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(stream):
        size = random.choice((1, 15, 16, 60, 200, 1000, 5000))
        yield stream[place : place + size]
        place += size


def one_by_one(stream: list[bytes]) -> Iterator[bytes]:
    """Takes the code path of single messages."""
    yield from stream


class Traffic:
    """Packets of a stranger. Most of them are plain, some are not."""

    def __init__(self, random: Random, house: House) -> None:
        self.random = random
        self.stranger, self.beta = house.stranger, house.beta
        self.packets: list[bytes] = []
        self.number = 0  # of the transactional sequence

    def compose(self, path: str, **options: object) -> bytes:
        body = b"x" * self.random.choice((0, 3, 300))
        label = self.random.choice(("", "label", "another \u0100"))
        message = Message(body, label=label, recoverable=bool(self.random.getrandbits(1)))
        return self.stranger.compose(self.beta.direct(path), replace(message, **options))  # type: ignore[arg-type]

    def plain(self) -> None:
        path = self.random.choice((ORDERS, ORDERS, ORDERS, SMALL))
        recoverable, priority = bool(self.random.getrandbits(1)), self.random.choice((0, 3, 7))
        time_to_be_received = self.random.choice((None, None, 60))
        for _ in range(self.random.randrange(1, 8)):
            self.packets.append(
                self.compose(path, recoverable=recoverable, priority=priority, time_to_be_received=time_to_be_received)
            )

    def transactional(self) -> None:
        for _ in range(self.random.randrange(1, 8)):
            self.number += 1
            self.place(self.number, self.number - 1)

    def place(self, number: int, previous: int, path: str = LEDGER) -> None:
        message = Message(label=str(number), recoverable=True)
        self.packets.append(self.stranger.compose(self.beta.direct(path), message, (SEQUENCE, number, previous)))

    def unusual(self) -> None:
        kind = self.random.randrange(14)
        if kind == 0 and self.packets:
            self.packets.append(self.random.choice(self.packets))  # again, with whatever place it has
        elif kind == 1:
            self.expired()
        elif kind == 2:
            self.packets += [self.compose(MISSING, ack="full", admin_queue=self.stranger.direct(ACKS))] * 2
        elif kind == 3:
            self.packets.append(self.compose(ORDERS, ack="reach-queue", admin_queue=self.stranger.direct(ACKS)))
        elif kind == 4:
            self.packets.append(self.compose(ORDERS, trace=self.stranger.identifier))
        elif kind == 5:
            self.packets += [self.secured(SecurityHeader(1, SID.encode())) for _ in range(3)]
        elif kind == 6:
            self.packets += [self.secured(SecurityHeader(0x21, SID.encode(), b"key")) for _ in range(3)]
        elif kind == 7:
            self.packets.append(self.stranger.order_ack(self.beta, 1, SEQUENCE))
        elif kind == 8:
            self.number += 2
            self.place(self.number, self.number - 1)  # behind a gap
        elif kind == 9:
            self.packets.append(self.compose(LEDGER))
        elif kind == 10:
            self.place(self.number + 1, self.number, ORDERS)
        elif kind == 11:
            self.packets += [self.compose(ORDERS, journal=True), self.compose(ORDERS, dead_letter=True)]
        elif kind == 12:
            self.with_header()
        else:
            self.packets.append(self.compose(ORDERS, extension=b"more"))

    def expired(self) -> None:
        """The second of three similar messages has been on its way for too long."""
        for age_s in (0, 3600, 0):
            packet = self.compose(ORDERS, time_to_reach_queue=60, recoverable=True)
            sent = (int(STARTED) - age_s).to_bytes(4, "little")
            self.packets.append(packet[:52] + sent + packet[56:])

    def secured(self, header: SecurityHeader) -> bytes:
        return replace(UserMessage.decode(self.compose(ORDERS, recoverable=True)), security=header).encode()

    def with_header(self) -> None:
        """The header counts what was sent before the message, and the message itself."""
        packet = self.compose(ORDERS)
        recoverable = sum(is_recoverable(each) for each in (*self.packets, packet))
        header = SessionHeader(
            user_msg_sequence_number=len(self.packets) + 1, recoverable_msg_seq_number=recoverable, window_size=1024
        )
        self.packets.append(with_session_header(packet, header))

    def malformed(self) -> None:
        packet = bytearray(self.compose(ORDERS, label="label", priority=3, recoverable=True))
        at = self.random.choice((60, 61, 62, 64, 66, *range(len(packet) - 68, len(packet) - 20)))
        packet[at] ^= 1 << self.random.randrange(8)
        self.packets.append(bytes(packet))


def traffic(seed: int, house: House) -> list[bytes]:
    random = Random(seed)
    made = Traffic(random, house)
    for _ in range(12):
        random.choice((made.plain, made.plain, made.transactional, made.unusual))()
    if seed % 4 == 0:
        made.malformed()
        made.plain()
    return made.packets


@pytest.mark.parametrize("cut", [whole, bytewise, in_pieces])
@pytest.mark.parametrize("seed", range(40))
def test_how_the_bytes_are_cut_makes_no_difference(seed: int, cut: Cut) -> None:
    house, single = House(), House()
    packets = traffic(seed, house)
    house.receive(cut(Random(seed), b"".join(packets)))
    single.receive(one_by_one(traffic(seed, single)))
    ours, theirs = house.state(), single.state()
    for part, value in theirs.items():
        assert ours[part] == value, part


def test_the_traffic_of_these_tests_has_runs_and_refusals() -> None:
    runs = closed = duplicates = 0
    reasons: set[str] = set()
    for seed in range(40):
        house = House()
        packets = traffic(seed, house)
        duplicates += len(packets) - len(set(packets))
        house.session.receive_data(b"".join(packets), house.network.now)
        events = house.session._events
        runs += sum(isinstance(event, ReceivedRun) for event in events)
        house.receive(iter((b"",)))
        closed += house.session.closed
        reasons |= {refused.reason for _, refused in house.refused}
    assert runs > 100
    assert 0 < closed < 10
    assert duplicates > 5
    assert len(reasons) >= 5


def taken_together(monkeypatch: pytest.MonkeyPatch, beta: Station) -> list[bool]:
    """Whether each run from now on was accepted as one."""
    results: list[bool] = []
    original = beta.service.receiver._take_together

    def noted(*arguments: object) -> bool:
        results.append(original(*arguments))  # type: ignore[arg-type]
        return results[-1]

    monkeypatch.setattr(beta.service.receiver, "_take_together", noted)
    return results


@pytest.mark.parametrize("recoverable", [False, True])
def test_plain_messages_are_one_batch(monkeypatch: pytest.MonkeyPatch, recoverable: bool) -> None:
    house = House()
    together = taken_together(monkeypatch, house.beta)
    packets = [
        house.stranger.compose(house.beta.direct(ORDERS), Message(label=str(number), recoverable=recoverable))
        for number in range(50)
    ]
    house.receive(iter((b"".join(packets),)))
    house.beta.commit()
    assert together == [True]
    assert house.beta.labels(ORDERS) == [str(number) for number in range(50)]


def test_so_are_those_of_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    packets = [
        house.stranger.compose(house.beta.direct(LEDGER), str(number), (SEQUENCE, number, number - 1))
        for number in range(1, 51)
    ]
    house.receive(iter(packets[:1]))
    together = taken_together(monkeypatch, house.beta)
    house.receive(iter((b"".join(packets[1:]),)))
    house.beta.commit()
    assert together == [True]
    assert house.beta.labels(LEDGER) == [str(number) for number in range(1, 51)]
    (sequence,) = house.beta.service.receiver.incoming
    assert (sequence.number, sequence.durable) == (50, 50)


def test_a_lost_tick_takes_all_of_a_sequence_back() -> None:
    house = House()
    packets = [
        house.stranger.compose(house.beta.direct(LEDGER), str(number), (SEQUENCE, number, number - 1))
        for number in range(1, 31)
    ]
    house.receive(iter((b"".join(packets[:10]),)))
    house.beta.seal()
    house.receive(iter((b"".join(packets[10:]),)))  # on top of what is lost
    house.beta.lose()
    assert house.beta.labels(LEDGER) == []
    assert not house.beta.core.tick.batch.puts
    assert house.beta.queue(LEDGER).used_bytes == 0


@pytest.mark.parametrize("recoverable", [False, True])
def test_a_reader_that_waits_gets_the_first(recoverable: bool) -> None:
    house = House()
    found: list[str] = []
    house.network.run()
    core = house.beta.core
    descriptor = core.open(ORDERS, QueueAccess.RECEIVE, ShareMode.DENY_NONE, house.network.now)
    request = WaitingRead(
        descriptor,
        ReadCall.RECEIVE,
        1,
        house.network.now + 10,
        satisfied=lambda records: found.extend(MessageView(record.packet).label for record in records),
    )
    assert core.reading.read(request, house.network.now) is None
    packets = [
        house.stranger.compose(house.beta.direct(ORDERS), Message(label=label, recoverable=recoverable))
        for label in "abc"
    ]
    house.receive(iter((b"".join(packets),)))
    house.beta.commit()
    house.beta.commit()
    assert found == ["a"]
    assert house.beta.labels(ORDERS) == ["b", "c"]
