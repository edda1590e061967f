"""Properties of the whole codec: what is read can be written again, and no bytes break anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.errors import RemoteProtocolError
from postroad.wire import (
    BaseHeader,
    EstablishConnection,
    FinalAck,
    Framer,
    MessageView,
    OrderAck,
    Ping,
    QueueField,
    UserMessage,
    body_text,
    decode_packet,
)
from postroad.wire.constants import BaseFlags, TransactionFlags, UserFlags
from postroad.wire.framer import MAX_BUFFERED
from postroad.wire.headers import ProviderInfo
from postroad.wire.internal import InternalPacket
from postroad.wire.records import (
    PublicKeyBlob,
    SequenceInfo,
    SimpleBlob,
    TaAddress,
    UserSignCertificate,
    decode_addresses,
    decode_multicast_id,
    decode_public_keys,
    decode_user_certificates,
    encode_public_keys,
    encode_user_certificates,
)
from postroad.wire.variants import PropVariant
from tests.frames import PINGS, SESSION_PACKETS
from tests.strategies import (
    damaged,
    damaged_packets,
    destination_queues,
    internal_packets,
    ordering_acks,
    packets,
    padding,
    pings,
    public_key_blobs,
    simple_blobs,
    texts,
    u16,
    u32,
    user_messages,
)
from tests.vectors import V1

PROPERTIES = sorted(
    name
    for name, member in inspect.getmembers(MessageView)
    if isinstance(member, property)
    or (inspect.ismemberdescriptor(member) and not name.startswith("_") and name != "data")
)

# What the view says, and where the same thing stands among the eager headers.
EAGER: dict[str, Callable[[UserMessage], object]] = {
    "base_flags": lambda m: m.base.flags,
    "packet_size": lambda m: m.base.packet_size,
    "has_security": lambda m: m.security is not None,
    "priority": lambda m: m.base.priority,
    "tracing": lambda m: bool(m.base.flags & BaseFlags.TRACING),
    "time_to_reach_queue": lambda m: m.base.time_to_reach_queue,
    "source_queue_manager": lambda m: m.user.source_queue_manager,
    "source_queue_manager_bytes": lambda m: m.user.source_queue_manager.bytes_le,
    "queue_manager_address": lambda m: m.user.queue_manager_address,
    "queue_manager_address_bytes": lambda m: m.user.queue_manager_address.bytes_le,
    "time_to_be_received": lambda m: m.user.time_to_be_received,
    "sent_time": lambda m: m.user.sent_time,
    "message_id": lambda m: m.user.message_id,
    "identifier": lambda m: m.user.source_queue_manager.bytes_le + m.user.message_id.to_bytes(4, "little"),
    "user_flags": lambda m: m.user.flags,
    "recoverable": lambda m: m.user.flags & UserFlags.DELIVERY == 0x20,
    "hop_count": lambda m: m.user.flags & UserFlags.HOP_COUNT,
    "negative_journaling": lambda m: bool(m.user.flags & UserFlags.NEGATIVE_JOURNALING),
    "positive_journaling": lambda m: bool(m.user.flags & UserFlags.POSITIVE_JOURNALING),
    "arrived_by_http": lambda m: bool(m.user.flags & UserFlags.ARRIVED_BY_HTTP),
    "destination_queue": lambda m: m.user.destination_queue,
    "admin_queue": lambda m: m.user.admin_queue,
    "response_queue": lambda m: m.user.response_queue,
    "connector_type": lambda m: m.user.connector_type,
    "transactional": lambda m: m.transaction is not None,
    "transaction_header": lambda m: m.transaction,
    "transaction_fields": lambda m: (
        m.transaction
        and (
            m.transaction.flags,
            m.transaction.sequence_id.ordinal,
            m.transaction.sequence_id.time_stamp,
            m.transaction.sequence_number,
            m.transaction.previous_sequence_number,
        )
    ),
    "security_header": lambda m: m.security,
    "encrypted": lambda m: m.security is not None and m.security.encrypted_body,
    "signed": lambda m: m.security is not None and bool(m.security.signature),
    "ack_flags": lambda m: m.properties.flags,
    "message_class": lambda m: m.properties.message_class,
    "correlation_id": lambda m: m.properties.correlation_id,
    "body_type": lambda m: m.properties.body_type,
    "application_tag": lambda m: m.properties.application_tag,
    "message_size": lambda m: m.properties.message_size,
    "privacy_level": lambda m: m.properties.privacy_level,
    "hash_algorithm": lambda m: m.properties.hash_algorithm,
    "encryption_algorithm": lambda m: m.properties.encryption_algorithm,
    "label": lambda m: m.properties.label,
    "extension": lambda m: m.properties.extension,
    "body": lambda m: (
        m.properties.body
        if m.security is not None and m.security.encrypted_body
        else m.properties.body[: m.properties.message_size]
    ),
    "debug_header": lambda m: m.debug,
    "soap_header": lambda m: m.soap,
    "multi_queue_header": lambda m: m.multi_queue,
    "session_header": lambda m: m.session,
}


def result(decode: Callable[[bytes], object], data: bytes) -> object:
    """The result of a decoder. None if it refuses the bytes. Any other error passes through."""
    try:
        return decode(data)
    except RemoteProtocolError as error:
        offset = error.offset
    assert offset is None or 0 <= offset <= len(data)
    return None


def encoded(packet: object) -> bytes:
    if isinstance(packet, MessageView):
        return UserMessage.of(packet).encode()
    assert isinstance(packet, InternalPacket | OrderAck | FinalAck)
    return packet.encode()


# What is read can be written again


@given(user_messages)
def test_a_user_message_is_written_as_it_was_read(message: UserMessage) -> None:
    data = message.encode()
    assert UserMessage.of(MessageView(data)).encode() == data


@given(user_messages)
def test_a_user_message_is_read_as_it_was_built(message: UserMessage) -> None:
    """All but the sizes and the presence flags, which follow from the rest."""
    read = UserMessage.decode(message.encode())
    presence = BaseFlags.SESSION_HEADER | BaseFlags.DEBUG_HEADER | BaseFlags.INTERNAL
    assert read.base.flags & ~presence == message.base.flags & ~presence
    assert replace(read.base, flags=0, packet_size=0) == replace(message.base, flags=0, packet_size=0)
    assert replace(read.user, flags=0) == replace(message.user, flags=0)
    derived = UserFlags.RESERVED | UserFlags.HOP_COUNT | UserFlags.DELIVERY | UserFlags.ARRIVED_BY_HTTP
    assert read.user.flags & derived == message.user.flags & derived
    assert read.properties == message.properties
    assert (read.transaction is None) == (message.transaction is None)
    if read.transaction is not None and message.transaction is not None:
        flags = read.transaction.flags & ~TransactionFlags.CONNECTOR_QM_GUID
        assert replace(read.transaction, flags=flags) == message.transaction
    assert read.security == message.security
    assert (read.debug is None) == (message.debug is None)
    if read.debug is not None and message.debug is not None:
        assert read.debug.queue_identifier == message.debug.queue_identifier
        assert (read.debug.flags & ~3, read.debug.reserved) == (message.debug.flags, message.debug.reserved)
    assert read.soap == message.soap
    assert read.session == message.session
    # A list with aligned public names may look exactly like one without. Its bytes survive, but its meaning is a guess.
    if message.multi_queue is None:
        assert read.multi_queue is None
    elif read.multi_queue is not None and not _has_aligned_names(message):
        assert read.multi_queue == message.multi_queue


def _has_aligned_names(message: UserMessage) -> bool:
    lists = message.multi_queue
    return lists is not None and any(a.align_public for a in (lists.destination, lists.administration, lists.response))


def test_every_property_of_the_view_is_compared() -> None:
    assert sorted([*EAGER, "destination_bytes", "dead_letter_queue", "local_sender"]) == PROPERTIES


@given(user_messages)
def test_the_view_says_what_the_headers_say(message: UserMessage) -> None:
    data = message.encode()
    view, eager = MessageView(data), UserMessage.decode(data)
    for name, of_eager in EAGER.items():
        assert getattr(view, name) == of_eager(eager), name


@given(destination_queues, destination_queues, user_messages, padding, padding)
def test_destination_bytes_are_the_destination(
    one: QueueField, other: QueueField, message: UserMessage, some_padding: bytes, other_padding: bytes
) -> None:
    def destination_bytes(queue: QueueField, message: UserMessage, padding: bytes) -> bytes:
        user = replace(message.user, destination_queue=queue, padding=padding)
        return MessageView(replace(message, user=user).encode()).destination_bytes

    same = destination_bytes(one, UserMessage.decode(V1), some_padding)
    assert destination_bytes(one, message, other_padding) == same
    assert (destination_bytes(other, message, some_padding) == same) == (one == other)


@given(internal_packets)
def test_an_internal_packet_is_read_as_it_was_written(packet: InternalPacket) -> None:
    data = packet.encode()
    read = decode_packet(data)
    assert read == packet
    assert encoded(read) == data


@given(ordering_acks)
def test_an_ordering_ack_is_read_as_it_was_written(ack: OrderAck | FinalAck) -> None:
    data = ack.encode()
    read = decode_packet(data)
    assert read == ack
    assert encoded(read) == data
    assert UserMessage.decode(data).encode() == data


@given(pings)
def test_a_ping_is_read_as_it_was_written(ping: Ping) -> None:
    assert Ping.decode(ping.encode()) == ping


@given(public_key_blobs)
def test_a_public_key_is_read_as_it_was_written(blob: PublicKeyBlob) -> None:
    assert PublicKeyBlob.decode(blob.encode()) == blob


@given(simple_blobs)
def test_a_session_key_is_read_as_it_was_written(blob: SimpleBlob) -> None:
    assert SimpleBlob.decode(blob.encode()) == blob


@given(st.builds(ProviderInfo, u32, texts()))
def test_a_provider_is_read_as_it_was_written(provider: ProviderInfo) -> None:
    assert ProviderInfo.decode(provider.encode()) == provider


# No bytes break anything

any_bytes = st.one_of(st.binary(max_size=400), damaged_packets, packets)


@given(any_bytes)
def test_any_bytes_are_a_packet_or_a_protocol_error(data: bytes) -> None:
    packet = result(decode_packet, data)
    view = result(MessageView, data)
    message = result(UserMessage.decode, data)
    result(BaseHeader.decode, data)
    # The lazy and the eager reader accept the same packets.
    assert (view is None) == (message is None)
    if packet is not None:
        assert isinstance(packet, InternalPacket) or view is not None


@given(any_bytes)
@example(bytes.fromhex("100000004c494f5240000000") + bytes(48) + bytes.fromhex("20003200"))  # it ends within a name
def test_whatever_a_view_accepts_is_written_again(data: bytes) -> None:
    view = result(MessageView, data)
    if isinstance(view, MessageView):
        assert UserMessage.of(view).encode() == data


@given(any_bytes)
def test_no_property_of_a_view_fails(data: bytes) -> None:
    view = result(MessageView, data)
    if isinstance(view, MessageView):
        for name in PROPERTIES:
            getattr(view, name)
        body_text(view.body, view.body_type)


@given(damaged(internal_packets.map(lambda packet: packet.encode()), base_header=True))
def test_a_damaged_internal_packet(data: bytes) -> None:
    packet = result(decode_packet, data)
    # The low byte of OperatingSystem is written as a constant, and ignored if a peer writes another.
    if isinstance(packet, EstablishConnection) and data[56] != 0x10:
        return
    if packet is not None:
        assert encoded(packet) == data


@given(st.one_of(st.binary(max_size=40), damaged(pings.map(Ping.encode)), st.sampled_from(PINGS)))
def test_any_bytes_are_a_ping_or_a_protocol_error(data: bytes) -> None:
    ping = result(Ping.decode, data)
    if isinstance(ping, Ping):
        assert ping.encode() == data


certificates = st.builds(UserSignCertificate, st.binary(min_size=16, max_size=16), st.uuids(), st.binary(max_size=40))


@given(
    st.one_of(
        st.binary(max_size=200),
        damaged(public_key_blobs.map(PublicKeyBlob.encode)),
        damaged(simple_blobs.map(SimpleBlob.encode)),
    )
)
def test_any_bytes_are_a_key_or_a_protocol_error(data: bytes) -> None:
    for decode in (PublicKeyBlob.decode, SimpleBlob.decode):
        blob = result(decode, data)
        if isinstance(blob, PublicKeyBlob | SimpleBlob):
            assert blob.encode() == data
    result(ProviderInfo.decode, data)


@given(
    st.one_of(
        st.binary(max_size=200),
        damaged(st.lists(certificates, max_size=3).map(encode_user_certificates)),
        damaged(st.lists(st.sampled_from(["01", "18"]), max_size=3).map(lambda kinds: _public_keys(kinds))),
        damaged(st.lists(u16, max_size=3).map(lambda numbers: _addresses(numbers))),
    )
)
def test_any_bytes_are_a_record_or_a_protocol_error(data: bytes) -> None:
    keys = result(decode_public_keys, data)
    if isinstance(keys, tuple):
        assert encode_public_keys(keys) == data
    addresses = result(decode_addresses, data)
    if isinstance(addresses, tuple):
        assert b"".join(address.encode() for address in addresses if isinstance(address, TaAddress)) == data
    users = result(decode_user_certificates, data)
    if isinstance(users, tuple):
        assert encode_user_certificates(users) == data
    sequence = result(SequenceInfo.decode, data)
    if isinstance(sequence, SequenceInfo):
        assert sequence.encode() == data
    result(decode_multicast_id, data)
    result(PropVariant.decode, data)


def _public_keys(kinds: Iterable[str]) -> bytes:
    keys = [bytes.fromhex(f"0300000004000000{kind}000000") + b"p\0\0\0key" for kind in kinds]
    return (8 + sum(map(len, keys))).to_bytes(4, "little") + len(keys).to_bytes(4, "little") + b"".join(keys)


def _addresses(numbers: Iterable[int]) -> bytes:
    kinds = (("0400", "0100", 4), ("0a00", "0300", 10), ("1000", "0500", 16))
    chosen = [kinds[number % 3] for number in numbers]
    return b"".join(bytes.fromhex(size + code) + bytes(length) for size, code, length in chosen)


# A stream gives the same packets, however it is cut

streams = st.one_of(
    st.lists(packets, max_size=5).map(b"".join),
    st.lists(st.one_of(packets, damaged_packets), max_size=5).map(b"".join),
    st.builds(lambda whole, rest: b"".join(whole) + rest, st.lists(st.sampled_from(SESSION_PACKETS)), st.binary()),
)


def fed(chunks: Iterable[bytes]) -> tuple[list[bytes], str | None, int, int]:
    framer = Framer()
    found: list[bytes] = []
    for chunk in chunks:
        found += framer.feed(chunk)
        assert framer.buffered < MAX_BUFFERED
    return found, None if framer.error is None else str(framer.error), framer.position, framer.buffered


@given(streams, st.lists(st.integers(0, 4000)))
@example(b"".join(SESSION_PACKETS) + b"not a packet at all", [])
def test_a_stream_can_be_cut_anywhere(stream: bytes, cuts: list[int]) -> None:
    whole = fed([stream])
    assert fed(stream[at : at + 1] for at in range(len(stream))) == whole
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert fed(stream[start:stop] for start, stop in pairwise(places)) == whole
    found, error, position, buffered = whole
    assert b"".join(found) == stream[:position]
    assert buffered == (0 if error else len(stream) - position)


@given(st.lists(packets, min_size=1, max_size=5))
def test_a_stream_of_packets_gives_those_packets(sent: list[bytes]) -> None:
    assert fed([b"".join(sent)]) == (sent, None, sum(map(len, sent)), 0)


@pytest.mark.parametrize("packet", SESSION_PACKETS)
def test_every_prefix_of_a_packet_is_refused(packet: bytes) -> None:
    for size in range(len(packet)):
        assert result(decode_packet, packet[:size]) is None
    assert result(decode_packet, packet + b"\0") is None
