"""Encrypted bodies, [MS-MQQB] 3.1.7.1.5 and 3.1.5.8.3."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError
from postroad.security import algorithms, encryption
from postroad.security.algorithms import CIPHERS, CIPHERS_BY_NUMBER, PROVIDERS
from postroad.security.encryption import KEY_LIFETIME_S, RECEIVE_KEYS, Decrypted, ReceiveCache, SessionKey, TimedCache
from postroad.security.keys import KeyRing, wrap_session_key
from postroad.security.refusals import Reason, Refused, bad_encryption
from postroad.security.signatures import Verified, verify
from postroad.wire.constants import PrivacyLevel
from postroad.wire.headers import ProviderInfo
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.security_vectors import (
    ADVANCED,
    CERTIFICATE,
    ENHANCED,
    PLAIN,
    RING,
    SENDER,
    SIGNED_2_0,
    SIGNED_3_0,
    SIGNED_AND_ENCRYPTED,
    VECTORS,
    Counted,
    vector,
    with_body,
)

NOT_DECRYPTED = bad_encryption(Reason.NOT_DECRYPTED)


def cache() -> ReceiveCache:
    return TimedCache(RECEIVE_KEYS, KEY_LIFETIME_S)


def opened(packet: bytes, ring: KeyRing = RING, known: ReceiveCache | None = None) -> Decrypted | Refused:
    return encryption.decrypt(MessageView(packet), ring, cache() if known is None else known, 0.0, CIPHERS)


def encrypt(packet: bytes, with_key: SessionKey) -> bytes:
    return encryption.encrypt(MessageView(packet), with_key)


def session(word: str = "aes256", level: PrivacyLevel | None = None) -> SessionKey:
    provider = PROVIDERS[CIPHERS[word].level if level is None else level]
    return SessionKey.make(provider, CIPHERS[word], RING.private_keys(provider)[0].public_key(), Counted())


def changed(packet: bytes, **properties: object) -> bytes:
    message = UserMessage.decode(packet)
    return replace(message, properties=replace(message.properties, **properties)).encode()  # type: ignore[arg-type]


def with_blob(packet: bytes, blob: bytes) -> bytes:
    message = UserMessage.decode(packet)
    assert message.security is not None
    return replace(message, security=replace(message.security, encryption_key=blob, padding=b"")).encode()


@pytest.mark.spec("QB-3.1.5.8.3-15", "QB-3.1.5.8.3-20", "QB-3.1.5.8.3-22", "MQ-2.2.20.6-09")
def test_the_vector_is_decrypted_and_its_signature_is_right() -> None:
    found = opened(SIGNED_AND_ENCRYPTED)
    assert isinstance(found, Decrypted)
    assert found.cipher == "aes256"
    assert verify(found.packet, CERTIFICATE) == Verified(3, "2.0", "sha512")
    before, after = UserMessage.decode(SIGNED_AND_ENCRYPTED), UserMessage.decode(found.packet)
    assert after.properties == replace(
        before.properties, body=bytes.fromhex(VECTORS["V6_aes"]["0x6610"]["plain"]), message_size=18
    )
    assert before.security is not None
    assert after.security == replace(before.security, flags=before.security.flags & ~0x20)  # EB
    assert (after.properties.privacy_level, after.properties.encryption_algorithm) == (5, 0x6610)
    assert len(found.packet) == MessageView(found.packet).packet_size


@pytest.mark.spec(
    "QB-3.1.7.1.5-01",
    "QB-3.1.7.1.5-18",
    "QB-3.1.7.1.5-19",
    "QB-3.1.7.1.5-21",
    "QB-3.1.7.1.5-23",
    "QB-3.1.7.1-04",
    "DM-3.1.7.1.32-05",
)
def test_encrypting_the_signed_vector_gives_the_encrypted_one() -> None:
    """Except for ProviderInfo, which we write and the vector leaves out."""
    key, blob = vector("V9_signed_then_encrypted", "session_key"), MessageView(SIGNED_AND_ENCRYPTED).security_header
    assert blob is not None
    packet = encrypt(SIGNED_2_0, SessionKey(algorithms.ADVANCED, CIPHERS["aes256"], key, blob.encryption_key))
    message = UserMessage.decode(packet)
    assert message.security is not None
    security = replace(message.security, flags=message.security.flags | 0x40, provider_info=b"", padding=b"")
    assert replace(message, security=security).encode() == SIGNED_AND_ENCRYPTED


@pytest.mark.spec("QB-3.1.7.1.5-22")
@pytest.mark.parametrize("word", CIPHERS)
def test_the_provider_is_named_and_its_level_is_written(word: str) -> None:
    packet = encrypt(PLAIN, session(word))
    view = MessageView(packet)
    header = view.security_header
    assert header is not None
    provider = PROVIDERS[view.privacy_level]
    assert provider.level is CIPHERS[word].level
    assert ProviderInfo.decode(header.provider_info) == ProviderInfo(provider.provider_type, provider.name)
    assert not header.default_provider
    assert header.encrypted_body
    assert (view.message_size, len(view.body)) == (18, len(CIPHERS[word].encrypt(bytes(16), bytes(18))))


def _vectors() -> list[tuple[int, int, dict[str, str]]]:
    rc4, rc2 = VECTORS["V7_rc4"], VECTORS["V8_rc2"]
    return [
        *((5, int(number, 16), case) for number, case in VECTORS["V6_aes"].items()),
        (3, 0x6801, rc4["enhanced_128"]),
        (1, 0x6801, rc4["base_40_as_specified"]),
        (3, 0x6602, rc2["enhanced_128"]),
        (1, 0x6602, rc2["base_40_effective_40"]),
    ]


@pytest.mark.spec("QB-3.1.5.8.3-12", "QB-3.1.5.8.3-15", "QB-3.1.5.8.3-20", "QB-3.1.7.1.5-14")
@pytest.mark.parametrize(("level", "number", "case"), _vectors())
def test_every_cipher_of_the_vectors_works_in_a_packet(level: int, number: int, case: dict[str, str]) -> None:
    key, blob = bytes.fromhex(case["session_key"]), bytes.fromhex(case["simpleblob"])
    packet = encrypt(PLAIN, SessionKey(PROVIDERS[level], CIPHERS_BY_NUMBER[number], key, blob))
    assert MessageView(packet).body.hex() == case["body"]
    found = opened(packet)
    assert isinstance(found, Decrypted)
    assert MessageView(found.packet).body.hex() == case["plain"]


@pytest.mark.spec("QB-3.1.5.8.3-19", "QB-3.1.3.1-16", "QB-6-26")
def test_a_key_of_40_bits_in_128_is_refused_by_default() -> None:
    case = VECTORS["V8_rc2"]["enhanced_40_padded"]
    key, blob = bytes.fromhex(case["session_key"]), bytes.fromhex(case["simpleblob"])
    packet = encrypt(PLAIN, SessionKey(algorithms.ENHANCED, CIPHERS["rc2"], key, blob))
    assert MessageView(packet).body.hex() == case["body"]
    assert opened(packet) == NOT_DECRYPTED
    found = encryption.decrypt(MessageView(packet), RING, cache(), 0.0, CIPHERS, reject_padded_rc2=False)
    assert isinstance(found, Decrypted)
    assert MessageView(found.packet).body.hex() == case["plain"]


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=70), st.sampled_from(list(CIPHERS)), st.sampled_from([PLAIN, SIGNED_2_0, SIGNED_3_0]))
def test_what_is_encrypted_is_decrypted(body: bytes, word: str, message: bytes) -> None:
    plain = with_body(message, body)
    packet = encrypt(plain, session(word))
    view = MessageView(packet)
    assert view.encrypted
    assert view.message_size == len(body)
    found = opened(packet)
    assert isinstance(found, Decrypted)
    before, after = UserMessage.decode(plain), UserMessage.decode(found.packet)
    assert after.properties.body == body
    assert (after.user.flags | 0x80000, after.multi_queue) == (before.user.flags | 0x80000, before.multi_queue)
    if before.security is not None:
        assert after.security is not None
        assert after.security.signature == before.security.signature
        assert after.security.security_id == before.security.security_id


@pytest.mark.spec("QB-3.1.5.8.3-13", "MQ-2.2.19.3-23")
@pytest.mark.parametrize("level", [0, 2, 4, 6, 0xFFFFFFFF])
def test_an_undefined_privacy_level_is_refused(level: int) -> None:
    packet = changed(SIGNED_AND_ENCRYPTED, privacy_level=level)
    assert opened(packet) == bad_encryption(Reason.PRIVACY_LEVEL)


@pytest.mark.spec("MQ-2.2.19.3-28", "MQ-2.2.19.3-29")
@pytest.mark.parametrize(("level", "number"), [(5, 0), (5, 0x6611), (5, 0x6801), (5, 0x6602), (3, 0x6610), (1, 0x660E)])
def test_a_cipher_must_be_known_and_fit_its_level(level: int, number: int) -> None:
    packet = changed(SIGNED_AND_ENCRYPTED, privacy_level=level, encryption_algorithm=number)
    assert opened(packet) == bad_encryption(Reason.CIPHER_REFUSED)


@pytest.mark.parametrize("word", CIPHERS)
def test_a_cipher_must_be_accepted(word: str) -> None:
    packet = encrypt(PLAIN, session(word))
    for accepted in ([], [other for other in CIPHERS if other != word]):
        assert encryption.decrypt(MessageView(packet), RING, cache(), 0.0, accepted) == bad_encryption(
            Reason.CIPHER_REFUSED
        )
    by_default = encryption.decrypt(MessageView(packet), RING, cache(), 0.0)
    assert isinstance(by_default, Decrypted) is word.startswith("aes")


def _wrong() -> dict[str, bytes]:
    good = SIGNED_AND_ENCRYPTED
    view = MessageView(good)
    header = view.security_header
    assert header is not None
    blob, body = header.encryption_key, view.body
    aes = CIPHERS["aes256"]

    def wrapped(key: bytes) -> bytes:
        return wrap_session_key(ADVANCED.public_key(), aes, key, Counted())

    other = rsa.generate_private_key(65537, 1024)
    key = vector("V9_signed_then_encrypted", "session_key")
    return {
        "a byte of the blob": with_blob(good, blob[:-1] + bytes((blob[-1] ^ 1,))),
        "a blob of zeros": with_blob(good, blob[:12] + bytes(128)),
        "a blob above the modulus": with_blob(good, blob[:12] + b"\xff" * 128),
        "a short blob": with_blob(good, blob[:-1]),
        "a long blob": with_blob(good, blob + b"\0"),
        "a blob without a key": with_blob(good, blob[:12]),
        "no blob": with_blob(good, b""),
        "no marks": with_blob(good, bytes(len(blob))),
        "a blob of another cipher": with_blob(good, blob[:4] + (0x660E).to_bytes(4, "little") + blob[8:]),
        "a key for another manager": with_blob(good, wrap_session_key(other.public_key(), aes, key, Counted())),
        "a key for another provider": with_blob(good, wrap_session_key(ENHANCED.public_key(), aes, key, Counted())),
        "a session key that is too short": with_blob(good, wrapped(key[:16])),
        "a session key that is too long": with_blob(good, wrapped(key + key)),
        "an empty session key": with_blob(good, wrapped(b"")),
        "another session key": with_blob(good, wrapped(bytes(32))),
        "the last byte of the body": changed(good, body=body[:-1] + bytes((body[-1] ^ 1,))),
        "half a block": changed(good, body=body[:-8]),
        "one block less": changed(good, body=body[:16], message_size=16),
        "no body": changed(good, body=b"", message_size=0),
        "a MessageSize that is too small": changed(good, message_size=17),
        "a MessageSize that is too large": changed(good, message_size=19),
    }


WRONG = _wrong()


@pytest.mark.spec("QB-3.1.5.8.3-21")
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("warm", [False, True])
def test_everything_that_is_wrong_gives_the_same_answer(what: str, warm: bool) -> None:
    known = cache()
    if warm:
        assert isinstance(opened(SIGNED_AND_ENCRYPTED, known=known), Decrypted)
    assert opened(WRONG[what], known=known) == NOT_DECRYPTED
    assert opened(WRONG[what], known=known) == NOT_DECRYPTED
    assert len(known) == (1 if warm else 0)  # a key that opens nothing is not kept


def test_a_manager_without_a_key_of_the_level_gives_that_answer_too() -> None:
    assert opened(SIGNED_AND_ENCRYPTED, KeyRing({PrivacyLevel.ENHANCED: (ENHANCED,)})) == NOT_DECRYPTED


@pytest.mark.spec("QB-3.1.5.8.3-14", "QB-3.1.5.8.3-16", "QB-3.1.1.3.3-01", "QB-3.1.1.3-03", "QB-6-29")
def test_a_known_session_key_needs_no_private_key() -> None:
    known = cache()
    assert isinstance(opened(SIGNED_AND_ENCRYPTED, known=known), Decrypted)
    nothing = KeyRing({})
    assert isinstance(opened(SIGNED_AND_ENCRYPTED, nothing, known), Decrypted)
    message = UserMessage.decode(SIGNED_AND_ENCRYPTED)
    other_source = replace(message, user=replace(message.user, source_queue_manager=message.user.queue_manager_address))
    assert opened(other_source.encode(), nothing, known) == NOT_DECRYPTED
    assert (
        encryption.decrypt(MessageView(SIGNED_AND_ENCRYPTED), nothing, known, KEY_LIFETIME_S + 1, CIPHERS)
        == NOT_DECRYPTED
    )


@pytest.mark.parametrize("word", CIPHERS)
def test_a_message_from_before_a_rotation_is_decrypted(word: str) -> None:
    packet = encrypt(PLAIN, session(word))
    rotated = RING.rotated(lambda bits: SENDER)  # not a random one: in 1 of 250 it fits RC4 by chance
    found = opened(packet, rotated)
    assert isinstance(found, Decrypted)
    assert MessageView(found.packet).body == MessageView(PLAIN).body


def test_two_keys_that_fit_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """RC4 cannot tell which key is right, and a wrong one gives nonsense. The same key twice counts as one."""
    packet = encrypt(PLAIN, session("rc4"))
    twice = KeyRing({PrivacyLevel.ENHANCED: (ENHANCED, ENHANCED)})
    assert isinstance(opened(packet, twice), Decrypted)
    found = iter((bytes(16), b"1" * 16))
    monkeypatch.setattr(encryption, "unwrap_session_key", lambda key, blob: next(found))
    assert opened(packet, twice) == NOT_DECRYPTED


def test_a_message_is_encrypted_once_and_decrypted_when_it_is() -> None:
    with pytest.raises(LocalProtocolError, match="already encrypted"):
        encrypt(SIGNED_AND_ENCRYPTED, session())
    with pytest.raises(LocalProtocolError, match="not encrypted"):
        opened(SIGNED_2_0)


def test_a_message_that_gets_too_large_is_not_encrypted() -> None:
    large = with_body(PLAIN, bytes(0x400000 - len(PLAIN) - 100))
    with pytest.raises(LocalProtocolError, match="make the body smaller"):
        encrypt(large, session())
