"""RSA keys: blobs of [MS-MQQB] 2.4, MQDSPUBLICKEYS, and the key ring of a manager."""

from __future__ import annotations

from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.security import algorithms
from postroad.security.algorithms import CIPHERS, CIPHERS_BY_NUMBER
from postroad.security.keys import (
    MAX_PREVIOUS,
    KeyRing,
    decode_public_key,
    encode_public_key,
    peer_keys,
    unwrap_session_key,
    wrap_session_key,
)
from postroad.wire.constants import PrivacyLevel
from postroad.wire.records import (
    DsPublicKey,
    ProviderType,
    SimpleBlob,
    UserSignCertificate,
    decode_public_keys,
    decode_user_certificates,
    encode_public_keys,
    encode_user_certificates,
)
from tests.security_vectors import ADVANCED, BASE, CERTIFICATE, ENHANCED, RING, SENDER, VECTORS, Counted, vector

PUBLISHED = vector("V1_directory_keys", "mqdspublickeys")


def made(bits: int) -> RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def short(bits: int) -> RSAPrivateKey:
    """A short key, which is made faster."""
    return made(1024)


@pytest.mark.spec("QB-2.4.1-01", "QB-2.4.1-02", "QB-2.4.1-03", "QB-2.4.1-04", "QB-3.1.7.1.5.2-01")
@pytest.mark.parametrize(("key", "name"), [(ADVANCED, "publickeyblob_1024"), (BASE, "publickeyblob_512")])
def test_a_public_key_blob_is_that_of_the_vector_both_ways(key: RSAPrivateKey, name: str) -> None:
    blob = vector("V1_directory_keys", name)
    assert encode_public_key(key.public_key()) == blob
    assert decode_public_key(blob).public_numbers() == key.public_key().public_numbers()


@pytest.mark.spec("MQ-2.2.20.6-25", "MQ-2.2.20.6-26", "MQ-2.2.20.6-27")
def test_a_signing_key_has_another_type() -> None:
    blob = vector("V2_certificate", "signing_key_blob")
    assert encode_public_key(SENDER.public_key(), signing=True) == blob
    assert decode_public_key(blob, signing=True).public_numbers() == SENDER.public_key().public_numbers()
    with pytest.raises(RemoteProtocolError, match="must hold an RSA exchange key"):
        decode_public_key(blob)
    with pytest.raises(RemoteProtocolError, match="must hold an RSA signing key"):
        decode_public_key(vector("V1_directory_keys", "publickeyblob_1024"), signing=True)
    for number in (0x2401, 0xA401, 0):
        with pytest.raises(RemoteProtocolError):
            decode_public_key(blob[:4] + number.to_bytes(4, "little") + blob[8:], signing=True)


def test_a_blob_whose_numbers_are_no_key_is_refused() -> None:
    blob = vector("V1_directory_keys", "publickeyblob_1024")
    with pytest.raises(RemoteProtocolError, match="no usable RSA key"):
        decode_public_key(blob[:16] + (2).to_bytes(4, "little") + blob[20:])


@pytest.mark.spec("QB-3.1.7.1.5-04", "QB-6-32")
def test_published_keys_are_those_of_the_vector() -> None:
    """A Base key has 512 bits and is left out, unless short keys are wanted."""
    found = peer_keys(PUBLISHED)
    assert {level: key.public_numbers() for level, key in found.items()} == {
        PrivacyLevel.ENHANCED: ENHANCED.public_key().public_numbers(),
        PrivacyLevel.ADVANCED: ADVANCED.public_key().public_numbers(),
    }
    assert peer_keys(PUBLISHED, 512)[PrivacyLevel.BASE].public_numbers() == BASE.public_key().public_numbers()
    three = [
        DsPublicKey(provider.provider_type, provider.name, encode_public_key(key.public_key()))
        for provider, key in (
            (algorithms.BASE, BASE),
            (algorithms.ENHANCED, ENHANCED),
            (algorithms.ADVANCED, ADVANCED),
        )
    ]
    assert encode_public_keys(three) == PUBLISHED


def test_keys_of_unknown_providers_are_left_out() -> None:
    assert peer_keys(encode_public_keys([DsPublicKey(ProviderType.RSA_FULL, "Acme", b"not a blob")])) == {}


@pytest.mark.spec("MQ-2.3.2.33-01")
def test_published_signing_keys_can_be_read() -> None:
    blob = encode_public_key(SENDER.public_key(), signing=True)
    data = encode_public_keys([DsPublicKey(ProviderType.RSA_FULL, algorithms.BASE.name, blob)])
    (entry,) = decode_public_keys(data)
    assert entry.key == vector("V2_certificate", "signing_key_blob")
    assert decode_public_key(entry.key, signing=True).public_numbers() == SENDER.public_key().public_numbers()


@pytest.mark.spec("MQ-2.2.22-02", "MQ-2.2.22-03", "DM-3.1.1.15-01")
def test_a_registered_certificate_is_that_of_the_vector_both_ways() -> None:
    data = vector("V2_certificate", "mqusersigncerts")
    (entry,) = decode_user_certificates(data)
    assert entry.certificate == CERTIFICATE
    assert entry.digest == vector("V2_certificate", "digest_md5")
    assert encode_user_certificates([UserSignCertificate.of(entry.identifier, CERTIFICATE)]) == data
    key = x509.load_der_x509_certificate(entry.certificate).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.public_numbers() == SENDER.public_key().public_numbers()


