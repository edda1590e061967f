"""A peer without a queue manager: a test writes its packets and reads what it gets."""

from __future__ import annotations

from uuid import UUID

from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Acknowledged, Received, singly
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.wire.headers import TransactionHeader, TxSequenceId
from postroad.wire.ordering import FinalAck, OrderAck, order_queue
from postroad.wire.patch import stamp_transaction, with_hop_count
from postroad.wire.view import MessageView
from tests.unit.binary.network import Network, Party, Station, of, whole


class Stranger(Party):
    """A party on the network like any station. It speaks the protocol through a Session, and says what the test
    wants."""

    def __init__(self, network: Network, name: str, number: int, address: str | None = None) -> None:
        super().__init__(network, name, number, address)
        self.settings = BinarySettings()
        self.sessions: list[Session] = []
        self.taken: list[MessageView | OrderAck | FinalAck] = []
        self.stores = True  # whether recoverable messages are acknowledged
        self.acknowledged: list[object] = []
        self.next_id = 0

    def call(self, station: Station, manager: UUID | None = None) -> Session:
        """Opens a session to a station."""
        session = Session.initiate(self.identifier, manager or UUID(int=0), self.settings, self.network.now)
        self.sessions.append(session)
        self.network.join(self, session, station)
        self.network.run()
        return session

    def send(self, session: Session, *packets: bytes) -> None:
        for packet in packets:
            view = MessageView(packet)
            session.send(packet, packet, self.network.now, recoverable=view.recoverable, plain=not view.base_flags)
        self.flush(session)
        self.network.run()

    def compose(
        self,
        destination: str,
        message: Message | str,
        place: tuple[TxSequenceId, int, int] | None = None,
        *,
        message_id: int | None = None,
        hops: int = 0,
        source: UUID | None = None,
    ) -> bytes:
        """A packet that the stranger makes. With a place (sequence, number, previous) it is transactional."""
        if message_id is None:
            message_id = self.next_id = self.next_id + 1
        composer = Composer(source or self.identifier, parse_format_name(destination))
        sent = int(self.network.now)
        packet = composer.compose(whole(message), message_id, sent, transactional=place is not None)
        if place is not None:
            packet = stamp_transaction(packet, *place, 1, first=True, last=True)
        return with_hop_count(packet, hops)

    def order_ack(self, station: Station, number: int, sequence_id: TxSequenceId | None = None) -> bytes:
        """An OrderAck for a sequence, or for the sequence of the last message that came."""
        self.next_id += 1
        return OrderAck(
            source_queue_manager=self.identifier,
            message_id=self.next_id,
            sent_time=int(self.network.now),
            destination_queue=order_queue(station.address),
            sequence_id=sequence_id or self.place.sequence_id,
            sequence_number=number,
            previous_sequence_number=number - 1,
        ).encode()

    def final_ack(self, station: Station, view: MessageView, final_class: int, source: UUID | None = None) -> bytes:
        self.next_id += 1
        header = view.transaction_header
        assert header is not None
        return FinalAck(
            source_queue_manager=self.identifier,
            message_id=self.next_id,
            sent_time=int(self.network.now),
            destination_queue=order_queue(station.address),
            sequence_id=header.sequence_id,
            sequence_number=header.sequence_number,
            previous_sequence_number=header.previous_sequence_number,
            final_class=final_class,
            source_guid=source or view.source_queue_manager,
            acknowledged_message_id=view.message_id,
        ).encode()

    @property
    def messages(self) -> list[MessageView]:
        return of(MessageView, self.taken)

    @property
    def order_acks(self) -> list[OrderAck]:
        return of(OrderAck, self.taken)

    @property
    def final_acks(self) -> list[FinalAck]:
        return of(FinalAck, self.taken)

    @property
    def place(self) -> TransactionHeader:
        """The place of the last transactional message that came."""
        header = self.messages[-1].transaction_header
        assert header is not None
        return header

    def accepted(self, address: str) -> Session:
        session = Session.accept(self.identifier, self.settings, self.network.now)
        self.sessions.append(session)
        return session

    def received(self, session: Session, data: bytes) -> None:
        session.receive_data(data, self.network.now)
        self._take_events(session)
        self.flush(session)

    def disconnected(self, session: Session) -> None:
        session.disconnected()

    @property
    def deadline(self) -> float | None:
        return min((each.deadline for each in self.sessions if each.deadline is not None), default=None)

    def on_timer(self) -> None:
        for session in self.sessions:
            if session.deadline is not None and session.deadline <= self.network.now:
                session.on_timer(self.network.now)
                self._take_events(session)
                self.flush(session)

    def _take_events(self, session: Session) -> None:
        for event in singly(session.events()):
            if isinstance(event, Received):
                self.taken.append(event.packet)
                if self.stores:
                    session.stored(event.number, self.network.now)
            elif isinstance(event, Acknowledged):
                self.acknowledged += event.tokens
