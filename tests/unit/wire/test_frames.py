"""Captured frames of [MS-MQQB] 4.1 and our own packets: every field is read, and the same bytes are written again."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAck,
    MessagePropertiesHeader,
    MessageView,
    OrderAck,
    Ping,
    QueueField,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
    decode_packet,
)
from postroad.wire.constants import INFINITE, FormatType, QueueCode
from postroad.wire.headers import (
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    ProviderInfo,
    SecurityHeader,
    SoapHeader,
)
from postroad.wire.internal import InternalHeader
from postroad.wire.ordering import order_queue
from tests.frames import (
    EVERY_HEADER,
    FINAL_ACK,
    FRAME_1,
    FRAME_2,
    FRAME_3,
    FRAME_4,
    FRAME_5,
    FRAME_6,
    ORDER_ACK,
    PINGS,
    SESSION_PACKETS,
)
from tests.vectors import FRAME_7, FRAME_8, V1, V2

# The GUIDs of the capture as in the bytes: the text of the document prints them in the other order.
CLIENT = UUID("557358d1-9150-9595-4997-b6e611ea26c6")
SERVER = UUID("43cd8907-394c-8f11-4445-9078909ea0fc")

SOURCE = UUID("11223344-5566-7788-99aa-bbccddeeff00")
ADDRESS = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
PUBLIC = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")


def test_frames_1_and_2_are_pings() -> None:
    assert Ping.decode(FRAME_1) == Ping(4, CLIENT, 0x7D01)
    assert Ping.decode(FRAME_2) == Ping(4, SERVER, 0xB295)


@pytest.mark.parametrize(
    ("frame", "client", "server", "reserved"),
    [
        (FRAME_3, CLIENT, SERVER, 0xC0),
        (
            FRAME_4,
            UUID("1f742305-be5e-4177-bc77-c4dd7719e474"),
            UUID("3c3a6aeb-f567-4143-87d3-85cf4d68ceb4"),
            0x5A,
        ),
    ],
)
def test_frames_3_and_4_establish_a_connection(frame: bytes, client: UUID, server: UUID, reserved: int) -> None:
    packet = decode_packet(frame)
    assert packet == EstablishConnection(client, server, 501_140_046, 0x0310, priority=3)
    assert isinstance(packet, EstablishConnection)
    assert packet.base == BaseHeader(0x000B, 572, INFINITE, reserved)
    assert packet.internal == InternalHeader(0x0002)
    assert not packet.refused
    assert packet.reserved == 0
    assert packet.padding == b"\x5a" * 512


def test_frame_4_is_what_we_would_answer() -> None:
    request = decode_packet(FRAME_4)
    assert isinstance(request, EstablishConnection)
    assert request.response(request.server_guid).encode() == FRAME_4


@pytest.mark.parametrize("frame", [FRAME_5, FRAME_6])
def test_frames_5_and_6_are_connection_parameters(frame: bytes) -> None:
    packet = decode_packet(frame)
    assert packet == ConnectionParameters(1496, 120_000, 64, priority=3)
    assert isinstance(packet, ConnectionParameters)
    assert packet.base == BaseHeader(0x000B, 32, INFINITE, 0xC0)
    assert packet.internal == InternalHeader(0x0003)
    assert packet.reserved == 0


def test_frame_7_is_an_express_message() -> None:
    assert len(FRAME_7) == 2224
    assert UserMessage.decode(FRAME_7) == UserMessage(
        BaseHeader(0x0003, 2224, 0x00054600),
        UserHeader(
            CLIENT,
            0x000008EE,
            QueueField(QueueCode.DIRECT, direct_name="OS:a04bm02\\q"),
            sent_time=0x524F494C,
            flags=0x00281C00,
        ),
        MessagePropertiesHeader(
            b"a\0" * 1000,
            "mqsender label",
            flags=0x0F,
            body_type=8,
            message_size=2000,
        ),
        security=SecurityHeader(
            0x0001, bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"), padding=b""
        ),
    )
    view = MessageView(FRAME_7)
    assert (view.priority, view.recoverable, view.transactional, view.encrypted) == (3, False, False, False)
    assert view.body.decode("utf-16-le") == "a" * 1000


def test_frame_8_is_a_session_ack() -> None:
    packet = decode_packet(FRAME_8)
    assert packet == SessionAck(SessionHeader(ack_sequence_number=1, window_size=64), priority=3)
    assert isinstance(packet, SessionAck)
    assert packet.base == BaseHeader(0x001B, 36, INFINITE, 0xCD)
    assert packet.internal == InternalHeader(0x0001)


def test_v1_is_an_express_message_with_an_administration_queue() -> None:
    assert UserMessage.decode(V1) == UserMessage(
        BaseHeader(0x0003, 152, 0x00054600),
        UserHeader(
            SOURCE,
            1,
            QueueField(QueueCode.PRIVATE_ON_DESTINATION, 4),
            ADDRESS,
            sent_time=0x65000000,
            flags=0x0021EC00,
            admin_queue=QueueField(QueueCode.DIRECT, direct_name="OS:hh\\a"),
            response_queue=QueueField(QueueCode.SAME_AS_ADMIN),
        ),
        MessagePropertiesHeader(b"abc", "t", flags=5, message_size=3),
    )


def test_v2_is_a_transactional_message_with_a_session_header() -> None:
    assert UserMessage.decode(V2) == UserMessage(
        BaseHeader(0x0010, 156),
        UserHeader(
            SOURCE, 1, QueueField(QueueCode.PUBLIC, guid=PUBLIC), ADDRESS, sent_time=0x65000000, flags=0x00301420
        ),
        MessagePropertiesHeader(message_size=0),
        TransactionHeader(TxSequenceId(7, 9), 1, 0, 0x0012345C),
        session=SessionHeader(3, 1, 5, 2, 2, 64),
    )
    transaction = MessageView(V2).transaction_header
    assert transaction is not None
    assert transaction.first_in_transaction
    assert transaction.last_in_transaction
    assert not transaction.final_ack_required
    assert transaction.transaction_id == 0x12345


@pytest.mark.spec("QB-2.2-02")
def test_every_header_of_a_user_message() -> None:
    guid = UUID(bytes_le=bytes(range(0xF0, 0x100)))
    message = UserMessage.decode(EVERY_HEADER)
    assert message.base == BaseHeader(0x0130, 448, 0x00054600, 0xEE)
    assert message.user == UserHeader(
        SOURCE,
        6,
        QueueField(QueueCode.DIRECT, direct_name="TCP:1\\q"),
        ADDRESS,
        time_to_be_received=3600,
        sent_time=0x65000000,
        flags=0x11FCDFA2,
        admin_queue=QueueField(QueueCode.PRIVATE_ON_OTHER, 9, UUID(bytes_le=bytes(range(0xB0, 0xC0)))),
        response_queue=QueueField(QueueCode.PRIVATE_ON_ADMIN, 10),
        connector_type=UUID(bytes_le=bytes(range(0xC0, 0xD0))),
    )
    assert message.transaction == TransactionHeader(
        TxSequenceId(7, 9), 2, 1, 0x0012345F, UUID(bytes_le=bytes(range(0xD0, 0xE0)))
    )
    assert message.security == SecurityHeader(
        0x0381,
        bytes.fromhex("010100000000000100000000"),
        signature=b"QRSTU",
        sender_certificate=b"\xc1\xc2\xc3",
        provider_info=ProviderInfo(1, "p").encode(),
    )
    assert message.properties == MessagePropertiesHeader(
        b"boy",
        "L",
        b"\xe1\xe2",
        flags=5,
        correlation_id=bytes(range(1, 21)),
        body_type=17,
        application_tag=0x12345678,
        hash_algorithm=0x800E,
        encryption_algorithm=0x6610,
        message_size=3,
    )
    assert message.debug == DebugHeader(UUID(bytes_le=bytes(range(0xE0, 0xF0))), 1)
    assert message.soap == SoapHeader("<", "<>")
    assert message.multi_queue == MultiQueueFormatHeader(
        AddressHeader(
            (
                FormatNameElement(FormatType.DIRECT, direct_name="a"),
                FormatNameElement(FormatType.PUBLIC, guid),
                FormatNameElement(FormatType.PRIVATE, guid, 11),
                FormatNameElement(FormatType.DISTRIBUTION_LIST, guid),
            )
        ),
        AddressHeader((FormatNameElement(FormatType.DIRECT, direct_name="b"),)),
        AddressHeader(),
        b"\xaa\xbb\xcc",
    )
    assert message.session == SessionHeader(3, 1, 5, 2, 2, 64)
    assert message.encode() == EVERY_HEADER


@pytest.mark.spec("QB-2.2-01")
def test_numbers_are_little_endian_and_guids_in_packet_form() -> None:
    guid = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    packed = bytes.fromhex("0403020106050807090a0b0c0d0e0f10")
    establish = EstablishConnection(guid, guid, 0x01020304, 0x0210)
    assert establish.encode()[8:12] == bytes.fromhex("3c020000")
    assert establish.encode()[18:60] == bytes.fromhex("0200") + packed + packed + bytes.fromhex("0403020110020000")
    parameters = ConnectionParameters(0x0304, 0x010203, 0x0405)
    assert parameters.encode()[20:] == bytes.fromhex("04030000" + "03020100" + "0000" + "0504")
    session = SessionHeader(0x0102, 0x0304, 0x05060708, 0x090A, 0x0B0C, 0x0D0E)
    assert session.encode() == bytes.fromhex("02010403080706050a090c0b0e0d0000")
    assert Ping(0x01020304, guid, 0x0506).encode() == bytes.fromhex("0605485504030201") + packed
    message = UserMessage(
        BaseHeader(0x0005, time_to_reach_queue=0x01020304),
        UserHeader(
            guid, 0x05060708, QueueField(QueueCode.PRIVATE_ON_DESTINATION, 0x090A0B0C), guid, 0x0D0E0F10, 2, flags=0x20
        ),
        MessagePropertiesHeader(message_class=0x1122, body_type=0x33445566, application_tag=0x778899AA),
        TransactionHeader(TxSequenceId(0x01020304, 0x05060708), 0x090A0B0C, 0x0D0E0F10),
        session=session,
    ).encode()
    assert message[2:16] == bytes.fromhex("1500" + "4c494f52" + "90000000" + "04030201")
    assert message[16:68] == packed + packed + bytes.fromhex(
        "100f0e0d" + "02000000" + "08070605" + "200c3000" + "0c0b0a09"
    )
    assert message[68:88] == bytes.fromhex("00000000" + "04030201" + "08070605" + "0c0b0a09" + "100f0e0d")
    assert message[90:92] == bytes.fromhex("2211")
    assert message[112:120] == bytes.fromhex("66554433" + "aa998877")
    acknowledged = FinalAck(
        source_queue_manager=guid,
        message_id=1,
        sent_time=2,
        destination_queue=order_queue(),
        sequence_id=TxSequenceId(0x01020304, 0x05060708),
        sequence_number=0x090A0B0C,
        previous_sequence_number=0x0D0E0F10,
        final_class=0x4000,
        source_guid=guid,
        acknowledged_message_id=0x11121314,
    ).encode()
    assert acknowledged[-36:] == bytes.fromhex("04030201080706050c0b0a09100f0e0d") + packed + bytes.fromhex("14131211")


@pytest.mark.parametrize("frame", PINGS)
def test_pings_are_written_as_they_were_read(frame: bytes) -> None:
    assert Ping.decode(frame).encode() == frame


@pytest.mark.parametrize("frame", SESSION_PACKETS)
def test_packets_are_written_as_they_were_read(frame: bytes) -> None:
    packet = decode_packet(frame)
    encoded = UserMessage.of(packet).encode() if isinstance(packet, MessageView) else packet.encode()
    assert encoded == frame


def test_acknowledgments_are_user_messages_too() -> None:
    assert isinstance(decode_packet(ORDER_ACK), OrderAck)
    assert isinstance(decode_packet(FINAL_ACK), FinalAck)
    for frame in (ORDER_ACK, FINAL_ACK):
        assert UserMessage.decode(frame).encode() == frame
