"""The packets that open a session and acknowledge on it: InternalHeader, ConnectionParameters, EstablishConnection,
SessionAck ([MS-MQQB] 2.2.1 to 2.2.3, 2.2.6)."""

from __future__ import annotations

from dataclasses import replace
from struct import pack_into, unpack_from
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire import ConnectionParameters, EstablishConnection, SessionAck, SessionHeader, decode_packet
from postroad.wire.constants import OperatingSystemFlags, PacketType
from postroad.wire.internal import PLAIN_ACK, InternalHeader, InternalPacket
from postroad.wire.octets import NULL_GUID
from tests.frames import FRAME_3, FRAME_5
from tests.vectors import FRAME_8

CLIENT = UUID("11223344-5566-7788-99aa-bbccddeeff00")
SERVER = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")

ESTABLISH = EstablishConnection(CLIENT, SERVER, 0x0A0B0C0D)
PARAMETERS = ConnectionParameters(1496, 120_000, 64)
ACK = SessionAck(SessionHeader(1, 2, 3, 4, 5, 6))
PACKETS = (ESTABLISH, PARAMETERS, ACK)
DUMPS = (FRAME_3, FRAME_5, FRAME_8)


def patched(packet: bytes, offset: int, value: int, layout: str = "<H") -> bytes:
    data = bytearray(packet)
    pack_into(layout, data, offset, value)
    return bytes(data)


def u16(packet: bytes, offset: int) -> int:
    return int.from_bytes(packet[offset : offset + 2], "little")


# 2.2.1 InternalHeader


@pytest.mark.spec("QB-2.2.1-01")
def test_internal_header_is_reserved_then_flags() -> None:
    header = InternalHeader.decode(bytes(16) + bytes.fromhex("00000300"))
    assert (header.reserved, header.packet_type, header.refused) == (0, PacketType.CONNECTION_PARAMETERS, False)
    assert InternalHeader(flags=0x0003, reserved=0x0201).encode() == bytes.fromhex("01020300")


@pytest.mark.spec("QB-2.2.1-02", "QB-2.2.1-11")
@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: type(packet).__name__)
def test_reserved_parts_of_the_internal_header_are_sent_clear(packet: InternalPacket) -> None:
    encoded = packet.encode()
    assert u16(encoded, 16) == 0
    assert u16(encoded, 18) & 0xFFE0 == 0


@pytest.mark.spec("QB-2.2.1-03", "QB-2.2.1-12")
@pytest.mark.parametrize("dump", DUMPS, ids=("frame 3", "frame 5", "frame 8"))
def test_reserved_parts_of_the_internal_header_are_ignored(dump: bytes) -> None:
    noisy = patched(patched(dump, 16, 0xFFFF), 18, u16(dump, 18) | 0xFFE0)
    assert decode_packet(noisy) == decode_packet(dump)


@pytest.mark.spec("QB-2.2.1-04", "QB-2.2.1-07")
def test_flags_0x12_refuse_a_connection() -> None:
    accepted, refusing = decode_packet(FRAME_3), decode_packet(patched(FRAME_3, 18, 0x0012))
    assert isinstance(accepted, EstablishConnection)
    assert not accepted.refused
    assert refusing == replace(accepted, refused=True)
    assert u16(refusing.encode(), 18) == 0x0012
    assert u16(replace(PARAMETERS, refused=True).encode(), 18) == 0x0013


@pytest.mark.spec("QB-2.2.1-05")
@pytest.mark.parametrize("packet_type", [0, *range(4, 16)])
def test_no_other_packet_type_is_written_or_read(packet_type: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"internal packet type {packet_type} is not defined"):
        InternalHeader(packet_type).encode()
    with pytest.raises(RemoteProtocolError, match=f"internal packet type {packet_type} is not defined") as caught:
        decode_packet(patched(FRAME_5, 18, packet_type))
    assert caught.value.offset == 18


