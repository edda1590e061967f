"""PUBLICKEYBLOB and SIMPLEBLOB, [MS-MQQB] 2.4: the form of keys in the directory and in a SecurityHeader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.errors import RemoteProtocolError
from postroad.wire import MessageView, UserMessage
from postroad.wire.constants import EncryptionAlgorithm
from postroad.wire.records import PublicKeyBlob, SimpleBlob
from tests.vectors import FRAME_7

MODULUS_BYTES = bytes(range(0x81, 0x81 + 64)) * 2  # most significant byte first
MODULUS = int.from_bytes(MODULUS_BYTES, "big")
PUBLIC = PublicKeyBlob(MODULUS, 65537)
PUBLIC_BYTES = bytes.fromhex("0602000000a40000" + "52534131" + "00040000" + "01000100") + MODULUS_BYTES[::-1]

KEY = bytes(range(128))
SIMPLE = SimpleBlob(EncryptionAlgorithm.AES_256, KEY)
ALGORITHMS = (
    (EncryptionAlgorithm.AES_128, "0e660000"),
    (EncryptionAlgorithm.AES_192, "0f660000"),
    (EncryptionAlgorithm.AES_256, "10660000"),
    (EncryptionAlgorithm.RC2, "02660000"),
    (EncryptionAlgorithm.RC4, "01680000"),
)


@pytest.mark.spec("QB-2.4.1-01")
def test_a_public_key_starts_with_its_mark() -> None:
    assert PUBLIC.encode()[:12] == bytes.fromhex("06020000 00a40000 52534131")
    assert PublicKeyBlob.decode(PUBLIC_BYTES) == PUBLIC
    for place in range(12):
        damaged = PUBLIC_BYTES[:place] + bytes([PUBLIC_BYTES[place] ^ 1]) + PUBLIC_BYTES[place + 1 :]
        with pytest.raises(RemoteProtocolError, match="must start with the mark"):
            PublicKeyBlob.decode(damaged)


@pytest.mark.spec("QB-2.4.1-02")
@pytest.mark.parametrize(("bits", "expected"), [(512, "00020000"), (1024, "00040000"), (2048, "00080000")])
def test_bit_length(bits: int, expected: str) -> None:
    encoded = PublicKeyBlob(1 << bits - 1 | 1, 65537).encode()
    assert encoded[12:16] == bytes.fromhex(expected)
    assert PublicKeyBlob.decode(encoded).bit_length == bits


@pytest.mark.spec("QB-2.4.1-02")
def test_bit_length_counts_octets() -> None:
    assert PublicKeyBlob(1 << 1020, 3).bit_length == 1024


@pytest.mark.spec("QB-2.4.1-03")
def test_public_exponent() -> None:
    assert PUBLIC.encode()[16:20] == bytes.fromhex("01000100")
    assert PublicKeyBlob.decode(PUBLIC_BYTES).public_exponent == 65537


@pytest.mark.spec("QB-2.4.1-04")
def test_the_modulus_is_little_endian_and_fills_the_rest() -> None:
    encoded = PUBLIC.encode()
    assert len(encoded) == 20 + 1024 // 8
    assert encoded[20:][::-1] == MODULUS_BYTES
    assert encoded == PUBLIC_BYTES
    assert PublicKeyBlob.decode(encoded).modulus == MODULUS
    for wrong in (
        PUBLIC_BYTES[:-1],
        PUBLIC_BYTES + b"\x01",
        PUBLIC_BYTES[:-1] + b"\0",
        PUBLIC_BYTES[:12] + (1023).to_bytes(4, "little") + PUBLIC_BYTES[16:],
    ):
        with pytest.raises(RemoteProtocolError, match="does not fit"):
            PublicKeyBlob.decode(wrong)
    with pytest.raises(RemoteProtocolError, match="PUBLICKEYBLOB is cut off"):
        PublicKeyBlob.decode(PUBLIC_BYTES[:20])


@pytest.mark.spec("QB-2.4.2-01")
def test_session_key_layout() -> None:
    encoded = bytes.fromhex("01020000" + "10660000" + "00a40000") + KEY
    assert SIMPLE.encode() == encoded
    assert SimpleBlob.decode(encoded) == SIMPLE
    for place in (0, 1, 2, 3, 8, 9, 10, 11):
        damaged = encoded[:place] + bytes([encoded[place] ^ 1]) + encoded[place + 1 :]
        with pytest.raises(RemoteProtocolError, match="must start with the mark"):
            SimpleBlob.decode(damaged)
    with pytest.raises(RemoteProtocolError, match="SIMPLEBLOB is cut off"):
        SimpleBlob.decode(encoded[:12])


@pytest.mark.spec("QB-2.4.2-02")
@pytest.mark.parametrize(("algorithm", "expected"), ALGORITHMS)
def test_session_key_algorithms(algorithm: EncryptionAlgorithm, expected: str) -> None:
    encoded = SimpleBlob(algorithm, KEY).encode()
    assert encoded[4:8] == bytes.fromhex(expected)
    assert SimpleBlob.decode(encoded).session_key_algorithm is algorithm


@pytest.mark.spec("QB-2.4.2-02")
def test_no_other_session_key_algorithm() -> None:
    with pytest.raises(RemoteProtocolError, match="session key algorithm 0x00006603 is not defined") as caught:
        SimpleBlob.decode(bytes.fromhex("01020000" + "03660000" + "00a40000") + KEY)
    assert caught.value.offset == 4


@pytest.mark.spec("QB-2.4.2-04")
@pytest.mark.parametrize("size", [64, 128, 256])
def test_a_session_key_is_as_long_as_encryption_key_size_says(size: int) -> None:
    blob = SimpleBlob(EncryptionAlgorithm.RC4, bytes(range(size)))
    assert len(blob.encode()) == 12 + size
    message = UserMessage.decode(FRAME_7)
    assert message.security is not None
    packet = replace(message, security=replace(message.security, encryption_key=blob.encode())).encode()
    security = MessageView(packet).security_header
    assert security is not None
    assert SimpleBlob.decode(security.encryption_key) == blob


def test_the_rsa_octets_are_the_encrypted_key_the_other_way_round() -> None:
    assert SIMPLE.rsa_octets == bytes(range(127, -1, -1))
