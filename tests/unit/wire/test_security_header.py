"""SecurityHeader, [MS-MQMQ] 2.2.20.6: where the sender, the key and the signature are. Nothing is verified here."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire import MessageView, UserMessage
from postroad.wire.constants import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel, SecurityFlags, SenderIdType
from postroad.wire.headers import ProviderInfo, SecurityHeader
from postroad.wire.octets import Writer
from postroad.wire.records import PublicKeyBlob
from tests.packets import (
    OTHER,
    TAG,
    by_hand,
    meaning,
    padded,
    patched,
    properties,
    refusal,
    spliced,
    u16,
    u32,
    with_bits,
)
from tests.vectors import FRAME_7

PRESENT = 0x0008_0000
HEADER_AT = 92  # of frame 7
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")


def header(flags: int, *items: bytes, sizes: tuple[int, ...] | None = None) -> bytes:
    """A SecurityHeader of up to five items."""
    items += (b"",) * (5 - len(items))
    fixed = pack("<HHHHII", flags, *(sizes or map(len, items)))
    return fixed + b"".join(map(padded, items))


def packet_with(data: bytes) -> bytes:
    return by_hand(user_flags=PRESENT, after_names=data)


def decoded(packet: bytes) -> SecurityHeader:
    value = MessageView(packet).security_header
    assert value == UserMessage.decode(packet).security
    assert value is not None
    return value


def encoded(value: SecurityHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.20.6-01", "MQ-2.2.20.6-12")
def test_frame_7_has_a_sid_alone_though_ai_is_clear() -> None:
    assert FRAME_7[HEADER_AT : HEADER_AT + 4].hex() == "01001c00"
    value = decoded(FRAME_7)
    assert not value.flags & SecurityFlags.SECURITY_DATA
    assert value == SecurityHeader(1, security_id=SID)
    assert encoded(value) == FRAME_7[HEADER_AT:136]


@pytest.mark.spec("MQ-2.2.20.6-01", "MQ-2.2.20.6-16", "MQ-2.2.20.6-20")
def test_the_layout() -> None:
    items = (b"i" * 8, b"k" * 12, b"s" * 16, b"c" * 20, b"p" * 24)
    wire = pack("<HHHHII", 1, 8, 12, 16, 20, 24) + b"".join(items)
    packet = packet_with(wire)
    assert decoded(packet) == SecurityHeader(1, *items)
    assert MessageView(packet).application_tag == TAG
    assert encoded(SecurityHeader(1, *items)) == wire


@pytest.mark.spec("MQ-2.2.20.6-16", "MQ-2.2.20.6-21")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 65])
@pytest.mark.parametrize("item", range(5))
def test_each_item_is_padded_and_its_size_is_exact(item: int, size: int) -> None:
    items = [b"abcd"] * 5
    items[item] = b"x" * size
    wire = header(1, *items)
    packet = packet_with(wire)
    assert decoded(packet) == SecurityHeader(1, *items)
    assert MessageView(packet).application_tag == TAG
    assert encoded(SecurityHeader(1, *items)) == wire.replace(b"\xbe", b"\0")
    assert UserMessage.decode(packet).encode() == packet
    assert len(wire) == 16 + 4 * 4 + -(-size // 4) * 4


@pytest.mark.spec("MQ-2.2.20.6-21")
def test_an_empty_item_takes_no_space() -> None:
    wire = header(0, b"", b"", b"s" * 65, b"", b"p" * 8)
    assert wire[16 + 68 :] == b"p" * 8
    assert decoded(packet_with(wire)) == SecurityHeader(0, signature=b"s" * 65, provider_info=b"p" * 8)


@pytest.mark.spec("MQ-2.2.20.6-02")
@pytest.mark.parametrize(
    ("flags", "sender_id", "kind"),
    [(0, b"", SenderIdType.NONE), (1, SID, SenderIdType.SID), (2, OTHER.bytes_le, SenderIdType.QUEUE_MANAGER)],
)
def test_st_is_bits_0_to_3(flags: int, sender_id: bytes, kind: SenderIdType) -> None:
    for more in (0, 0x0020, 0x00F0):
        value = decoded(packet_with(header(flags | more, sender_id, b"key!")))
        assert value.sender_id_type is kind
        assert value.security_id == sender_id


@pytest.mark.spec("MQ-2.2.20.6-02")
@pytest.mark.parametrize("kind", range(3, 16))
def test_no_other_type_of_sender(kind: int) -> None:
    assert refusal(packet_with(header(kind, SID))).offset == 64


@pytest.mark.spec("MQ-2.2.20.6-03")
def test_without_a_type_there_is_no_sender_id() -> None:
    assert refusal(packet_with(header(0, SID))).offset == 66
    with pytest.raises(LocalProtocolError, match="type NONE"):
        encoded(SecurityHeader(0, SID))


@pytest.mark.parametrize("size", [0, 15, 17, 28])
def test_the_id_of_a_queue_manager_is_a_guid(size: int) -> None:
    assert refusal(packet_with(header(2, b"x" * size, b"key!"))).offset == 66
    with pytest.raises(LocalProtocolError, match="type QUEUE_MANAGER"):
        encoded(SecurityHeader(2, b"x" * size, b"key!"))


@pytest.mark.spec("MQ-2.2.20.6-06", "MQ-2.2.20.6-14")
@pytest.mark.parametrize(
    "value",
    [
        SecurityHeader(SenderIdType.SID, SID),
        SecurityHeader(SenderIdType.QUEUE_MANAGER, OTHER.bytes_le, signature=b"s", sender_certificate=b"c"),
        SecurityHeader(SecurityFlags.ENCRYPTED_BODY, encryption_key=b"k"),
        SecurityHeader(SecurityFlags.DEFAULT_PROVIDER | SecurityFlags.SECURITY_DATA, signature=b"s"),
    ],
)
def test_au_is_bit_4_and_as_is_bits_8_to_11_and_both_are_sent_as_zero(value: SecurityHeader) -> None:
    assert SecurityFlags(0x0010) is SecurityFlags.AUTHENTICATED
    assert SecurityFlags(0x0F00) is SecurityFlags.SIGNATURE_TYPE
    flags = int.from_bytes(encoded(value)[:2], "little")
    assert flags & 0x0F10 == 0


@pytest.mark.spec("MQ-2.2.20.6-08")
def test_eb_is_bit_5() -> None:
    packet = packet_with(header(0x0020, b"", b"key!"))
    assert decoded(packet).encrypted_body
    assert MessageView(packet).encrypted
    assert encoded(SecurityHeader(SecurityFlags.ENCRYPTED_BODY, encryption_key=b"key!"))[0] == 0x20
    packet = packet_with(header(0xFFD1, SID))
    assert not decoded(packet).encrypted_body
    assert not MessageView(packet).encrypted
    assert not MessageView(by_hand()).encrypted


@pytest.mark.spec("MQ-2.2.20.6-10")
def test_de_is_bit_6() -> None:
    assert decoded(packet_with(header(0x0040, b"", b"", b"sign"))).default_provider
    assert not decoded(packet_with(header(0xFFB1, SID))).default_provider
    assert encoded(SecurityHeader(SecurityFlags.DEFAULT_PROVIDER, signature=b"sign"))[0] == 0x40


@pytest.mark.spec("MQ-2.2.20.6-12")
def test_ai_is_bit_7_and_says_nothing() -> None:
    assert SecurityFlags(0x0080) is SecurityFlags.SECURITY_DATA
    odd = with_bits(FRAME_7, HEADER_AT, 0x0080)
    assert meaning(odd, "security_header") == meaning(FRAME_7, "security_header")
    assert decoded(odd).security_id == SID


@pytest.mark.spec("MQ-2.2.20.6-13", "MQ-2.2.20.6-19")
@pytest.mark.parametrize("flags", [0x0000, 0x0001, 0x0040, 0x0080])
def test_a_header_without_any_item_is_refused(flags: int) -> None:
    assert refusal(packet_with(header(flags))).offset == 66
    with pytest.raises(LocalProtocolError, match="must have a sender id"):
        encoded(SecurityHeader(flags))


@pytest.mark.spec("MQ-2.2.20.6-19")
@pytest.mark.parametrize("item", range(1, 5))
def test_any_item_is_enough(item: int) -> None:
    items = [b""] * 5
    items[item] = b"data"
    assert decoded(packet_with(header(0, *items))) == SecurityHeader(0, *items)


@pytest.mark.spec("MQ-2.2.20.6-15")
@pytest.mark.parametrize("bit", range(12, 16))
def test_an_unused_flag_is_ignored(bit: int) -> None:
    odd = with_bits(FRAME_7, HEADER_AT, 1 << bit)
    assert meaning(odd, "security_header") == meaning(FRAME_7, "security_header")
    assert replace(decoded(odd), flags=1) == decoded(FRAME_7)


@pytest.mark.spec("MQ-2.2.20.6-15")
def test_no_unused_flag_is_sent() -> None:
    every = SecurityFlags.ENCRYPTED_BODY | SecurityFlags.DEFAULT_PROVIDER | SecurityFlags.SECURITY_DATA
    assert encoded(SecurityHeader(every | SenderIdType.SID, SID))[1] & 0xF0 == 0


@pytest.mark.spec("MQ-2.2.20.6-17")
def test_a_certificate_has_at_most_0xffff_bytes() -> None:
    largest = bytes(0xFFFF)
    wire = header(0, b"", b"", b"", largest)
    assert decoded(packet_with(wire)).sender_certificate == largest
    assert encoded(SecurityHeader(sender_certificate=largest)) == wire.replace(b"\xbe", b"\0")
    assert refusal(packet_with(header(0, b"", b"", b"", bytes(0x10000)))).offset == 72
    with pytest.raises(LocalProtocolError, match="65535"):
        encoded(SecurityHeader(sender_certificate=bytes(0x10000)))


@pytest.mark.spec("MQ-2.2.20.6-18")
def test_items_longer_than_the_packet_are_refused() -> None:
    good = header(0, b"", b"", b"", b"", b"provider")
    assert decoded(packet_with(good)).provider_info == b"provider"
    for size in (1000, 0x7FFFFFFF, 0xFFFFFFFF):
        assert refusal(patched(packet_with(good), 64 + 12, u32(size))).offset == 64
    assert refusal(patched(packet_with(good), 64 + 2, u16(0xFFFC)))
    assert (
        refusal(by_hand(user_flags=PRESENT, after_names=good[:12], properties=b"")).fault == "SecurityHeader is cut off"
    )


def test_a_provider_may_be_larger_than_the_other_items() -> None:
    large = b"p" * 0x10004
    assert decoded(packet_with(header(0, b"", b"", b"", b"", large))).provider_info == large
    assert encoded(SecurityHeader(provider_info=large)) == header(0, b"", b"", b"", b"", large)


@pytest.mark.spec("MQ-2.2.20.6-29")
def test_provider_info_is_a_type_and_a_terminated_name() -> None:
    info = ProviderInfo(0x18, "Provider")
    wire = u32(0x18) + "Provider\0".encode("utf-16-le")
    assert info.encode() == wire
    assert len(wire) == 4 + 2 * (8 + 1)
    assert ProviderInfo.decode(wire) == info
    for bad in (wire[:3], wire[:4], wire[:-2], wire[:-1], wire + b"\0\0"):
        with pytest.raises(RemoteProtocolError):
            ProviderInfo.decode(bad)


def test_a_message_is_signed_where_there_is_a_signature() -> None:
    assert MessageView(packet_with(header(1, SID, b"", b"s"))).signed
    assert not MessageView(FRAME_7).signed
    assert not MessageView(by_hand()).signed


def test_an_encrypted_body_is_the_whole_allocated_region() -> None:
    body = properties(body=b"0123456789abcdef", message_size=10)
    plain = by_hand(properties=body)
    assert MessageView(plain).body == b"0123456789"
    encrypted = by_hand(user_flags=PRESENT, after_names=header(0x20, b"", b"key!"), properties=body)
    assert MessageView(encrypted).body == b"0123456789abcdef"
    assert MessageView(encrypted).message_size == 10


def test_padding_survives_a_round_trip() -> None:
    packet = spliced(FRAME_7, HEADER_AT, header(1, SID[:27], b"k"), removed=44)
    assert b"\xbe" in packet
    assert UserMessage.decode(packet).encode() == packet


# The numbers of the MessagePropertiesHeader that go with it


@pytest.mark.spec("MQ-2.2.19.3-22")
def test_privacy_levels() -> None:
    levels = (PrivacyLevel.NONE, PrivacyLevel.BASE, PrivacyLevel.ENHANCED, PrivacyLevel.ADVANCED)
    assert levels == tuple(PrivacyLevel) == (0, 1, 3, 5)


@pytest.mark.spec("MQ-2.2.19.3-24")
def test_hash_algorithms() -> None:
    assert {algorithm.name: algorithm.value for algorithm in HashAlgorithm} == {
        "MD2": 0x8001,
        "MD4": 0x8002,
        "MD5": 0x8003,
        "SHA1": 0x8004,
        "SHA256": 0x800C,
        "SHA512": 0x800E,
    }


@pytest.mark.spec("MQ-2.2.19.3-27")
def test_encryption_algorithms() -> None:
    assert {algorithm.name: algorithm.value for algorithm in EncryptionAlgorithm} == {
        "RC2": 0x6602,
        "AES_128": 0x660E,
        "AES_192": 0x660F,
        "AES_256": 0x6610,
        "RC4": 0x6801,
    }


@pytest.mark.spec("MQ-2.2.20.6-25", "MQ-2.2.20.6-27")
@pytest.mark.parametrize(("bits", "size"), [(512, 64), (509, 64), (504, 63), (2048, 256)])
def test_a_public_key_has_its_length_in_bits_and_whole_bytes(bits: int, size: int) -> None:
    modulus = (1 << bits - 1) + 1
    wire = bytes.fromhex("06020000 00a40000 52534131") + u32(8 * size) + u32(65537) + modulus.to_bytes(size, "little")
    key = PublicKeyBlob(modulus, 65537)
    assert key.encode() == wire
    assert PublicKeyBlob.decode(wire) == key
    for bad in (wire[:-1], wire + b"\0", patched(wire, 12, u32(8 * size - 8))):
        with pytest.raises(RemoteProtocolError):
            PublicKeyBlob.decode(bad)
