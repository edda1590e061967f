"""Messages and packets, [MS-MQDMPR] 3.1.7.1.30 to 3.1.7.1.32: which headers a packet has, and where each attribute
is."""

from __future__ import annotations

from struct import pack
from uuid import UUID

import pytest

from postroad.describe.received import ReceivedMessage
from postroad.errors import IllegalName, InvalidMessage, LocalProtocolError, MessageTooLarge
from postroad.message import Composer, Message, multi_queue_header
from postroad.names import MessageId, MultipleElementName, PrivateName, PublicName, parse_format_name
from postroad.wire.constants import (
    BaseFlags,
    EncryptionAlgorithm,
    FormatType,
    HashAlgorithm,
    MessageClass,
    PrivacyLevel,
    QueueCode,
    SenderIdType,
    UserFlags,
)
from postroad.wire.headers import ProviderInfo, SecurityHeader, TxSequenceId
from postroad.wire.octets import NULL_GUID, Writer
from postroad.wire.patch import stamp_transaction
from postroad.wire.queue_names import admin_name, destination_name, response_name
from postroad.wire.view import MessageView
from tests.packets import by_hand, padded, properties, spliced, u32, utf16, with_bits
from tests.unit.queues.harness import ELSEWHERE, IDENTIFIER, LEDGER, ORDERS, OTHER, STARTED, Harness

OTHER_MANAGER = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
GUID = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")
DIRECT = parse_format_name(ELSEWHERE)
PRIVATE = PrivateName(OTHER_MANAGER, 0x1F)
PUBLIC = PublicName(GUID)
SENT = int(STARTED)


def compose(
    message: Message | None = None, destination: object = DIRECT, *, transactional: bool = False
) -> MessageView:
    assert isinstance(destination, type(DIRECT) | PrivateName | PublicName)
    composer = Composer(IDENTIFIER, destination)
    return MessageView(composer.compose(message or Message(), 7, SENT, transactional=transactional))


# Which headers there are, 3.1.7.1.30


@pytest.mark.spec("DM-3.1.7.1.30-01")
def test_a_transaction_and_a_list_of_destinations_bring_their_headers() -> None:
    plain, transactional = compose(), compose(transactional=True)
    assert not plain.user_flags & (UserFlags.TRANSACTION_HEADER | UserFlags.MULTI_QUEUE_HEADER)
    assert (plain.transaction_header, plain.multi_queue_header) == (None, None)
    assert transactional.user_flags & UserFlags.TRANSACTION_HEADER
    assert transactional.transaction_header is not None
    composer = Composer(IDENTIFIER, DIRECT, multi_queue=multi_queue_header([DIRECT, PUBLIC]))
    several = MessageView(composer.compose(Message(), 7, SENT))
    assert several.user_flags & UserFlags.MULTI_QUEUE_HEADER
    assert several.multi_queue_header is not None


@pytest.mark.spec("DM-3.1.7.1.30-03")
def test_the_header_of_properties_is_always_there() -> None:
    for view in (compose(), compose(Message(b"body", label="a")), compose(transactional=True)):
        assert view.user_flags & UserFlags.MESSAGE_PROPERTIES_HEADER


@pytest.mark.spec("DM-3.1.7.1.30-04", "DM-3.1.7.1.32-01", "DM-3.1.7.1.32-07")
@pytest.mark.parametrize("trace", [GUID, f"PUBLIC={GUID}"])
def test_a_trace_queue_brings_a_debug_header_and_both_of_its_flags(trace: UUID | str) -> None:
    view = compose(Message(trace=trace))
    assert view.base_flags & (BaseFlags.DEBUG_HEADER | BaseFlags.TRACING) == 0x0120
    assert view.tracing
    assert view.debug_header is not None
    assert view.debug_header.queue_identifier == GUID
    assert view.data[-20:] == pack("<HH", 1, 0) + GUID.bytes_le


@pytest.mark.spec("DM-3.1.1.12-12")
def test_nothing_is_traced_unless_somebody_says_so() -> None:
    view = compose()
    assert (view.base_flags & 0x0120, view.tracing, view.debug_header) == (0, False, None)


# Where each attribute is, 3.1.7.1.31 and 3.1.7.1.32


@pytest.mark.spec("DM-3.1.7.1.31-02", "DM-3.1.7.1.32-01")
@pytest.mark.parametrize("priority", range(8))
def test_base_header(priority: int) -> None:
    view = compose(Message(priority=priority, time_to_reach_queue=1000 + priority))
    assert (view.priority, view.time_to_reach_queue) == (priority, 1000 + priority)
    assert view.data[2] & 7 == priority
    assert view.data[12:16] == u32(1000 + priority)
    assert compose(Message(priority=priority), transactional=True).data[2] & 7 == 0


