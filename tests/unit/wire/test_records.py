"""Structures outside of packets, [MS-MQMQ] 2.2.1, 2.2.2, 2.2.4, 2.2.5, 2.2.10, 2.2.21 and 2.2.22."""

from __future__ import annotations

from hashlib import md5
from ipaddress import IPv4Address
from struct import pack

import pytest

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.names import MulticastId, parse_format_name
from postroad.names.format import MulticastName
from postroad.wire.octets import Reader
from postroad.wire.records import (
    AddressType,
    DsPublicKey,
    ProviderType,
    PublicKeyBlob,
    SequenceInfo,
    TaAddress,
    UserSignCertificate,
    decode_addresses,
    decode_multicast_id,
    decode_public_keys,
    decode_user_certificates,
    encode_multicast_id,
    encode_public_keys,
    encode_user_certificates,
)
from tests.packets import OTHER, SOURCE, patched, u16, u32, utf16

BASE_PROVIDER = "Microsoft Base Cryptographic Provider v1.0"
KEY = DsPublicKey(ProviderType.RSA_FULL, BASE_PROVIDER, b"key1!")
OTHER_KEY = DsPublicKey(ProviderType.RSA_AES, "P", b"another key")


def keys_with(provider_type: int = 1, name: bytes = utf16("P"), key: bytes = b"abc") -> bytes:
    """MQDSPUBLICKEYS with one key, by hand."""
    record = pack("<III", len(key), len(name), provider_type) + name + key
    return u32(8 + len(record)) + u32(1) + record


# MQDSPUBLICKEY and MQDSPUBLICKEYS


@pytest.mark.spec("MQ-2.2.1-01", "MQ-2.2.1-02", "MQ-2.2.1-03", "MQ-2.2.1-05")
def test_a_public_key_and_its_provider() -> None:
    wire = u32(5) + u32(86) + u32(1) + utf16(BASE_PROVIDER) + b"key1!"
    assert 2 * (len(BASE_PROVIDER) + 1) == 86
    assert KEY.encode() == wire
    reader = Reader(wire + b"next", 0, len(wire) + 4)
    assert DsPublicKey.read(reader) == KEY
    assert reader.offset == 12 + 86 + 5


