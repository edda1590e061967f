"""Which packet is this? [MS-MQQB] 2.1.1 and 3.1.5.1.1: six kinds, told apart by flags, type, label, queue and class."""

from __future__ import annotations

from dataclasses import replace
from struct import pack_into
from uuid import UUID

import pytest

from postroad.errors import RemoteProtocolError
from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAck,
    Framer,
    MessageView,
    OrderAck,
    QueueField,
    SessionAck,
    UserMessage,
    decode_packet,
)
from postroad.wire.constants import INFINITE, QueueCode
from tests.frames import FINAL_ACK, FRAME_3, FRAME_4, FRAME_5, FRAME_6, ORDER_ACK, PINGS, SESSION_PACKETS
from tests.vectors import FRAME_7, FRAME_8, V1, V2

KINDS = (
    (FRAME_3, EstablishConnection),
    (FRAME_4, EstablishConnection),
    (FRAME_5, ConnectionParameters),
    (FRAME_6, ConnectionParameters),
    (FRAME_7, MessageView),
    (FRAME_8, SessionAck),
    (V1, MessageView),
    (V2, MessageView),
    (ORDER_ACK, OrderAck),
    (FINAL_ACK, FinalAck),
)
OTHER_QUEUES = (
    QueueField(QueueCode.PRIVATE_ON_DESTINATION, 3),
    QueueField(QueueCode.PUBLIC, guid=UUID(int=4)),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\PRIVATE$\\orders"),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\PRIVATE$\\order_queue$;journal"),
)
ORDER_QUEUES = (
    QueueField(QueueCode.PRIVATE_ON_DESTINATION, 4),
    QueueField(QueueCode.DIRECT, direct_name="TCP:10.0.0.5\\PRIVATE$\\order_queue$"),
    QueueField(QueueCode.DIRECT, direct_name="OS:alpha\\private$\\Order_Queue$"),
)


def patched(packet: bytes, offset: int, value: int, layout: str = "<H") -> bytes:
    data = bytearray(packet)
    pack_into(layout, data, offset, value)
    return bytes(data)


def changed(packet: bytes, **properties: object) -> bytes:
    """The same user message with other fields in its MessagePropertiesHeader."""
    message = UserMessage.decode(packet)
    return replace(message, properties=replace(message.properties, **properties)).encode()  # type: ignore[arg-type]


def sent_to(packet: bytes, queue: QueueField) -> bytes:
    message = UserMessage.decode(packet)
    return replace(message, user=replace(message.user, destination_queue=queue)).encode()


@pytest.mark.spec("QB-2.1.1-01")
@pytest.mark.parametrize("packet", SESSION_PACKETS)
def test_every_packet_starts_with_a_base_header(packet: bytes) -> None:
    decoded = decode_packet(packet)
    encoded = UserMessage.of(decoded).encode() if isinstance(decoded, MessageView) else decoded.encode()
    assert encoded[0] == 0x10
    assert encoded[4:8] == b"LIOR"
    header = BaseHeader.decode(encoded[:16])
    assert bool(header.flags & 0x0008) == isinstance(decoded, EstablishConnection | ConnectionParameters | SessionAck)
    behind = 16 if isinstance(decoded, MessageView) and decoded.session_header else 0
    assert header.packet_size + behind == len(encoded)
    for short in (b"", packet[:2], packet[:15]):
        with pytest.raises(RemoteProtocolError):
            decode_packet(short)


@pytest.mark.spec("QB-2.1.1-02")
@pytest.mark.parametrize(("packet", "kind"), KINDS)
def test_six_kinds_of_packets(packet: bytes, kind: type) -> None:
    assert type(decode_packet(packet)) is kind


