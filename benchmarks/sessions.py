"""What one read costs a manager with many sessions: the packet, and the search for the next deadline."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from benchmarks.harness import best_of, microseconds, print_table
from postroad.binary.service import BinaryService, Peer
from postroad.binary.session import BinarySettings, Session
from postroad.errors import StorageError
from postroad.manager.composition import SECRET
from postroad.queues.local import LocalQueueManager
from postroad.security.guard import Verdict
from postroad.store.memory import MemoryStore
from postroad.wire import ConnectionParameters, EstablishConnection, SessionAck, SessionHeader
from postroad.wire.octets import NULL_GUID

SESSIONS = (10, 1_000)
NOW = 1_700_000_000.0
READ = SessionAck(SessionHeader(window_size=64)).encode()


class _Driver:
    """A driver that writes and stores everything at once."""

    def connect(self, peer: Peer) -> None:
        pass

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        raise NotImplementedError

    def flush(self, session: Session) -> None:
        session.data_to_send()

    def when_durable(self, done: Callable[[StorageError | None], object], *, repeats: bool) -> None:
        done(None)


def main() -> None:
    rows = [(f"{count}", microseconds(measure(count))) for count in SESSIONS]
    print_table("one read of a session, and the next deadline", ("open sessions", "us"), rows)


def measure(count: int) -> float:
    core = LocalQueueManager("bench", UUID(int=1), MemoryStore(), SECRET)
    core.start(NOW)
    service = BinaryService(core, BinarySettings(), lambda name: [], _Driver())
    sessions = [_opened(service, number) for number in range(count)]

    def read() -> None:
        service.received(sessions[count // 2], READ, NOW)
        assert service.core.deadlines.first is not None

    return best_of(read)


def _opened(service: BinaryService, number: int) -> Session:
    session = service.accepted(f"10.0.{number >> 8}.{number & 255}", NOW)
    assert session is not None
    service.received(session, EstablishConnection(UUID(int=number + 2), NULL_GUID, 0).encode(), NOW)
    service.received(session, ConnectionParameters(500, 120_000, 64).encode(), NOW)
    return session


if __name__ == "__main__":
    main()