@pytest.mark.spec("DM-3.1.7.1.31-03", "MQ-2.2.19.2-03", "MQ-2.2.19.2-08", "DM-3.1.1.12-03")
def test_user_header() -> None:
    message = Message(
        recoverable=True,
        journal=True,
        dead_letter=True,
        time_to_be_received=99,
        admin_queue=PublicName(GUID),
        response_queue=PrivateName(IDENTIFIER, 3),
        ack="full",
    )
    view = compose(message, PRIVATE)
    assert (view.queue_manager_address, view.source_queue_manager) == (OTHER_MANAGER, IDENTIFIER)
    assert (view.sent_time, view.time_to_be_received, view.message_id) == (SENT, 99, 7)
    assert view.identifier == IDENTIFIER.bytes_le + u32(7)
    assert ReceivedMessage(view.data, 1, 0).id == str(MessageId(IDENTIFIER, 7))
    assert (view.recoverable, view.positive_journaling, view.negative_journaling) == (True, True, True)
    assert (destination_name(view), admin_name(view)) == (PRIVATE, PublicName(GUID))
    assert response_name(view) == PrivateName(IDENTIFIER, 3)
    assert view.user_flags & 0x7FC00 == 3 << 10 | 5 << 13 | 2 << 16
    express = compose()
    assert (express.recoverable, express.positive_journaling, express.negative_journaling) == (False, False, False)


@pytest.mark.spec("DM-3.1.7.1.31-04", "DM-3.1.7.1.32-04")
def test_message_properties_header() -> None:
    message = Message(
        b"abc",
        label="label",
        body_type=8,
        app_tag=0xDEADBEEF,
        correlation_id=bytes(range(20)),
        ack=0x05,
        admin_queue=PUBLIC,
        extension=b"extension",
        message_class=MessageClass.REPORT,
    )
    view = compose(message)
    assert (view.label, view.body, view.extension, view.body_type) == ("label", b"abc", b"extension", 8)
    assert (view.application_tag, view.correlation_id, view.ack_flags) == (0xDEADBEEF, bytes(range(20)), 5)
    assert (view.message_class, view.privacy_level, view.message_size) == (1, 0, 3)
    assert (view.hash_algorithm, view.encryption_algorithm) == (0x8004, 0x6801)
    assert pack("<IIIIII", 3, 3, 0, 0x8004, 0x6801, 9) in view.data
    assert pack("<IIIIII", 3, 3, 0, 0x8004, 0x6801, 0) in compose(Message(b"abc")).data


@pytest.mark.spec("DM-3.1.7.1.32-03")
@pytest.mark.parametrize(("label", "units"), [("", 0), ("mqsender label", 15), ("x" * 249, 250), ("\U0001f4ef", 3)])
def test_the_length_of_a_label_counts_its_terminator(label: str, units: int) -> None:
    view = compose(Message(b"abc", label=label))
    assert view.label == label
    assert pack("<BBH", 0, units, 0) + bytes(20) in view.data
    assert view.data.count(utf16(label)) >= 1 or not label


@pytest.mark.spec("DM-3.1.1.12-22")
@pytest.mark.parametrize("label", ["x" * 250, "\U0001f4ef" * 125, "a\0b"])
def test_a_label_has_at_most_249_characters(label: str) -> None:
    with pytest.raises(InvalidMessage, match="label"):
        compose(Message(label=label))


@pytest.mark.spec("DM-3.1.7.1.32-02")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_the_size_of_a_packet_is_all_of_it_but_a_session_header(size: int) -> None:
    view = compose(Message(bytes(size), label="a"))
    assert view.packet_size == len(view.data)
    assert len(view.data) % 4 == 0
    on_a_session = with_bits(view.data, 2, BaseFlags.SESSION_HEADER) + bytes(16)
    assert MessageView(on_a_session).packet_size == len(view.data)


def test_a_packet_has_at_most_four_megabytes() -> None:
    room = 0x400000 - len(compose().data)
    assert compose(Message(bytes(room))).packet_size == 0x400000
    with pytest.raises(MessageTooLarge):
        compose(Message(bytes(room + 1)))


PROVIDER = u32(24) + utf16("provider")
SECURITY_DATA = (b"\1\1\0\0", b"key56", b"signed", b"cert456", PROVIDER)