@pytest.mark.spec("QB-2.2.1-05")
@pytest.mark.parametrize(("packet", "packet_type"), [(ESTABLISH, 2), (PARAMETERS, 3), (ACK, 1)])
def test_each_packet_carries_its_own_type(packet: InternalPacket, packet_type: int) -> None:
    assert u16(packet.encode(), 18) & 0x000F == packet_type


@pytest.mark.spec("QB-2.2.1-08")
def test_a_session_ack_never_refuses() -> None:
    assert u16(ACK.encode(), 18) & 0x0010 == 0
    with pytest.raises(LocalProtocolError, match="SessionAck"):
        SessionAck(SessionHeader(), refused=True).encode()
    with pytest.raises(RemoteProtocolError, match="a SessionAck must not refuse a connection"):
        decode_packet(patched(FRAME_8, 18, 0x0011))


@pytest.mark.parametrize("dump", DUMPS, ids=("frame 3", "frame 5", "frame 8"))
@pytest.mark.parametrize("by", [-4, 4])
def test_the_size_of_an_internal_packet_is_fixed(dump: bytes, by: int) -> None:
    size = len(dump) + by
    resized = patched(dump, 8, size, "<I").ljust(size, b"\0")[:size]
    with pytest.raises(RemoteProtocolError, match=f"must have {len(dump)} bytes"):
        decode_packet(resized)
    with pytest.raises(RemoteProtocolError, match=f"got {len(dump) + 1} and"):
        decode_packet(dump + b"\0")


# 2.2.2 ConnectionParameters


@pytest.mark.spec("QB-2.2.2-01", "QB-2.2.2-02")
def test_connection_parameters_are_32_bytes() -> None:
    encoded = PARAMETERS.encode()
    assert len(encoded) == 32
    assert unpack_from("<I", encoded, 8) == (0x20,)
    assert u16(encoded, 2) & 0x0008
    assert u16(encoded, 18) & 0x000F == 3


@pytest.mark.spec("QB-2.2.2.1-01")
def test_connection_parameters_layout() -> None:
    header = bytes.fromhex("d8050000c0d4010000004000")
    assert FRAME_5[20:] == header
    assert decode_packet(FRAME_5) == replace(PARAMETERS, priority=3)
    assert ConnectionParameters(1496, 120_000, 64).encode()[20:] == header


@pytest.mark.spec("QB-2.2.2.1-02")
def test_recoverable_ack_timeout_is_500_to_120000_ms() -> None:
    for inside in (500, 120_000):
        encoded = ConnectionParameters(inside, 120_000, 64).encode()
        assert unpack_from("<I", encoded, 20) == (inside,)
        assert decode_packet(encoded) == ConnectionParameters(inside, 120_000, 64)
    for outside in (0, 499, 120_001, 0xFFFFFFFF):
        with pytest.raises(
            RemoteProtocolError, match=f"RecoverableAckTimeout must be between .* ms, got {outside}"
        ) as caught:
            decode_packet(patched(FRAME_5, 20, outside, "<I"))
        assert caught.value.offset == 20
        with pytest.raises(LocalProtocolError, match="RecoverableAckTimeout must be 500 to 120000 ms"):
            ConnectionParameters(outside, 120_000, 64).encode()


@pytest.mark.spec("QB-2.2.2.1-04")
def test_ack_timeout_is_20000_to_120000_ms() -> None:
    for inside in (20_000, 120_000):
        encoded = ConnectionParameters(500, inside, 64).encode()
        assert unpack_from("<I", encoded, 24) == (inside,)
        assert decode_packet(encoded) == ConnectionParameters(500, inside, 64)
    for outside in (0, 19_999, 120_001, 0xFFFFFFFF):
        with pytest.raises(RemoteProtocolError, match=f": AckTimeout must be between .* ms, got {outside}") as caught:
            decode_packet(patched(FRAME_5, 24, outside, "<I"))
        assert caught.value.offset == 24
        with pytest.raises(LocalProtocolError, match=r"^AckTimeout must be 20000 to 120000 ms"):
            ConnectionParameters(500, outside, 64).encode()


