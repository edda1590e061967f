"""What one request costs a manager with 10 and with 2,000 incoming streams and outgoing queues to other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from benchmarks.harness import best_of, print_table
from postroad.manager.composition import SECRET
from postroad.message import Message
from postroad.queues.local import LocalQueueManager
from postroad.soap.elements import Attachments, Envelope, Msmq, Path, Properties, Services, Stream, StreamId
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.receiver import Incoming
from postroad.soap.service import Peer, Post, SoapService
from postroad.soap.settings import SoapSettings
from postroad.store.memory import MemoryStore
from postroad.wire import TxSequenceId

NOW = 1_700_000_000.0
TABLES = (10, 2_000)
REQUESTS = 500


class Silence:
    """A driver whose requests are never answered."""

    def post(self, post: Post) -> None:
        pass

    def close(self, peer: Peer) -> None:
        pass


def message(number: int, *, source: int, stream: bool) -> Incoming:
    guid = UUID(int=source)
    queue = "ledger" if stream else "orders"
    place = Stream(StreamId(guid, TxSequenceId(1, 1)), number, None, "http://far/msmq/private$/order_queue$")
    envelope = Envelope(
        Path("MSMQ:note", f"http://alpha/msmq/private$/{queue}", f"uuid:{number}@{guid}"),
        Properties(int(NOW) + 3600, int(NOW)),
        msmq=Msmq(0, 3, guid, int(NOW) + 3600),
        services=Services(durable=True) if stream else None,
        stream=place if stream else None,
    )
    content_type, pieces = join_entity(write_envelope(envelope), Attachments(b"body"), guid, number)
    return Incoming(content_type, b"".join(pieces), f"10.1.{source >> 8 & 255}.{source & 255}")


def filled(size: int) -> SoapService:
    """A manager with so many streams whose receipts are due, and so many queues that wait for a receipt."""
    core = LocalQueueManager("alpha", UUID(int=7), MemoryStore(), SECRET)
    core.start(NOW)
    core.create_queue(r"private$\orders", NOW)
    core.create_queue(r"private$\ledger", NOW, transactional=True)
    service = SoapService(core, SoapSettings(), Silence())
    service.start(NOW)
    for number in range(1, size + 1):
        assert service.received(message(1, source=number, stream=True), NOW).status == 200
        transaction = core.begin()
        name = f"DIRECT=HTTP://10.2.{number >> 8}.{number & 255}/msmq/private$/q"
        core.send(name, [Message(b"body")], NOW, transaction)
        core.commit(transaction, NOW)
    commit(core)
    return service


def commit(core: LocalQueueManager) -> None:
    tick = core.ticks.seal()
    if tick is not None:
        core.store.commit([tick.batch])
        core.ticks.committed(tick, NOW)


def rows() -> Iterator[tuple[str, ...]]:
    for size in TABLES:
        service = filled(size)
        requests = iter([message(number, source=0xFFFF, stream=False) for number in range(1, 20 * REQUESTS + 1)])

        def take(service: SoapService = service, requests: Iterator[Incoming] = requests) -> None:
            for _ in range(REQUESTS):
                service.received(next(requests), NOW)
                assert service.core.deadlines.first is not None

        seconds = best_of(take, 5)
        yield f"{size:,}", f"{seconds / REQUESTS * 1e6:,.0f} us"


def main() -> None:
    print_table("One SOAP request beside streams and outgoing queues", ("of each", "a request"), list(rows()))


if __name__ == "__main__":
    main()