@pytest.mark.spec("DM-3.1.7.1.31-05")
def test_security_header() -> None:
    fixed = pack("<HHHHII", 0x0021, *map(len, SECURITY_DATA))
    data = fixed + b"".join(padded(each) for each in SECURITY_DATA)
    header = MessageView(by_hand(user_flags=UserFlags.SECURITY_HEADER.value, after_names=data)).security_header
    assert header is not None
    assert (header.sender_id_type, header.security_id) == (SenderIdType.SID, b"\1\1\0\0")
    assert (header.encryption_key, header.signature, header.sender_certificate) == (b"key56", b"signed", b"cert456")
    assert ProviderInfo.decode(header.provider_info) == ProviderInfo(24, "provider")
    assert header.encrypted_body


@pytest.mark.spec("DM-3.1.7.1.32-06")
@pytest.mark.parametrize("name", ["", "p", "provider"])
def test_sizes_in_the_security_header(name: str) -> None:
    writer = Writer()
    provider = ProviderInfo(24, name).encode()
    SecurityHeader(sender_certificate=b"cert456", provider_info=provider).encode(writer)
    assert writer.getvalue()[8:16] == pack("<II", 7, 4 + 2 * (len(name) + 1))


@pytest.mark.spec("DM-3.1.7.1.31-06", "MQ-2.2.20.5-16")
def test_transaction_header() -> None:
    packet = compose(transactional=True).data
    stamped = stamp_transaction(packet, TxSequenceId(7, 9), 5, 3, 0x12345, first=True, last=False)
    header = MessageView(stamped).transaction_header
    assert header is not None
    assert (header.sequence_id, header.sequence_number, header.previous_sequence_number) == (TxSequenceId(7, 9), 5, 3)
    assert (header.transaction_id, header.first_in_transaction, header.last_in_transaction) == (0x12345, True, False)
    assert (header.final_ack_required, header.connector_qm_guid) == (False, None)
    at = len(packet) - 56 - 20
    connected = with_bits(spliced(stamped, at + 20, GUID.bytes_le), at, 3)
    again = MessageView(connected).transaction_header
    assert again is not None
    assert (again.connector_qm_guid, again.final_ack_required) == (GUID, True)
    kept = MessageView(stamp_transaction(connected, TxSequenceId(7, 10), 1, 0, 2, first=False, last=True))
    assert kept.transaction_header is not None
    assert (kept.transaction_header.connector_qm_guid, kept.transaction_header.final_ack_required) == (GUID, True)


@pytest.mark.spec("DM-3.1.7.1.31-07", "MQ-2.2.20.1-02", "MQ-2.2.20.1-03", "DM-3.1.1.12-18")
def test_every_copy_lists_all_destinations_and_goes_to_one_of_them(harness: Harness) -> None:
    names = [rf"DIRECT=OS:alpha\{ORDERS}", rf"DIRECT=OS:alpha\{OTHER}", ELSEWHERE]
    ids = harness.send(",".join(names), Message(b"body", label="a", recoverable=True, trace=GUID))
    views = [harness.messages(name)[0] for name in names]
    for name, view in zip(names, views, strict=True):
        assert destination_name(view) == parse_format_name(name)
        assert view.multi_queue_header is not None
        elements = view.multi_queue_header.destination.elements
        assert {(each.format_type, each.direct_name) for each in elements} == {
            (FormatType.DIRECT, name.removeprefix("DIRECT=")) for name in names
        }
        assert view.debug_header is not None
        assert view.debug_header.queue_identifier == GUID
    assert sorted(view.message_id for view in views) == ids
    assert {(view.label, view.body, view.sent_time) for view in views} == {("a", b"body", SENT)}


@pytest.mark.spec("DM-3.1.1.12-17")
def test_a_list_holds_single_names_only() -> None:
    several = parse_format_name(f"{ELSEWHERE},PUBLIC={GUID}")
    assert isinstance(several, MultipleElementName)
    assert not any(isinstance(element, MultipleElementName) for element in several.elements)
    with pytest.raises(LocalProtocolError, match="a list of destinations must hold"):
        multi_queue_header([several])
    with pytest.raises(LocalProtocolError, match="cannot be the destination"):
        Composer(IDENTIFIER, several).compose(Message(), 7, SENT)