@pytest.mark.spec("QB-2.2.2.1-06")
def test_connection_parameters_reserved_is_sent_as_zero() -> None:
    assert u16(PARAMETERS.encode(), 28) == 0


@pytest.mark.spec("QB-2.2.2.1-07")
def test_connection_parameters_reserved_is_ignored() -> None:
    assert decode_packet(patched(FRAME_5, 28, 0xABCD)) == decode_packet(FRAME_5)


@pytest.mark.spec("QB-2.2.2.1-08")
@pytest.mark.parametrize("window", [0, 1, 0xFFFF])
def test_any_window_is_legal(window: int) -> None:
    packet = decode_packet(replace(PARAMETERS, window_size=window).encode())
    assert isinstance(packet, ConnectionParameters)
    assert packet.window_size == window
    assert u16(packet.encode(), 30) == window


# 2.2.3 EstablishConnection


@pytest.mark.spec("QB-2.2.3-01", "QB-2.2.3-02")
def test_establish_connection_is_572_bytes() -> None:
    encoded = ESTABLISH.encode()
    assert len(encoded) == 572
    assert unpack_from("<I", encoded, 8) == (0x23C,)
    assert u16(encoded, 2) & 0x0008
    assert u16(encoded, 18) & 0x000F == 2


@pytest.mark.spec("QB-2.2.3.1-01")
def test_establish_connection_layout() -> None:
    packet = decode_packet(FRAME_3)
    assert isinstance(packet, EstablishConnection)
    assert packet.client_guid == UUID(bytes_le=FRAME_3[20:36])
    assert packet.server_guid == UUID(bytes_le=FRAME_3[36:52])
    assert packet.time_stamp == 501_140_046
    assert packet.operating_system == 0x0310
    assert packet.reserved == 0
    assert packet.padding == b"\x5a" * 512

    encoded = replace(ESTABLISH, padding=bytes(511) + b"\x01").encode()
    assert encoded[20:52] == CLIENT.bytes_le + SERVER.bytes_le
    assert encoded[52:60] == bytes.fromhex("0d0c0b0a10000000")
    assert encoded[60:] == bytes(511) + b"\x01"


@pytest.mark.spec("QB-2.2.3.1-09")
@pytest.mark.parametrize("flags", [0, OperatingSystemFlags.NO_PING | OperatingSystemFlags.SERVER])
def test_operating_system_starts_with_0x10(flags: int) -> None:
    packet = replace(ESTABLISH, operating_system=OperatingSystemFlags.CONSTANT | flags)
    assert packet.encode()[56] == 0x10
    assert packet.response(SERVER).encode()[56] == 0x10
    with pytest.raises(LocalProtocolError, match="OperatingSystem"):
        replace(ESTABLISH, operating_system=flags).encode()


@pytest.mark.spec("QB-2.2.3.1-14", "QB-2.2.3.1-15")
def test_neither_quality_of_service_nor_unused_bits_are_sent() -> None:
    assert u16(ESTABLISH.encode(), 56) & 0xFC00 == 0
    request = decode_packet(patched(FRAME_3, 56, 0xFF10))
    assert isinstance(request, EstablishConnection)
    assert u16(request.response(SERVER).encode(), 56) == 0x0310


@pytest.mark.spec("QB-2.2.3.1-16", "QB-6-08")
@pytest.mark.parametrize("bits", [0x0200, 0x0400, 0x0600, 0x0800, 0xF800, 0xFB00])
def test_other_operating_system_bits_change_nothing(bits: int) -> None:
    plain, noisy = decode_packet(patched(FRAME_3, 56, 0x0010)), decode_packet(patched(FRAME_3, 56, 0x0010 | bits))
    assert isinstance(plain, EstablishConnection)
    assert isinstance(noisy, EstablishConnection)
    assert replace(noisy, operating_system=0x0010) == plain
    assert not noisy.response(noisy.server_guid).refused


