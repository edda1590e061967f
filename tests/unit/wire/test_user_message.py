"""The UserMessage packet as a whole, [MS-MQMQ] 2.2.20: which headers it has, in which order, and where."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire import (
    MessagePropertiesHeader,
    MessageView,
    QueueField,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
)
from postroad.wire.constants import BASE_HEADER_SIZE, MAX_PACKET_SIZE, FormatType, QueueCode
from postroad.wire.headers import (
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
)
from postroad.wire.octets import Writer
from tests.messages import FULL, PLAIN
from tests.packets import (
    OTHER,
    SOURCE,
    TAG,
    base_flags,
    by_hand,
    direct_name,
    properties,
    refusal,
    user_flags,
    utf16,
    with_bits,
)
from tests.vectors import FRAME_7, V1, V2

TRANSACTION = bytes.fromhex("5c341200 07000000 09000000 01000000 00000000")
SECURITY = bytes.fromhex("0000 0000 0000 0900 00000000 00000000") + b"signature\xbe\xbe\xbe"
PROPERTIES = properties("label", b"extension", b"body")
DEBUG = bytes.fromhex("01000000") + OTHER.bytes_le
SOAP = bytes.fromhex("20030000 02000000 3c000000 84030000 02000000 3e000000")
MULTI_QUEUE = (
    bytes.fromhex("14000000 64000000 01000000 0300")
    + utf16("ab")
    + bytes.fromhex("0c000000 c8000000 00000000 0c000000 2c010000 00000000 5e010000 00000000")
)
SESSION = bytes(range(16))

# Each optional header with the bit of UserHeader.Flags or BaseHeader.Flags that announces it.
USER_BITS = {"transaction": 1 << 20, "security": 1 << 19, "soap": 1 << 28, "multi_queue": 1 << 23}
BASE_BITS = {"debug": 1 << 5, "session": 1 << 4}
OPTIONAL = [*USER_BITS, *BASE_BITS]
WIRE = {
    "transaction": TRANSACTION,
    "security": SECURITY,
    "debug": DEBUG,
    "soap": SOAP,
    "multi_queue": MULTI_QUEUE,
    "session": SESSION,
}


def assembled(present: set[str], announced: set[str]) -> bytes:
    """A packet with some headers, and flags that announce some headers."""

    def part(*names: str) -> bytes:
        return b"".join(WIRE[name] for name in names if name in present)

    return by_hand(
        direct_name("OS:a"),
        7 << 10 | 0x20 | sum(bit for name, bit in USER_BITS.items() if name in announced),
        part("transaction", "security"),
        base_flags=sum(bit for name, bit in BASE_BITS.items() if name in announced),
        properties=PROPERTIES,
        trailers=part("debug", "soap", "multi_queue"),
        session=part("session"),
    )


EVERY_COMBINATION = [
    {name for name, is_present in zip(OPTIONAL, choice, strict=True) if is_present}
    for choice in product((False, True), repeat=len(OPTIONAL))
]


@pytest.mark.spec("MQ-2.2.20-01")
def test_the_order_of_the_headers() -> None:
    packet = assembled(set(OPTIONAL), set(OPTIONAL))
    parts = [TRANSACTION, SECURITY, PROPERTIES, DEBUG, SOAP, MULTI_QUEUE, SESSION]
    assert packet.endswith(b"".join(parts))
    message = UserMessage.decode(packet)
    assert message.properties.application_tag == TAG
    assert message.transaction is not None
    assert message.transaction.transaction_id == 0x12345
    assert message.security is not None
    assert message.security.signature == b"signature"
    assert message.debug is not None
    assert message.debug.queue_identifier == OTHER
    assert message.soap is not None
    assert (message.soap.header, message.soap.body) == ("<", ">")
    assert message.multi_queue is not None
    assert message.multi_queue.destination.elements[0].direct_name == "ab"
    assert message.session is not None
    assert message.session.encode() == SESSION
    assert message.encode() == packet


@pytest.mark.spec(
    "MQ-2.2.20-05",
    "MQ-2.2.20-06",
    "MQ-2.2.20-07",
    "MQ-2.2.19.2-32",
    "MQ-2.2.19.2-33",
    "MQ-2.2.19.2-40",
    "MQ-2.2.19.2-45",
)
@pytest.mark.parametrize("present", EVERY_COMBINATION, ids=lambda names: "+".join(sorted(names)) or "none")
def test_a_header_is_there_if_and_only_if_its_flag_is_set(present: set[str]) -> None:
    packet = assembled(present, present)
    view, message = MessageView(packet), UserMessage.decode(packet)
    for name in OPTIONAL:
        assert (getattr(message, name) is not None) == (name in present)
        assert (getattr(view, f"{name}_header") is not None) == (name in present)
        assert refusal(assembled(present, announced=present ^ {name}))
    assert message.encode() == packet


@pytest.mark.spec("MQ-2.2.20-05", "MQ-2.2.20-06", "MQ-2.2.20-07", "MQ-2.2.19.2-35")
@pytest.mark.parametrize("name", OPTIONAL)
def test_the_flags_follow_from_the_headers(name: str) -> None:
    full = replace(FULL, base=replace(FULL.base, flags=0))
    nothing: dict[str, Any] = {name: None}
    packet, without = full.encode(), replace(full, **nothing).encode()
    if name in USER_BITS:
        assert user_flags(packet) ^ user_flags(without) == USER_BITS[name]
        assert base_flags(packet) == base_flags(without)
    else:
        assert base_flags(packet) ^ base_flags(without) == BASE_BITS[name]
        assert user_flags(packet) == user_flags(without)
    assert user_flags(without) & 1 << 21


def test_flags_without_their_headers_are_not_written() -> None:
    flags = sum(USER_BITS.values()) | 1 << 22
    message = replace(PLAIN, base=replace(PLAIN.base, flags=0x0038), user=replace(PLAIN.user, flags=flags))
    assert base_flags(message.encode()) == 0
    assert user_flags(message.encode()) == 5 << 10 | 1 << 21
    assert MessageView(message.encode()).body == b"abc"


@pytest.mark.spec("MQ-2.2.20-02")
def test_every_message_has_its_three_headers() -> None:
    assert refusal(by_hand(properties=b"")).fault == "MessagePropertiesHeader is cut off"
    assert refusal(V1[:16])
    assert refusal(V1[:60])


@pytest.mark.spec("MQ-2.2.20-03")
@pytest.mark.parametrize("packet", [FRAME_7, V1, V2])
def test_a_user_message_is_no_internal_packet(packet: bytes) -> None:
    assert not base_flags(packet) & 0x0008
    odd = with_bits(packet, 2, 0x0008)
    assert refusal(odd).fault == "an internal packet is not a UserMessage"
    with pytest.raises(RemoteProtocolError):
        decode_packet(odd)
    assert not base_flags(replace(PLAIN, base=replace(PLAIN.base, flags=0x0008)).encode()) & 0x0008


@pytest.mark.spec("MQ-2.2.20-04")
def test_a_packet_holds_one_whole_message() -> None:
    for wrong in (V1 + V1, V1[:-4], V1 + bytes(4)):
        assert refusal(wrong).offset == 8
    with pytest.raises(LocalProtocolError, match="make the body smaller"):
        replace(PLAIN, properties=MessagePropertiesHeader(bytes(MAX_PACKET_SIZE))).encode()


@pytest.mark.spec("MQ-2.2.20-08")
def test_the_session_header_lies_beyond_packet_size() -> None:
    packet = FULL.encode()
    assert FULL.session is not None
    assert packet[MessageView(packet).packet_size :] == FULL.session.encode()
    assert len(packet) == MessageView(packet).packet_size + 16


@pytest.mark.spec("MQ-2.2.20-09")
@pytest.mark.parametrize("odd", range(4))
def test_every_header_starts_on_a_multiple_of_four(odd: int) -> None:
    queue = QueueField(QueueCode.DIRECT, direct_name="q" * odd)
    user = replace(FULL.user, destination_queue=queue)
    transaction = TransactionHeader(TxSequenceId(7, 9), 1, connector_qm_guid=OTHER)
    security = SecurityHeader(signature=b"s" * (8 + odd))
    body = replace(FULL.properties, body=b"b" * odd)
    soap = SoapHeader("h" * odd, "b" * odd)
    destinations = AddressHeader((FormatNameElement(FormatType.DIRECT, direct_name="d" * odd),))
    multi_queue = MultiQueueFormatHeader(destinations, signature=b"s" * odd)
    writer = Writer()
    writer.size = BASE_HEADER_SIZE
    for header in (user, transaction, security, body, DebugHeader(OTHER), soap, multi_queue):
        header.encode(writer)
        assert writer.size % 4 == 0
    message = UserMessage(FULL.base, user, body, transaction, security, DebugHeader(OTHER), soap, multi_queue)
    packet = message.encode()
    assert packet[64:] == writer.getvalue()[48:]
    assert UserMessage.decode(packet).encode() == packet


@pytest.mark.spec("MQ-2.2.20-09")
@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_packet_that_does_not_end_on_a_multiple_of_four_is_refused(missing: int) -> None:
    cut = by_hand(properties=properties(body=b"b")[:-missing])
    assert refusal(cut).fault == "label, extension and body are longer than the packet"


@pytest.mark.parametrize("packet", [FRAME_7, V1, V2, FULL.encode(), PLAIN.encode()])
def test_what_is_read_and_written_again_has_the_same_bytes(packet: bytes) -> None:
    assert UserMessage.decode(packet).encode() == packet


@pytest.mark.parametrize("packet", [FRAME_7, V1, V2, FULL.encode(), assembled(set(OPTIONAL), set(OPTIONAL))])
def test_a_packet_cut_short_anywhere_is_refused(packet: bytes) -> None:
    for size in [*range(min(len(packet), 600)), len(packet) - 1]:
        assert refusal(packet[:size])


def test_the_message_of_v1() -> None:
    view = MessageView(V1)
    assert view.priority == 3
    assert view.source_queue_manager == SOURCE
    assert view.message_id == 1
    assert view.destination_queue.number == 4
    assert view.admin_queue.direct_name == r"OS:hh\a"
    assert (view.label, view.body) == ("t", b"abc")
    assert view.ack_flags == 0x05
    assert not view.recoverable
    assert not view.transactional


def to_direct(name: str) -> bytes:
    destination = QueueField(QueueCode.DIRECT, direct_name=name)
    return replace(PLAIN, user=replace(PLAIN.user, destination_queue=destination)).encode()


def test_packets_to_several_queues_in_turn_keep_their_own_names() -> None:
    names = ["OS:a\\private$\\one", "OS:a\\private$\\two", "OS:a\\private$\\three", "OS:" + "long" * 300]
    for name in (*names, *names, names[0], names[0]):
        assert MessageView(to_direct(name)).destination_queue.direct_name == name


def test_a_name_that_the_last_packet_had_still_has_to_fit_its_own_packet() -> None:
    whole = to_direct("OS:a\\private$\\orders")
    MessageView(whole)
    end = 66 + len("OS:a\\private$\\orders\0") * 2
    end += -end % 4
    cut = bytearray(whole[:end])
    cut[2] |= 0x10  # a SessionHeader of 16 bytes follows, where the name is
    cut[8:12] = (end - 16).to_bytes(4, "little")
    with pytest.raises(RemoteProtocolError, match="longer than its packet"):
        MessageView(bytes(cut))