@pytest.mark.spec("DM-3.1.7.1.31-01")
def test_attributes_whose_header_is_absent_have_their_defaults() -> None:
    view = MessageView(by_hand())
    assert (view.transaction_header, view.security_header, view.debug_header) == (None, None, None)
    assert (view.soap_header, view.multi_queue_header, view.session_header) == (None, None, None)
    assert (destination_name(view), admin_name(view), response_name(view)) == (None, None, None)
    assert (view.transactional, view.encrypted, view.signed, view.tracing) == (False, False, False, False)


# Names of queues


@pytest.mark.spec("DM-3.1.1.12-29", "MQ-2.2.19.2-05")
@pytest.mark.parametrize(
    ("destination", "code", "manager"), [(PRIVATE, 3, OTHER_MANAGER), (PUBLIC, 5, NULL_GUID), (DIRECT, 7, NULL_GUID)]
)
def test_destinations(destination: object, code: int, manager: UUID) -> None:
    view = compose(destination=destination)
    assert (view.user_flags >> 10 & 7, view.queue_manager_address) == (code, manager)
    assert destination_name(view) == destination


OTHERS = [
    (None, QueueCode.NONE, 0),
    (PrivateName(IDENTIFIER, 4), QueueCode.PRIVATE_ON_SOURCE, 2),
    (PrivateName(OTHER_MANAGER, 4), QueueCode.PRIVATE_ON_DESTINATION, 3),
    (PUBLIC, QueueCode.PUBLIC, 5),
    (PrivateName(GUID, 4), QueueCode.PRIVATE_ON_OTHER, 6),
    (parse_format_name(r"DIRECT=OS:gamma\private$\acks"), QueueCode.DIRECT, 7),
]


@pytest.mark.spec("DM-3.1.1.12-30")
@pytest.mark.parametrize(("name", "queue_code", "code"), OTHERS)
def test_administration_queues(name: object, queue_code: QueueCode, code: int) -> None:
    view = compose(Message(admin_queue=name, ack="full"), PRIVATE)  # type: ignore[arg-type]
    assert (view.user_flags >> 13 & 7, view.admin_queue.code) == (code, queue_code)
    assert admin_name(view) == name


@pytest.mark.spec("DM-3.1.1.12-31")
@pytest.mark.parametrize(("name", "queue_code", "code"), OTHERS)
def test_response_queues(name: object, queue_code: QueueCode, code: int) -> None:
    view = compose(Message(response_queue=name), PRIVATE)  # type: ignore[arg-type]
    assert (view.user_flags >> 16 & 7, view.response_queue.code) == (code, queue_code)
    assert response_name(view) == name


@pytest.mark.spec("DM-3.1.1.12-31")
def test_response_queues_that_go_by_the_administration_queue() -> None:
    admin = GUID.bytes_le + u32(4)
    same = MessageView(by_hand(admin, 6 << 13 | 1 << 16))
    assert response_name(same) == admin_name(same) == PrivateName(GUID, 4)
    beside = MessageView(by_hand(admin + u32(9), 6 << 13 | 4 << 16))
    assert response_name(beside) == PrivateName(GUID, 9)


def test_a_queue_that_nobody_can_answer_to_is_refused(harness: Harness) -> None:
    with pytest.raises(IllegalName):
        compose(Message(response_queue="nonsense"))
    with pytest.raises(InvalidMessage, match="response queue"):
        compose(Message(response_queue=f"MACHINE={GUID};JOURNAL"))
    with pytest.raises(InvalidMessage, match="admin queue"):
        compose(Message(admin_queue=ORDERS, ack="full"))  # a path, and nobody here knows it


def test_a_local_path_is_written_so_that_others_can_answer(harness: Harness) -> None:
    harness.send(ELSEWHERE, Message(response_queue=ORDERS, recoverable=True))
    (view,) = harness.messages(ELSEWHERE)
    assert response_name(view) == harness.manager.queues.format_name(harness.queue(ORDERS))


# Values


@pytest.mark.spec("DM-3.1.1.12-21", "DM-3.1.1.12-07", "DM-3.1.1.12-13", "DM-3.1.1.12-27", "DM-3.1.1.12-28")
def test_a_message_of_which_nothing_is_said() -> None:
    message, view = Message(), compose()
    assert (message.priority, view.priority) == (3, 3)
    assert (view.recoverable, view.application_tag, view.body_type, view.message_class) == (False, 0, 0, 0)
    assert (view.correlation_id, view.label, view.body, view.extension) == (bytes(20), "", b"", b"")
    assert (view.connector_type, view.ack_flags, view.time_to_be_received) == (None, 0, 0xFFFFFFFF)
    assert (view.hash_algorithm, view.encryption_algorithm) == (0x8004, 0x6801)