@pytest.mark.spec("QB-2.2.3.1-17")
def test_establish_connection_reserved_is_sent_as_zero() -> None:
    assert u16(ESTABLISH.encode(), 58) == 0
    noisy = decode_packet(patched(FRAME_3, 58, 0xABCD))
    assert isinstance(noisy, EstablishConnection)
    assert u16(noisy.response(SERVER).encode(), 58) == 0


@pytest.mark.spec("QB-2.2.3.1-18")
def test_establish_connection_reserved_is_ignored() -> None:
    assert decode_packet(patched(FRAME_3, 58, 0xABCD)) == decode_packet(FRAME_3)


@pytest.mark.parametrize("system", [0x0010, 0x0110])
def test_a_response_repeats_the_request(system: int) -> None:
    request = replace(ESTABLISH, server_guid=NULL_GUID, operating_system=system, padding=bytes(range(256)) * 2)
    response = request.response(SERVER).encode()
    assert response[20:36] == CLIENT.bytes_le
    assert response[36:52] == SERVER.bytes_le
    assert response[52:56] == request.encode()[52:56]
    assert u16(response, 56) == system
    assert response[60:] == b"\x5a" * 512


def test_padding_is_not_looked_at() -> None:
    assert decode_packet(FRAME_3[:60] + bytes(range(256)) * 2) == decode_packet(FRAME_3)


# 2.2.6 SessionAck


@pytest.mark.spec("QB-2.2.6-01", "QB-2.2.6-02")
def test_a_session_ack_counts_its_session_header() -> None:
    encoded = ACK.encode()
    assert len(encoded) == 36
    assert unpack_from("<I", encoded, 8) == (0x24,)
    assert u16(encoded, 2) & 0x0018 == 0x0018
    assert u16(encoded, 18) & 0x000F == 1
    assert unpack_from("<I", FRAME_8, 8) == (36,)
    assert isinstance(decode_packet(FRAME_8), SessionAck)


@pytest.mark.spec("QB-2.2.6-03")
def test_session_header_layout() -> None:
    assert ACK.encode()[20:] == bytes.fromhex("01000200030000000400050006000000")
    packet = decode_packet(FRAME_8[:20] + bytes.fromhex("02010403080706850a090c0b0e0d100f"))
    assert isinstance(packet, SessionAck)
    assert packet.session == SessionHeader(
        ack_sequence_number=0x0102,
        recoverable_msg_ack_seq_number=0x0304,
        recoverable_msg_ack_flags=0x85060708,
        user_msg_sequence_number=0x090A,
        recoverable_msg_seq_number=0x0B0C,
        window_size=0x0D0E,
        reserved=0x0F10,
    )
    example = decode_packet(FRAME_8)
    assert isinstance(example, SessionAck)
    assert example.session == SessionHeader(ack_sequence_number=1, window_size=64)


@pytest.mark.parametrize("header", [SessionHeader(), SessionHeader(1, 2, 0xFFFFFFFF, 4, 0xFFFF, 6)])
def test_a_plain_session_ack_is_written_and_read_without_its_parts(header: SessionHeader) -> None:
    packet = PLAIN_ACK + header.encode()
    assert packet == SessionAck(header).encode()
    assert SessionAck.plain(packet) == decode_packet(packet) == SessionAck(header)


@pytest.mark.parametrize("offset", range(20))
def test_a_session_ack_with_other_headers_is_not_plain(offset: int) -> None:
    packet = bytearray(PLAIN_ACK + SessionHeader(1).encode())
    packet[offset] ^= 0x40
    assert SessionAck.plain(bytes(packet)) is None
    assert SessionAck.plain(PLAIN_ACK + SessionHeader(1).encode() + b"x") is None
