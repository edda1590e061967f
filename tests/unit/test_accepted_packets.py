"""Every packet that a decoder accepts survives each later step."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from postroad.api.formats import ArrowWriter
from postroad.binary.service import BinaryService, Hop, Peer
from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Received
from postroad.binary.trace_reports import send_report
from postroad.cli.decode import TextPrinter
from postroad.describe import message_json, packet_json
from postroad.describe.capture.items import DecodedPacket, Origin
from postroad.describe.received import ReceivedMessage, decode_records, encode_records
from postroad.errors import MessageAlreadyReceived, MessageNotFound, NoMessage, RemoteProtocolError, StorageError
from postroad.manager.composition import SECRET
from postroad.manager.outlook import Outlook
from postroad.manager.trace import Search
from postroad.message import Message
from postroad.names import FormatName, MessageId, PublicName, parse_format_name
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import WaitingRead
from postroad.queues.queue import Queue
from postroad.remote_read.client import message_of
from postroad.reports.operations import QueueAccess, ReadCall, SeekAction, ShareMode
from postroad.security.guard import Verdict
from postroad.security.refusals import Reason, Refused
from postroad.soap.service import Peer as SoapPeer
from postroad.soap.service import Post, SoapService
from postroad.soap.settings import SoapSettings
from postroad.store.interface import NEVER, Record
from postroad.store.memory import MemoryStore
from postroad.wire import FinalAck, MessageView, OrderAck, QueueField, decode_packet
from postroad.wire.constants import MessageClass, QueueCode
from postroad.wire.patch import as_stored, renumber_transaction
from tests import strategies
from tests.packets import marked_as_http

OWN = UUID(int=0xAA)
STARTED = 1_700_000_000.0
REPORTS = UUID(int=0xBB)
LATER = float(0xFFFFFFFE)
NEGATIVE = [each for each in MessageClass if each >= MessageClass.NACK_BAD_DST_Q]
GONE = (NoMessage, MessageNotFound, MessageAlreadyReceived)  # its time was over, and the reader was told so


def _locate(name: PublicName) -> UUID | None:
    return UUID(int=0xCC) if name.guid == REPORTS else None


class House:
    """A manager's core with both protocols. Its peers are never reached, and its ticks land at once."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.core = LocalQueueManager("alpha", OWN, self.store, SECRET, insecure_nacks=True, locate=_locate)
        self.core.start(STARTED)
        self.tick()
        self.binary = BinaryService(self.core, BinarySettings(), self._resolve, self)
        self.soap = SoapService(self.core, SoapSettings(), self)
        self.queues = {
            False: self.core.create_queue(r"private$\orders", STARTED, journal=True),
            True: self.core.create_queue(r"private$\ledger", STARTED, journal=True, transactional=True),
        }
        self.core.create_queue(r"private$\acks", STARTED)
        self.others = {
            False: self.core.create_queue(r"private$\other", STARTED),
            True: self.core.create_queue(r"private$\other_ledger", STARTED, transactional=True),
        }
        self.posts: list[Post] = []
        self.tick()
        session = self.binary.accepted("10.0.0.9", STARTED)
        assert session is not None
        self.session = session

    # The drivers of both services

    def connect(self, peer: Peer) -> None: ...

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        done([self.core.protection.opener.open(packet, STARTED) for packet in packets])

    def flush(self, session: Session) -> None:
        session.data_to_send()

    def when_durable(self, done: Callable[[StorageError | None], object], *, repeats: bool) -> None:
        self.tick()
        done(None)

    def post(self, post: Post) -> None:
        self.posts.append(post)

    def close(self, peer: SoapPeer) -> None: ...

    @staticmethod
    def _resolve(name: FormatName) -> list[Hop]:
        return [Hop("10.0.0.8")]

    # Verbs

    def tick(self) -> None:
        while (tick := self.core.ticks.seal()) is not None:
            self.store.commit([tick.batch])
            self.core.ticks.committed(tick, STARTED)

    def insert(self, view: MessageView) -> Queue:
        """Imports the packet."""
        queue = self.queues[view.transactional]
        self.core.insert(queue, [view], STARTED)
        self.tick()
        return queue

    def record(self, queue: Queue) -> Record:
        (record,) = queue.everything()
        return record

    def check(self) -> None:
        self.tick()
        assert self.core.delivery.tally.follow_up_errors == 0


Fate = Callable[[House, MessageView], None]


def arrived(house: House, view: MessageView) -> None:
    """The packet arrives by a session: into its queue, refused, or on to another manager. It is traced."""
    stored = view.data
    for reason in NEGATIVE:
        house.binary.receiver._refuse(stored, view, Refused(reason, Reason.NO_QUEUE), "10.0.0.9", STARTED)
    house.core.delivery.arrive(house.queues[view.transactional], stored, view, STARTED)