@pytest.mark.spec("DM-3.1.1.12-13")
@pytest.mark.parametrize("priority", [-1, 8])
def test_there_are_eight_priorities(priority: int) -> None:
    with pytest.raises(InvalidMessage, match="priority"):
        compose(Message(priority=priority))


@pytest.mark.spec("DM-3.1.1.12-07", "DM-3.1.1.12-08", "DM-3.1.7.1.31-10")
def test_classes_are_those_of_the_packet_or_the_applications_own() -> None:
    assert {0x00FF, 0xC004} <= set(MessageClass)
    names = {each.name for each in MessageClass}
    assert not names & {"NACK_COULD_NOT_ENCRYPT", "NACK_SOURCE_COMPUTER_GUID_CHANGED", "NACK_RECEIVE_TIMEOUT_AT_SENDER"}
    for message_class in (0x00FF, 0xC004, 0xE1FF):
        assert compose(Message(message_class=message_class)).message_class == message_class
    with pytest.raises(InvalidMessage, match="class"):
        compose(Message(message_class=0x0200))


@pytest.mark.spec("DM-3.1.7.1.32-08", "DM-3.1.1.12-09", "DM-3.1.7.1.31-09")
@pytest.mark.parametrize(
    ("value", "number"),
    [
        (PrivacyLevel.NONE, 0),
        (PrivacyLevel.BASE, 1),
        (PrivacyLevel.ENHANCED, 3),
        (PrivacyLevel.ADVANCED, 5),
        (EncryptionAlgorithm.RC2, 0x6602),
        (EncryptionAlgorithm.RC4, 0x6801),
        (EncryptionAlgorithm.AES_128, 0x660E),
        (EncryptionAlgorithm.AES_192, 0x660F),
        (EncryptionAlgorithm.AES_256, 0x6610),
        (HashAlgorithm.MD2, 0x8001),
        (HashAlgorithm.MD4, 0x8002),
        (HashAlgorithm.MD5, 0x8003),
        (HashAlgorithm.SHA1, 0x8004),
        (HashAlgorithm.SHA256, 0x800C),
        (HashAlgorithm.SHA512, 0x800E),
        (SenderIdType.NONE, 0),
        (SenderIdType.SID, 1),
        (SenderIdType.QUEUE_MANAGER, 2),
    ],
)
def test_numbers_of_the_wire(value: object, number: int) -> None:
    assert value == number
    assert type(value)(number) is value


# What the server leaves alone


@pytest.mark.spec(
    "DM-3.1.1.12-20", "MQ-2.2.19.3-15", "MQ-2.2.19.3-17", "MQ-2.2.19.3-18", "MQ-2.2.19.2-39", "MQ-2.2.19.2-03"
)
@pytest.mark.parametrize("recoverable", [True, False])
def test_what_belongs_to_applications_is_theirs_from_end_to_end(harness: Harness, recoverable: bool) -> None:
    message = Message(
        b"\0\xff body",
        label="l\u00e4bel \U0001f4ef",
        recoverable=recoverable,
        app_tag=0xDEADBEEF,
        body_type=0x7777,
        correlation_id=bytes(range(20)),
        extension=b"\xff\0",
        connector_type=GUID,
    )
    harness.send(ORDERS, message)
    queue = harness.queue(ORDERS)
    (sent,) = queue.everything()
    harness.manager.move(queue, harness.queue(OTHER), [sent], harness.now)
    harness.tick()
    (received,) = harness.read(OTHER)
    view = MessageView(received.packet)
    assert received.packet == sent.packet
    assert (view.body, view.label, view.application_tag) == (b"\0\xff body", "l\u00e4bel \U0001f4ef", 0xDEADBEEF)
    assert (view.body_type, view.correlation_id, view.extension) == (0x7777, bytes(range(20)), b"\xff\0")
    assert (view.connector_type, view.source_queue_manager) == (GUID, IDENTIFIER)


@pytest.mark.spec("MQ-2.2.19.2-03", "MQ-2.2.20.5-16")
def test_a_packet_of_another_manager_is_kept_byte_for_byte(harness: Harness) -> None:
    packet = by_hand(properties=properties(body=b"abc", label="from afar"))
    harness.manager.insert(harness.queue(ORDERS), [MessageView(packet)], harness.now)
    harness.tick()
    (record,) = harness.read(ORDERS)
    assert record.packet == packet
    harness.send_transactional(LEDGER, "a")
    stamped = next(harness.queue(LEDGER).everything()).packet
    assert MessageView(stamped).source_queue_manager == IDENTIFIER