def _blobs() -> list[tuple[RSAPrivateKey, dict[str, str]]]:
    rc4, rc2 = VECTORS["V7_rc4"], VECTORS["V8_rc2"]
    return [
        *((ADVANCED, case) for case in VECTORS["V6_aes"].values()),
        (ENHANCED, rc4["enhanced_128"]),
        (BASE, rc4["base_40_as_specified"]),
        (ENHANCED, rc2["enhanced_128"]),
        (ENHANCED, rc2["enhanced_40_padded"]),
        (BASE, rc2["base_40_effective_40"]),
    ]


@pytest.mark.spec("QB-2.4.2-03", "QB-2.4.2-04", "QB-3.1.5.8.3-15", "MQ-2.2.20.6-22")
@pytest.mark.parametrize(("key", "case"), _blobs())
def test_a_simple_blob_holds_the_session_key_of_its_vector(key: RSAPrivateKey, case: dict[str, str]) -> None:
    blob = SimpleBlob.decode(bytes.fromhex(case["simpleblob"]))
    assert unwrap_session_key(key, blob).hex() == case["session_key"]
    again = wrap_session_key(
        key.public_key(), CIPHERS_BY_NUMBER[blob.session_key_algorithm], bytes.fromhex(case["session_key"]), Counted()
    )
    assert len(again) == 12 + key.key_size // 8
    assert unwrap_session_key(key, SimpleBlob.decode(again)).hex() == case["session_key"]


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(list(CIPHERS)), st.integers(0, 10**6), st.data())
def test_a_wrapped_key_is_unwrapped_whatever_the_random_bytes(word: str, seed: int, data: st.DataObject) -> None:
    size = CIPHERS[word].key_size
    session_key = data.draw(st.binary(min_size=size, max_size=size))
    blob = wrap_session_key(ADVANCED.public_key(), CIPHERS[word], session_key, Random(seed).randbytes)
    assert unwrap_session_key(ADVANCED, SimpleBlob.decode(blob)) == session_key


def test_the_padding_has_no_zero() -> None:
    """A zero would end the padding early, and shift the session key."""
    zeros = iter([bytes(range(200)), b"\0" * 200])
    blob = wrap_session_key(
        ADVANCED.public_key(), CIPHERS["aes256"], bytes(32), lambda size: next(zeros, b"\7" * size)[:size]
    )
    assert unwrap_session_key(ADVANCED, SimpleBlob.decode(blob)) == bytes(32)


def test_a_session_key_must_fit() -> None:
    with pytest.raises(InvalidArgument, match="512 bits are too few for a session key of 54 bytes"):
        wrap_session_key(BASE.public_key(), CIPHERS["aes256"], bytes(54), Counted())


def test_a_ring_publishes_its_newest_keys() -> None:
    ring = KeyRing.make(made)
    published = decode_public_keys(ring.public_keys)
    assert [key.provider_name for key in published] == [
        "Microsoft Enhanced Cryptographic Provider v1.0",
        "Microsoft Enhanced RSA and AES Cryptographic Provider",
    ]
    assert [key.provider_type for key in published] == [ProviderType.RSA_FULL, ProviderType.RSA_AES]
    assert [key.key_blob.bit_length for key in published] == [2048, 2048]
    rotated = ring.rotated(short)
    assert rotated.private_keys(algorithms.ADVANCED)[1:] == ring.private_keys(algorithms.ADVANCED)
    newest = peer_keys(rotated.public_keys)[PrivacyLevel.ADVANCED]
    assert newest.public_numbers() == rotated.private_keys(algorithms.ADVANCED)[0].public_key().public_numbers()
    assert ring.private_keys(algorithms.BASE) == ()


def test_a_ring_keeps_a_few_previous_keys() -> None:
    ring = KeyRing.make(short)
    for _ in range(MAX_PREVIOUS + 2):
        ring = ring.rotated(short)
    assert len(ring.private_keys(algorithms.ENHANCED)) == 1 + MAX_PREVIOUS


def test_a_ring_is_read_back_from_its_text() -> None:
    ring = KeyRing.make(short).rotated(short)
    again = KeyRing.from_pem(ring.to_pem())
    assert again.public_keys == ring.public_keys
    assert {level: [key.private_numbers() for key in keys] for level, keys in again.keys.items()} == {
        level: [key.private_numbers() for key in keys] for level, keys in ring.keys.items()
    }
    assert again.to_pem() == ring.to_pem()
    assert KeyRing.from_pem(RING.to_pem()).to_pem() == RING.to_pem()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda text: "", "must have lines 'provider: '"),
        (lambda text: text.replace("advanced", "best"), "must be one of advanced, enhanced, base, got 'best'"),
        (lambda text: text.replace("-----BEGIN PRIVATE KEY-----", "", 1), "one private key must follow"),
        (lambda text: text.replace("M", "!", 1), "cannot be read"),
        (lambda text: text.replace("provider: advanced\n", ""), "one private key must follow .* got 2"),
    ],
)
def test_other_text_is_refused(change: object, fault: str) -> None:
    text = KeyRing({PrivacyLevel.ENHANCED: (ENHANCED,), PrivacyLevel.ADVANCED: (ADVANCED,)}).to_pem()
    with pytest.raises(InvalidArgument, match=fault):
        KeyRing.from_pem(change(text))  # type: ignore[operator]


def test_a_key_that_is_not_rsa_is_refused() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(InvalidArgument, match="must be an RSA key"):
        KeyRing.from_pem("provider: advanced\n" + pem.decode())