@pytest.mark.spec("QB-2.1.1-02")
@pytest.mark.parametrize("ping", PINGS)
def test_a_ping_is_not_a_packet_of_a_session(ping: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_packet(ping)
    framer = Framer()
    assert framer.feed(ping) == []
    assert framer.error is not None


@pytest.mark.spec("QB-3.1.5.1.1-01")
def test_in_and_pt_tell_establish_connection_from_connection_parameters() -> None:
    # The type decides. Each type has its own size, so the body of the other one does not fit.
    with pytest.raises(RemoteProtocolError, match="ConnectionParameters must have 32 bytes"):
        decode_packet(patched(FRAME_3, 18, 3))
    with pytest.raises(RemoteProtocolError, match="EstablishConnection must have 572 bytes"):
        decode_packet(patched(FRAME_5, 18, 2))
    # Without IN the same bytes count as a UserMessage, which they are not.
    for packet in (FRAME_3, FRAME_5):
        with pytest.raises(RemoteProtocolError):
            decode_packet(patched(packet, 2, 0x0003))


@pytest.mark.spec("QB-3.1.5.1.1-02")
def test_a_session_ack_needs_in_and_sh_and_type_1() -> None:
    assert isinstance(decode_packet(FRAME_8), SessionAck)
    with pytest.raises(RemoteProtocolError, match="SessionAck must have the flags 0x0018") as caught:
        decode_packet(patched(FRAME_8, 2, 0x000B))
    assert caught.value.offset == 2
    with pytest.raises(RemoteProtocolError):
        decode_packet(patched(FRAME_8, 2, 0x0013))
    with pytest.raises(RemoteProtocolError, match="ConnectionParameters must have 32 bytes"):
        decode_packet(patched(FRAME_8, 18, 3))


@pytest.mark.spec("QB-3.1.5.1.1-03")
def test_an_order_ack_has_five_marks() -> None:
    for queue in ORDER_QUEUES:
        assert isinstance(decode_packet(sent_to(ORDER_ACK, queue)), OrderAck)
    body = UserMessage.decode(ORDER_ACK).properties.body
    others = {
        "priority 1": patched(ORDER_ACK, 2, 0x0001),
        "a reserved bit": patched(ORDER_ACK, 2, 0x8000),
        "another label": changed(ORDER_ACK, label="QM Ordering Nak"),
        "no label": changed(ORDER_ACK, label=""),
        "a shorter body": changed(ORDER_ACK, body=body[:-1], message_size=None),
        "a longer body": changed(ORDER_ACK, body=body + b"\0", message_size=None),
        "class 0x00fe": changed(ORDER_ACK, message_class=0x00FE),
        "class 0": changed(ORDER_ACK, message_class=0),
    } | {str(queue): sent_to(ORDER_ACK, queue) for queue in OTHER_QUEUES}
    for change, packet in others.items():
        assert isinstance(decode_packet(packet), MessageView), change


@pytest.mark.spec("QB-3.1.5.1.1-04")
def test_a_final_ack_has_four_marks() -> None:
    for queue in ORDER_QUEUES:
        assert isinstance(decode_packet(sent_to(FINAL_ACK, queue)), FinalAck)
    for message_class in (0x4000, 0x8000, 0xC002, 0xFFFF):
        assert isinstance(decode_packet(changed(FINAL_ACK, message_class=message_class)), FinalAck)
    others = {
        "class 0x3fff": changed(FINAL_ACK, message_class=0x3FFF),
        "class 0": changed(FINAL_ACK, message_class=0),
        "priority 1": patched(FINAL_ACK, 2, 0x0001),
        "another label": changed(FINAL_ACK, label="qm ordering ack"),
    } | {str(queue): sent_to(FINAL_ACK, queue) for queue in OTHER_QUEUES}
    for change, packet in others.items():
        assert isinstance(decode_packet(packet), MessageView), change


@pytest.mark.spec("QB-3.1.5.1.1-05")
@pytest.mark.parametrize("message_class", [0x0000, 0x0001, 0x0002, 0x00FF, 0x4000, 0x8000, 0xC004, 0x7777])
@pytest.mark.parametrize("packet", [FRAME_7, V1, V2])
def test_a_user_message_is_one_whatever_its_class(packet: bytes, message_class: int) -> None:
    view = decode_packet(changed(packet, message_class=message_class))
    assert isinstance(view, MessageView)
    assert view.message_class == message_class
    assert not view.base_flags & 0x0008


def test_an_internal_packet_has_no_debug_header() -> None:
    with pytest.raises(RemoteProtocolError, match="an internal packet must not have a DebugHeader"):
        decode_packet(patched(FRAME_5, 2, 0x002B))


def test_a_base_header_cut_off() -> None:
    assert BaseHeader.decode(FRAME_5) == BaseHeader(0x000B, 32, INFINITE, 0xC0)
    with pytest.raises(RemoteProtocolError, match="a BaseHeader must have 16 bytes, got 15"):
        BaseHeader.decode(FRAME_5[:15])
    with pytest.raises(RemoteProtocolError, match="InternalHeader is cut off"):
        decode_packet(patched(FRAME_5[:18] + FRAME_5[18:19], 8, 19, "<I"))