@pytest.mark.spec("MQ-2.2.1-03", "MQ-2.2.1-05")
@pytest.mark.parametrize("name", [b"", b"P\0", b"P\0\0", utf16("P") + b"\0\0"])
def test_a_provider_name_ends_in_its_only_terminator(name: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_public_keys(keys_with(name=name))


@pytest.mark.spec("MQ-2.2.1-04")
@pytest.mark.parametrize(("number", "provider"), [(0x01, ProviderType.RSA_FULL), (0x18, ProviderType.RSA_AES)])
def test_the_types_of_providers(number: int, provider: ProviderType) -> None:
    assert decode_public_keys(keys_with(number))[0].provider_type is provider
    assert encode_public_keys([DsPublicKey(provider, "P", b"abc")]) == keys_with(number)


@pytest.mark.spec("MQ-2.2.1-04")
@pytest.mark.parametrize("number", [0x00, 0x02, 0x17, 0x19, 0xFFFFFFFF])
def test_no_other_type_of_provider(number: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_public_keys(keys_with(number))
    assert caught.value.offset == 8 + 8


@pytest.mark.spec("MQ-2.2.1-06")
def test_a_key_is_an_rsa_exchange_key() -> None:
    blob = PublicKeyBlob((1 << 511) + 1, 65537)
    wire = keys_with(key=blob.encode())
    assert decode_public_keys(wire)[0].key_blob == blob
    at = wire.index(bytes.fromhex("0602000000a40000")) + 4
    for algorithm in (0x2400, 0xA401, 0x0000):
        (key,) = decode_public_keys(patched(wire, at, u32(algorithm)))
        with pytest.raises(RemoteProtocolError):
            _ = key.key_blob


@pytest.mark.spec("MQ-2.2.2-01", "MQ-2.2.2-02", "MQ-2.2.2-03")
@pytest.mark.parametrize("keys", [(), (KEY,), (KEY, OTHER_KEY)])
def test_a_list_of_public_keys(keys: tuple[DsPublicKey, ...]) -> None:
    packed = b"".join(key.encode() for key in keys)
    wire = u32(8 + len(packed)) + u32(len(keys)) + packed
    assert encode_public_keys(keys) == wire
    assert decode_public_keys(wire) == keys


@pytest.mark.spec("MQ-2.2.2-02")
@pytest.mark.parametrize("change", [-8, -1, 1, 8])
def test_the_size_of_a_list_of_keys_counts_all_of_it(change: int) -> None:
    wire = encode_public_keys([KEY, OTHER_KEY])
    with pytest.raises(RemoteProtocolError) as caught:
        decode_public_keys(patched(wire, 0, u32(len(wire) + change)))
    assert caught.value.offset == 0


@pytest.mark.spec("MQ-2.2.2-03")
@pytest.mark.parametrize("count", [0, 1, 3, 0xFFFFFFFF])
def test_the_count_of_a_list_of_keys_is_exact(count: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_public_keys(patched(encode_public_keys([KEY, OTHER_KEY]), 4, u32(count)))


# TA_ADDRESS


@pytest.mark.spec("MQ-2.2.4-01", "MQ-2.2.4-03", "MQ-2.2.4-04")
@pytest.mark.parametrize(("number", "kind"), [(1, AddressType.IP), (2, AddressType.IP_RAS)])
def test_an_ip_address(number: int, kind: AddressType) -> None:
    wire = u16(4) + u16(number) + bytes.fromhex("c0a80001")
    (address,) = decode_addresses(wire)
    assert address == TaAddress(kind, bytes.fromhex("c0a80001"))
    assert address.ip == IPv4Address("192.168.0.1")
    assert address.encode() == wire


@pytest.mark.spec("MQ-2.2.4-03", "MQ-2.2.4-04")
def test_an_ipx_address_is_a_network_and_a_node() -> None:
    wire = u16(10) + u16(3) + bytes.fromhex("00000012 00a0246f4a15")
    (address,) = decode_addresses(wire)
    assert address.address_type is AddressType.IPX
    assert address.ipx == (bytes.fromhex("00000012"), bytes.fromhex("00a0246f4a15"))
    assert address.encode() == wire


@pytest.mark.spec("MQ-2.2.4-03", "MQ-2.2.4-04")
def test_a_foreign_address_is_a_guid() -> None:
    wire = u16(16) + u16(5) + OTHER.bytes_le
    (address,) = decode_addresses(wire)
    assert address.address_type is AddressType.FOREIGN
    assert address.foreign == OTHER
    assert address.encode() == wire


@pytest.mark.spec("MQ-2.3.2.5-01")
def test_addresses_follow_each_other_without_padding() -> None:
    ipx = TaAddress(AddressType.IPX, bytes(range(10)))
    ip, foreign = TaAddress(AddressType.IP, bytes(4)), TaAddress(AddressType.FOREIGN, OTHER.bytes_le)
    for both in ((ipx, ip), (ip, foreign), (ipx, ipx)):
        assert decode_addresses(b"".join(each.encode() for each in both)) == both


@pytest.mark.spec("MQ-2.2.4-02")
@pytest.mark.parametrize(("number", "right"), [(1, 4), (2, 4), (3, 10), (5, 16)])
@pytest.mark.parametrize("size", [0, 3, 4, 5, 9, 10, 11, 15, 16, 17])
def test_the_length_of_an_address_follows_from_its_type(number: int, right: int, size: int) -> None:
    wire = u16(size) + u16(number) + bytes(size)
    if size == right:
        assert len(decode_addresses(wire)[0].address) == size
        return
    with pytest.raises(RemoteProtocolError) as caught:
        decode_addresses(wire)
    assert caught.value.offset == 0
    with pytest.raises(LocalProtocolError):
        TaAddress(AddressType(number), bytes(size)).encode()


@pytest.mark.spec("MQ-2.2.4-03")
@pytest.mark.parametrize("number", [0, 4, 6, 0xFFFF])
def test_no_other_type_of_address(number: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_addresses(u16(4) + u16(number) + bytes(4))
    assert caught.value.offset == 2


def test_addresses_stand_one_behind_the_other() -> None:
    addresses = (TaAddress(AddressType.IPX, bytes(range(10))), TaAddress(AddressType.IP, bytes(range(4))))
    wire = b"".join(address.encode() for address in addresses)
    assert decode_addresses(wire) == addresses
    assert decode_addresses(b"") == ()
    for size in (1, 3, 13, 15, 17, len(wire) - 1):
        with pytest.raises(RemoteProtocolError):
            decode_addresses(wire[:size])


# SEQUENCE_INFO


@pytest.mark.spec("MQ-2.2.5-01", "MQ-2.2.5.1-01")
def test_sequence_info() -> None:
    info = SequenceInfo(0x0807060504030201, 0x0C0B0A09, 0x100F0E0D)
    assert info.encode() == bytes(range(1, 17))
    assert SequenceInfo.decode(bytes(range(1, 17))) == info


@pytest.mark.spec("MQ-2.2.5-01", "MQ-2.2.5.1-01")
def test_the_sequence_id_is_signed_and_the_numbers_are_not() -> None:
    info = SequenceInfo(-2, 0xFFFFFFFF, 0xFFFFFFFE)
    wire = b"\xfe" + b"\xff" * 11 + b"\xfe\xff\xff\xff"
    assert info.encode() == wire
    assert SequenceInfo.decode(wire) == info
    for bad in (wire[:-1], wire + b"\0"):
        with pytest.raises(RemoteProtocolError, match="16 bytes"):
            SequenceInfo.decode(bad)


# MULTICAST_ID


@pytest.mark.spec("MQ-2.2.10-01")
def test_a_multicast_id_is_an_address_and_a_port() -> None:
    wire = bytes.fromhex("01020304 05060708")
    assert decode_multicast_id(wire) == MulticastId(0x04030201, 0x08070605)
    assert encode_multicast_id(MulticastId(0x04030201, 0x08070605)) == wire
    for bad in (wire[:-1], wire + b"\0"):
        with pytest.raises(RemoteProtocolError, match="8 bytes"):
            decode_multicast_id(bad)


def test_a_multicast_name_as_bytes() -> None:
    name = parse_format_name("MULTICAST=234.1.2.3:8001")
    assert isinstance(name, MulticastName)
    assert encode_multicast_id(MulticastId.from_name(name)) == bytes([234, 1, 2, 3]) + u32(8001)


# MQUSERSIGNCERT and MQUSERSIGNCERTS


@pytest.mark.spec("MQ-2.2.21-01", "MQ-2.2.22-01")
def test_a_list_of_certificates() -> None:
    certificates = (
        UserSignCertificate(bytes(range(16)), OTHER, b"first"),
        UserSignCertificate(bytes(range(16, 32)), SOURCE, b"second one"),
    )
    wire = (
        u32(2)
        + bytes(range(16)) + OTHER.bytes_le + u32(5) + b"first"
        + bytes(range(16, 32)) + SOURCE.bytes_le + u32(10) + b"second one"
    )  # fmt: skip
    assert len(certificates[0].encode()) == 36 + 5
    assert encode_user_certificates(certificates) == wire
    assert decode_user_certificates(wire) == certificates


@pytest.mark.spec("MQ-2.2.21-01")
@pytest.mark.parametrize("count", [0, 1, 3, 0xFFFFFFFF])
def test_the_count_of_certificates_is_exact(count: int) -> None:
    wire = encode_user_certificates([UserSignCertificate.of(OTHER, b"one"), UserSignCertificate.of(OTHER, b"two")])
    with pytest.raises(RemoteProtocolError):
        decode_user_certificates(patched(wire, 0, u32(count)))


@pytest.mark.spec("MQ-2.2.22-02")
def test_the_digest_is_the_md5_of_the_certificate() -> None:
    certificate = UserSignCertificate.of(OTHER, b"certificate")
    assert certificate.digest == md5(b"certificate", usedforsecurity=False).digest()
    assert certificate.encode()[:16].hex() == "e0d30cef5c6139275b58b525001b413c"