def received(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    _read(house, queue, two_phase=False)


def received_in_two_phases(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    for delete in (False, True):
        for record in _read(house, queue, two_phase=True):
            house.core.reading.end(queue, record, STARTED, delete=delete)


def received_by_lookup_id(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    record = house.record(queue)
    descriptor = house.core.open(queue.name, QueueAccess.RECEIVE, ShareMode.DENY_NONE, STARTED)
    with suppress(*GONE):
        house.core.reading.read_by_lookup_id(descriptor, record.lookup_id, SeekAction.CURRENT, STARTED, peek=False)


def aborted(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    house.core.queues.change(house.core.tick, queue, int(STARTED), abort_limit=2)
    if not view.transactional:
        return
    for _ in range(2):
        transaction = house.core.begin()
        descriptor = house.core.open(queue.name, QueueAccess.RECEIVE, ShareMode.DENY_NONE, STARTED)
        request = WaitingRead(descriptor, ReadCall.RECEIVE, 1, STARTED, transaction=transaction)
        with suppress(*GONE):
            house.core.reading.read(request, STARTED)
        house.core.abort(transaction, STARTED)
        house.tick()


def expired(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    record = house.record(queue)
    if record.expires_s == NEVER:
        house.core.delivery.expire(queue, record, STARTED)
    house.core.run_timers(LATER)
    house.tick()
    assert not queue.count or record.expires_s >= LATER


def purged(house: House, view: MessageView) -> None:
    assert house.core.purge(house.insert(view), STARTED) == 1


def deleted(house: House, view: MessageView) -> None:
    house.core.delete_queue(house.insert(view), STARTED)


def moved(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    house.core.move(queue, house.others[view.transactional], [house.record(queue)], STARTED)


def acknowledged(house: House, view: MessageView) -> None:
    for message_class in MessageClass:
        house.core.delivery.acknowledge(view, message_class, STARTED)


def dead_lettered(house: House, view: MessageView) -> None:
    house.core.delivery.dead_letter(as_stored(view.data), view, MessageClass.NACK_RECEIVE_TIMEOUT, STARTED)


def reported(house: House, view: MessageView) -> None:
    send_report(house.core, view, STARTED)
    send_report(house.core, view, STARTED, "10.0.0.9")


def forwarded(house: House, view: MessageView) -> None:
    house.binary.receiver._forward(view.data, view, "10.0.0.9", STARTED)
    house.tick()
    house.binary.receiver._take_message(house.session, view.data, view, "10.0.0.9", STARTED, None)
    house.tick()
    house.core.deadlines.run(STARTED + 100)


def sent(house: House, view: MessageView) -> None:
    """Sent by another session, from the outgoing queue of its destination."""
    queue = _outgoing(house, "DIRECT=TCP:10.0.0.8\\private$\\orders", view)
    session = _open_session()
    house.binary.sender.pump(session, [queue], STARTED, "10.0.0.8")
    house.binary.sender.session_closed(session, [queue], STARTED)
    house.core.run_timers(LATER)
    house.tick()
    house.core.purge(queue, STARTED)


def posted(house: House, view: MessageView) -> None:
    """Sent by SOAP: a packet that was sent here, and one that came by HTTP."""
    for number, packet in enumerate((view.data, marked_as_http(view.data))):
        queue = _outgoing(house, f"DIRECT=http://10.0.0.{number + 1}/msmq/private$/orders", MessageView(packet))
        if queue.count:
            house.soap.ready(queue, STARTED)
        for post in house.posts:
            house.soap.answered(post, 400 if number else 200, STARTED)
        house.posts.clear()


def came_by_http(house: House, view: MessageView) -> None:
    """Its mark says so, but its envelope need not be valid."""
    queue = house.insert(MessageView(marked_as_http(view.data)))
    house.core.purge(queue, STARTED)


def described(house: House, view: MessageView) -> None:
    json.dumps(message_json(view))
    json.dumps(packet_json(view.data, view))
    TextPrinter(StringIO()).print(DecodedPacket(Origin(), view.data, view))


def exported(house: House, view: MessageView) -> None:
    queue = house.insert(view)
    record = house.record(queue)
    message = ReceivedMessage(record.packet, record.lookup_id, record.arrived_ms, record.aborts, record.reason)
    (again,) = decode_records(encode_records([message]))
    assert again.packet == message.packet
    json.dumps(message.describe())
    repr(message)
    assert message.sent_at
    assert message.arrived_at
    writer = ArrowWriter(packet=True)
    assert writer.start() + writer.batch([message]) + writer.end()


def searched(house: House, view: MessageView) -> None:
    """Searched by its own id, and by the id that it refers to."""
    house.insert(view)
    identifiers = (view.identifier, view.correlation_id)
    for identifier in identifiers:
        search = Search(
            Outlook(house.core, STARTED),
            str(MessageId.from_bytes(identifier)),
        )
        for _ in search.pages():
            pass
        search.trace()
    outlook = Outlook(house.core, STARTED)
    for queue in house.core.queues:
        outlook.describe(queue)


def read_remotely(house: House, view: MessageView) -> None:
    assert message_of(view.data, 1, int(STARTED)).describe()


FATES: tuple[Fate, ...] = (
    arrived,
    received,
    received_in_two_phases,
    received_by_lookup_id,
    aborted,
    expired,
    purged,
    deleted,
    moved,
    acknowledged,
    dead_lettered,
    reported,
    forwarded,
    sent,
    posted,
    came_by_http,
    described,
    exported,
    searched,
    read_remotely,
)


def _read(house: House, queue: Queue, *, two_phase: bool) -> list[Record]:
    descriptor = house.core.open(queue.name, QueueAccess.RECEIVE, ShareMode.DENY_NONE, STARTED)
    request = WaitingRead(descriptor, ReadCall.RECEIVE, 5, STARTED, two_phase=two_phase)
    records: list[Record] | None = None
    with suppress(*GONE):
        records = house.core.reading.read(request, STARTED)
    house.core.close(descriptor)
    return records or []


def _open_session() -> Session:
    ours = Session.initiate(OWN, UUID(int=0), BinarySettings(), STARTED)
    theirs = Session.accept(UUID(int=0xDD), BinarySettings(), STARTED)
    while data := ours.data_to_send():
        theirs.receive_data(data, STARTED)
        ours.receive_data(theirs.data_to_send(), STARTED)
    assert ours.opened_at
    return ours


def _outgoing(house: House, name: str, view: MessageView) -> Queue:
    queue = house.core.queues.outgoing_queue(house.core.tick, parse_format_name(name), int(STARTED))
    house.core.delivery.enter(queue, [as_stored(view.data)], STARTED)
    house.tick()
    return queue


# Names that lead somewhere, and names that lead nowhere.
_known_queues = st.sampled_from(
    [
        QueueField(QueueCode.DIRECT, direct_name=name)
        for name in (
            r"OS:alpha\private$\acks",
            r"TCP:10.0.0.7\private$\acks",
            "http://10.0.0.7/msmq/private$/acks",
            r"OS:alpha\private$\order_queue$",
            r"OS:alpha\private$\acks;journal",
        )
    ]
    + [QueueField(QueueCode.PUBLIC, guid=REPORTS)]
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Legal messages, most of them not expired and some of our own, with names that lead somewhere or nowhere."""
    message = draw(strategies.user_messages)
    user = message.user
    if draw(st.booleans()):
        user = replace(user, admin_queue=draw(_known_queues))
    if draw(st.booleans()):
        user = replace(user, response_queue=draw(_known_queues))
    if draw(st.booleans()):
        user = replace(user, destination_queue=draw(_known_queues))
    if draw(st.booleans()):
        user = replace(user, sent_time=int(STARTED), time_to_be_received=draw(st.sampled_from((0, 1, 0xFFFFFFFF))))
    if draw(st.booleans()):
        user = replace(user, source_queue_manager=OWN)
    if draw(st.booleans()):
        user = replace(user, queue_manager_address=draw(st.sampled_from((OWN, UUID(int=0)))))
    properties = message.properties
    if draw(st.booleans()):
        properties = replace(properties, flags=draw(st.sampled_from((0x0F, 0xFF))))
    if draw(st.booleans()):
        properties = replace(properties, message_class=draw(st.sampled_from([each.value for each in MessageClass])))
    debug = message.debug
    if debug is not None and draw(st.booleans()):
        debug = replace(debug, queue_identifier=REPORTS)
    packet = replace(message, user=user, properties=properties, debug=debug).encode()
    if message.transaction is not None and draw(st.booleans()):
        packet = renumber_transaction(packet, draw(_numbers), draw(_numbers))  # which need not be legal
    return packet


_numbers = st.sampled_from((0, 1, 2, 0xFFFFFFFE, 0xFFFFFFFF))
_packets: st.SearchStrategy[bytes] = st.one_of(messages(), strategies.damaged(messages(), base_header=True))


_acks = st.builds(
    lambda ack, own, here: replace(
        ack,
        queue_manager_address=OWN if here else ack.queue_manager_address,
        **({"source_guid": OWN} if own and isinstance(ack, FinalAck) else {}),
    ),
    strategies.ordering_acks,
    st.booleans(),
    st.booleans(),
).map(lambda ack: ack.encode())


def accepted(data: bytes) -> MessageView | None:
    """Accepted as a session or an import does, and as a queue keeps it."""
    try:
        packet = decode_packet(data)
    except RemoteProtocolError:
        return None
    return MessageView(as_stored(data)) if isinstance(packet, MessageView) else None


@given(data=_packets)
def test_whatever_is_accepted_can_be_answered(data: bytes) -> None:
    # One example for all steps: to make a packet takes longer than any of them.
    for fate in FATES:
        view = accepted(data)
        if view is None:
            return
        house = House()
        fate(house, view)
        house.check()


@given(data=st.one_of(_acks, strategies.damaged(_acks, base_header=True)))
def test_whatever_acknowledgment_is_accepted_can_be_taken(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except RemoteProtocolError:
        return
    if isinstance(packet, OrderAck | FinalAck):
        house = House()
        house.core.send(r"DIRECT=TCP:10.0.0.7\private$\q", [Message(b"waits for one")], STARTED)
        house.binary.receiver.take(house.session, Received(data, packet, 1), "10.0.0.9", STARTED)
        json.dumps(packet_json(data, packet))
        house.check()
