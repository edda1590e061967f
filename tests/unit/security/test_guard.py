"""Both ends of message security, [MS-MQQB] 3.1.5.8.3 and 3.1.7.1.5."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from postroad.errors import InvalidArgument, RemoteProtocolError
from postroad.message import Signature
from postroad.security.algorithms import CIPHERS, PROVIDERS, MissingLibrary
from postroad.security.descriptors import Sid
from postroad.security.encryption import CERTIFICATE_LIFETIME_S, KEY_LIFETIME_S
from postroad.security.guard import Guard, Opened, Sealer, arrived_encrypted, is_secured
from postroad.security.keys import KeyRing
from postroad.security.refusals import Reason, Refused, bad_encryption, bad_signature, not_encrypted
from postroad.security.signatures import LISTED, PROFILES, VERSIONS, attach, sign
from postroad.wire.constants import PrivacyLevel, QueueCode
from postroad.wire.headers import ProviderInfo, SecurityHeader
from postroad.wire.queue_names import QueueField
from postroad.wire.records import DsPublicKey, ProviderType, decode_public_keys, encode_public_keys
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.security_vectors import (
    BASE,
    CERTIFICATE,
    PLAIN,
    REGISTERED,
    RING,
    SENDER,
    SID,
    SIGNED_1_0,
    SIGNED_2_0,
    SIGNED_3_0,
    SIGNED_AND_ENCRYPTED,
    Counted,
    certificate_of,
    unsigned,
    vector,
    with_body,
)
from tests.vectors import FRAME_7

PUBLISHED = vector("V1_directory_keys", "mqdspublickeys")
SOURCE = MessageView(PLAIN).source_queue_manager
ALL_HASHES = ("sha512", "sha256", "sha1", "md5")


def guard(certificates: Mapping[str, tuple[bytes, ...]] | None = None, **more: object) -> Guard:
    return Guard(RING, REGISTERED if certificates is None else certificates, **more)  # type: ignore[arg-type]


def with_header(packet: bytes, **changes: object) -> bytes:
    message = UserMessage.decode(packet)
    header = replace(message.security or SecurityHeader(), padding=b"", **changes)  # type: ignore[arg-type]
    return replace(message, security=header).encode()


def authentication_signature(packet: bytes) -> int:
    """The field AS."""
    header = MessageView(packet).security_header
    assert header is not None
    return header.flags >> 8 & 0xF


@pytest.mark.spec(
    "QB-3.1.5.8.3-02", "QB-3.1.5.8.3-03", "QB-3.1.5.8.3-04", "QB-3.1.5.8.3-06", "QB-3.1.5.8.3-07", "MQ-2.2.20.6-04"
)
@pytest.mark.parametrize(
    ("packet", "level", "word"), [(SIGNED_1_0, 1, "sha1"), (SIGNED_2_0, 3, "sha512"), (SIGNED_3_0, 5, "sha256")]
)
def test_a_signed_message_says_who_sent_it(packet: bytes, level: int, word: str) -> None:
    found = guard(accepted_hashes=ALL_HASHES, accepted_versions=VERSIONS).open(packet, 0.0)
    assert isinstance(found, Opened)
    assert (found.authentication_level, found.hash, found.cipher, found.sender) == (level, word, None, SID.encode())
    assert authentication_signature(found.packet) == level
    header = MessageView(packet).security_header
    assert header is not None
    assert found.packet == with_header(packet, flags=header.flags | level << 8)


@pytest.mark.spec("QB-3.1.5.8.3-22", "QB-3.1.7.1-04", "MQ-2.2.20.6-09")
def test_a_message_that_is_signed_and_encrypted_is_both() -> None:
    found = guard().open(SIGNED_AND_ENCRYPTED, 0.0)
    assert isinstance(found, Opened)
    assert (found.authentication_level, found.hash, found.cipher, found.sender) == (3, "sha512", "aes256", SID.encode())
    assert MessageView(found.packet).body == MessageView(SIGNED_2_0).body
    assert not MessageView(found.packet).encrypted
    assert arrived_encrypted(MessageView(found.packet))


@pytest.mark.spec("QB-3.1.5.8.3-05")
@pytest.mark.parametrize("packet", [SIGNED_2_0, SIGNED_3_0])
def test_a_changed_message_is_refused(packet: bytes) -> None:
    assert guard().open(with_body(packet, b"more boxes"), 0.0) == bad_signature(Reason.WRONG_SIGNATURE)
    assert bad_signature(Reason.WRONG_SIGNATURE).acknowledgment == 0x8006
    assert bad_encryption(Reason.NOT_DECRYPTED).acknowledgment == 0x8007


@pytest.mark.spec("QB-3.1.5.8.3-11")
@pytest.mark.parametrize(
    "certificates",
    [
        {},
        {str(SID): ()},
        {str(SID): (CERTIFICATE[:-1],)},
        {"S-1-5-21-1-2-3-1001": (CERTIFICATE,)},
    ],
)
def test_a_certificate_must_be_registered_for_its_sender(certificates: dict[str, tuple[bytes, ...]]) -> None:
    assert guard(certificates).open(SIGNED_2_0, 0.0) == bad_signature(Reason.NOT_REGISTERED)


def test_one_of_several_registered_certificates_is_enough() -> None:
    found = guard({str(SID): (b"another", CERTIFICATE)}).open(SIGNED_2_0, 0.0)
    assert isinstance(found, Opened)


def test_nobody_takes_the_name_of_a_registered_sender() -> None:
    other = rsa.generate_private_key(65537, 1024)
    packet = sign(PLAIN, other, certificate_of(other), "2.0", "sha512", LISTED, SID)
    assert guard().open(packet, 0.0) == bad_signature(Reason.NOT_REGISTERED)
    mine = {"S-1-5-21-1-2-3-1001": (certificate_of(other),)} | REGISTERED
    assert guard(mine).open(packet, 0.0) == bad_signature(Reason.NOT_REGISTERED)


def test_a_sender_that_is_no_sid_is_refused() -> None:
    assert guard().open(with_header(SIGNED_2_0, security_id=b"\2" * 12), 0.0) == bad_signature(Reason.NOT_REGISTERED)


@pytest.mark.spec("MQ-2.2.20.6-03")
def test_a_signed_message_without_a_sender_is_authenticated_and_anonymous() -> None:
    found = guard({}).open(sign(PLAIN, SENDER, CERTIFICATE), 0.0)
    assert isinstance(found, Opened)
    assert (found.authentication_level, found.sender) == (3, None)


@pytest.mark.spec("MQ-2.2.20.6-05")
def test_a_manager_signs_with_its_own_certificate() -> None:
    packet = sign(PLAIN, SENDER, CERTIFICATE, "2.0", "sha512", LISTED, SOURCE)
    found = guard({}, manager_certificates={SOURCE: (CERTIFICATE,)}.__getitem__).open(packet, 0.0)
    assert isinstance(found, Opened)
    assert (found.authentication_level, found.sender) == (3, None)
    assert guard().open(packet, 0.0) == bad_signature(Reason.NOT_REGISTERED)
    another = UUID(int=7)
    both = {SOURCE: (CERTIFICATE,), another: (CERTIFICATE,)}
    packet = sign(PLAIN, SENDER, CERTIFICATE, "2.0", "sha512", LISTED, another)
    assert guard({}, manager_certificates=lambda manager: both.get(manager, ())).open(packet, 0.0) == bad_signature(
        Reason.NOT_REGISTERED
    )


@pytest.mark.parametrize("sender", [SID, None])
def test_a_signature_without_a_certificate_is_refused(sender: Sid | None) -> None:
    packet = sign(PLAIN, SENDER, b"", "2.0", "sha512", LISTED, sender)
    assert guard().open(packet, 0.0) == bad_signature(Reason.NO_CERTIFICATE)


def test_a_registered_certificate_with_a_short_key_is_refused() -> None:
    weak = certificate_of(BASE)
    packet = attach(PLAIN, Signature(bytes(64), weak, sender_id=str(SID)))
    assert guard({str(SID): (weak,)}).open(packet, 0.0) == bad_signature(Reason.WEAK_KEY)


@pytest.mark.spec("MQ-2.2.19.3-25", "QB-6-01")
def test_a_hash_counts_only_where_there_is_a_signature() -> None:
    assert guard().open(SIGNED_1_0, 0.0) == bad_signature(Reason.HASH_REFUSED)
    message = UserMessage.decode(with_header(PLAIN, flags=1, security_id=SID.encode()))
    odd = replace(message, properties=replace(message.properties, hash_algorithm=1, encryption_algorithm=2)).encode()
    assert guard().open(odd, 0.0) == Opened(odd)


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_configured_profile_is_tried(profile: str) -> None:
    packet = sign(PLAIN, SENDER, CERTIFICATE, "2.0", "sha512", PROFILES[profile], SID)
    for word, each in PROFILES.items():
        assert isinstance(guard(profile=each).open(packet, 0.0), Opened) is (word == profile)


@pytest.mark.spec("MQ-2.2.20.6-06", "MQ-2.2.20.6-07", "MQ-2.2.20.6-14")
def test_nobody_says_of_himself_that_he_is_authenticated() -> None:
    claimed = with_header(PLAIN, flags=0x0311, security_id=SID.encode())
    assert is_secured(MessageView(claimed))
    found = guard().open(claimed, 0.0)
    assert found == Opened(with_header(PLAIN, flags=1, security_id=SID.encode()))
    lie = with_header(SIGNED_2_0, flags=0xC1 | 0x0F10)
    found = guard().open(lie, 0.0)
    assert isinstance(found, Opened)
    assert authentication_signature(found.packet) == 3
    encrypted = with_header(SIGNED_AND_ENCRYPTED, flags=0xE1 | 0x0F10, signature=b"", sender_certificate=b"")
    found = guard().open(encrypted, 0.0)
    assert isinstance(found, Opened)
    assert (found.authentication_level, authentication_signature(found.packet)) == (0, 0)


def test_nobody_says_of_a_plain_message_that_it_arrived_encrypted() -> None:
    message = UserMessage.decode(with_header(SIGNED_2_0, encryption_key=b"a blob"))
    packet = replace(message, properties=replace(message.properties, privacy_level=5)).encode()
    assert is_secured(MessageView(packet))
    found = guard().open(packet, 0.0)
    assert isinstance(found, Opened)
    assert found.cipher is None
    assert found.authentication_level == 3
    assert not arrived_encrypted(MessageView(found.packet))
    assert MessageView(found.packet).privacy_level == 0


@pytest.mark.spec("MQ-2.2.20.6-11")
def test_a_signature_says_which_provider_made_it() -> None:
    assert guard().open(with_header(SIGNED_2_0, flags=0x81), 0.0) == bad_signature(Reason.UNKNOWN_PROVIDER)
    named = ProviderInfo(1, "Microsoft Enhanced Cryptographic Provider, v1.0").encode()
    assert isinstance(guard().open(with_header(SIGNED_2_0, flags=0x81, provider_info=named), 0.0), Opened)


@pytest.mark.parametrize("info", [ProviderInfo(1, "Acme").encode(), b"\1\0"])
@pytest.mark.parametrize("packet", [SIGNED_2_0, SIGNED_AND_ENCRYPTED])
def test_an_unknown_provider_has_its_own_answer(packet: bytes, info: bytes) -> None:
    found = guard().open(with_header(packet, provider_info=info), 0.0)
    assert found == Refused(0x800B, Reason.UNKNOWN_PROVIDER)


def test_a_wrong_encryption_is_reported_before_a_wrong_signature() -> None:
    packet = with_header(SIGNED_AND_ENCRYPTED, encryption_key=b"nonsense", signature=b"nonsense")
    assert guard().open(packet, 0.0) == bad_encryption(Reason.NOT_DECRYPTED)
    assert guard(accepted_ciphers=()).open(SIGNED_AND_ENCRYPTED, 0.0) == bad_encryption(Reason.CIPHER_REFUSED)


def test_bytes_that_are_not_a_packet_are_not_a_message() -> None:
    with pytest.raises(RemoteProtocolError):
        guard().open(SIGNED_2_0[:-1], 0.0)


def test_a_message_without_security_is_left_as_it_is() -> None:
    for packet in (PLAIN, FRAME_7, unsigned(SIGNED_3_0)):
        assert not is_secured(MessageView(packet))
        assert guard().open(packet, 0.0) == Opened(packet)


@pytest.mark.parametrize("packet", [SIGNED_1_0, SIGNED_2_0, SIGNED_3_0, SIGNED_AND_ENCRYPTED])
def test_the_loop_sees_what_is_secured(packet: bytes) -> None:
    assert is_secured(MessageView(packet))


class Watched(Mapping[str, tuple[bytes, ...]]):
    """A directory that counts how often it is read."""

    def __init__(self, registered: Mapping[str, tuple[bytes, ...]]) -> None:
        self.registered = registered
        self.readings = 0

    def __getitem__(self, sid: str) -> tuple[bytes, ...]:
        self.readings += 1
        return self.registered[sid]

    def __iter__(self) -> Iterator[str]:
        return iter(self.registered)

    def __len__(self) -> int:
        return len(self.registered)


@pytest.mark.spec(
    "QB-3.1.5.8.3-06", "QB-3.1.5.8.3-07", "QB-3.1.5.8.3-08", "QB-3.1.1.3.4-01", "QB-3.1.3.1-03", "QB-3.1.6.13-01"
)
def test_a_certificate_is_looked_up_once_in_20_minutes() -> None:
    directory = Watched(REGISTERED)
    checked = guard(directory)
    assert len(checked.known_certificates) == 0
    for now in (0.0, 1.0, CERTIFICATE_LIFETIME_S):
        assert isinstance(checked.open(SIGNED_2_0, now), Opened)
    assert directory.readings == 1
    assert isinstance(checked.open(SIGNED_2_0, CERTIFICATE_LIFETIME_S + 1), Opened)
    assert directory.readings == 2
    checked.use_certificates({})
    assert checked.open(SIGNED_2_0, CERTIFICATE_LIFETIME_S + 2) == bad_signature(Reason.NOT_REGISTERED)


def test_a_known_certificate_is_known_for_its_own_sender_only() -> None:
    checked = guard()
    assert isinstance(checked.open(SIGNED_2_0, 0.0), Opened)
    other = Sid.decode(SID.encode()[:-4] + b"\1\2\3\4")
    packet = with_header(SIGNED_2_0, security_id=other.encode())
    assert checked.open(packet, 0.0) == bad_signature(Reason.NOT_REGISTERED)
    assert isinstance(checked.open(sign(PLAIN, SENDER, CERTIFICATE), 0.0), Opened)  # anonymous
    packet = with_header(SIGNED_2_0, flags=0xC2, security_id=SOURCE.bytes_le)
    assert checked.open(packet, 0.0) == bad_signature(Reason.NOT_REGISTERED)


def test_a_refused_certificate_is_not_remembered() -> None:
    checked = guard({})
    checked.open(SIGNED_2_0, 0.0)
    assert len(checked.known_certificates) == 0


@pytest.mark.spec("QB-3.1.3.1-06", "QB-3.1.5.8.3-14", "QB-3.1.5.8.3-16", "QB-3.1.6.10-01", "QB-3.1.6.10-02")
def test_a_session_key_is_known_for_ten_minutes() -> None:
    checked = guard()
    assert len(checked.session_keys) == 0
    assert checked.cleanup(0.0) is None
    assert isinstance(checked.open(SIGNED_AND_ENCRYPTED, 0.0), Opened)
    checked.use_keys(KeyRing({}))
    assert isinstance(checked.open(SIGNED_AND_ENCRYPTED, KEY_LIFETIME_S), Opened)
    assert checked.cleanup(KEY_LIFETIME_S) == 60.0
    assert checked.cleanup(KEY_LIFETIME_S + 60) == CERTIFICATE_LIFETIME_S + 60.0 - (KEY_LIFETIME_S + 60)
    assert len(checked.session_keys) == 0
    assert checked.open(SIGNED_AND_ENCRYPTED, KEY_LIFETIME_S + 60) == bad_encryption(Reason.NOT_DECRYPTED)


def test_a_missing_library_is_reported_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Cryptodome", None)
    guard()
    with pytest.raises(MissingLibrary, match="md4"):
        guard(accepted_hashes=("sha512", "md4"))
    with pytest.raises(MissingLibrary, match="rc2"):
        guard(accepted_ciphers=("aes256", "rc2"))


# The sending side


@pytest.mark.spec(
    "QB-3.1.7.1.5-01", "QB-3.1.7.1.5-05", "QB-3.1.7.1.5-10", "QB-3.1.7.1.5-12", "QB-3.1.7.1.5-14", "QB-5.1-01"
)
@pytest.mark.parametrize("word", CIPHERS)
@pytest.mark.parametrize("packet", [PLAIN, SIGNED_2_0])
def test_what_is_sealed_can_be_opened(word: str, packet: bytes) -> None:
    sealed = Sealer(Counted()).seal(packet, PUBLISHED, word, 0.0)
    assert isinstance(sealed, bytes)
    view = MessageView(sealed)
    assert view.body != MessageView(packet).body
    assert (view.encryption_algorithm, view.privacy_level) == (CIPHERS[word].number, CIPHERS[word].level)
    found = guard(accepted_ciphers=tuple(CIPHERS)).open(sealed, 0.0)
    assert isinstance(found, Opened)
    assert (found.cipher, found.authentication_level) == (word, 3 if packet is SIGNED_2_0 else 0)
    assert MessageView(found.packet).body == MessageView(packet).body


@pytest.mark.spec("QB-3.1.7.1.5-02")
def test_a_direct_name_cannot_be_sealed() -> None:
    message = UserMessage.decode(PLAIN)
    for field in (QueueField(QueueCode.DIRECT, direct_name="OS:beta\\q"), QueueField()):
        packet = replace(message, user=replace(message.user, destination_queue=field)).encode()
        assert Sealer(Counted()).seal(packet, PUBLISHED, "aes256", 0.0) == not_encrypted(Reason.DIRECT_NAME)
    private = QueueField(QueueCode.PRIVATE_ON_DESTINATION, 5)
    packet = replace(message, user=replace(message.user, destination_queue=private)).encode()
    assert isinstance(Sealer(Counted()).seal(packet, PUBLISHED, "aes256", 0.0), bytes)
    assert not_encrypted(Reason.DIRECT_NAME).acknowledgment == 0x8008


def published(*levels: PrivacyLevel) -> bytes:
    order = (PrivacyLevel.BASE, PrivacyLevel.ENHANCED, PrivacyLevel.ADVANCED)
    keys: list[DsPublicKey] = [
        key for level, key in zip(order, decode_public_keys(PUBLISHED), strict=True) if level in levels
    ]
    return encode_public_keys(keys)


@pytest.mark.spec("QB-3.1.7.1.5-06", "QB-3.1.7.1.5-07", "QB-3.1.7.1.5-08", "QB-6-32", "QB-3.1.3.1-15")
@pytest.mark.parametrize(
    ("levels", "word", "used", "bits"),
    [
        ((1, 3, 5), "aes256", 5, 256),
        ((1, 3), "aes256", None, 0),
        ((1, 3), "rc4", 3, 128),
        ((1, 3), "rc2", 3, 128),
        ((5,), "rc4", None, 0),
        ((1,), "rc4", None, 0),
        ((1,), "rc2", None, 0),
        ((1,), "aes128", None, 0),
        ((), "aes256", None, 0),
    ],
)
def test_the_provider_is_the_strongest_that_the_peer_publishes(
    levels: tuple[int, ...], word: str, used: int | None, bits: int
) -> None:
    sealer = Sealer(Counted(), min_bits=512)
    keys = published(*map(PrivacyLevel, levels))
    sealed = sealer.seal(PLAIN, keys, word, 0.0)
    if used is None:
        assert sealed == not_encrypted(Reason.NO_PUBLIC_KEY)
        return
    assert isinstance(sealed, bytes)
    assert MessageView(sealed).privacy_level == used
    address = MessageView(PLAIN).queue_manager_address_bytes
    session = sealer.session_keys.get((address, word, keys), 0.0)
    assert session is not None
    assert 8 * len(session.key) == bits
    assert isinstance(guard(accepted_ciphers=tuple(CIPHERS)).open(sealed, 0.0), Opened)


@pytest.mark.parametrize("word", ["rc4", "rc2"])
def test_a_base_key_of_any_length_is_not_used(word: str) -> None:
    """The length says nothing about the ciphers: those of the Base provider have 40 bits."""
    advanced = decode_public_keys(PUBLISHED)[2]
    (name,) = (each.name for each in PROVIDERS.values() if each.level == PrivacyLevel.BASE)
    keys = encode_public_keys([DsPublicKey(ProviderType.RSA_FULL, name, advanced.key)])
    assert Sealer(Counted()).seal(PLAIN, keys, word, 0.0) == not_encrypted(Reason.NO_PUBLIC_KEY)


def test_a_short_key_of_a_peer_is_not_used() -> None:
    sealed = Sealer(Counted()).seal(PLAIN, published(PrivacyLevel.BASE), "rc4", 0.0)
    assert sealed == not_encrypted(Reason.NO_PUBLIC_KEY)


def test_public_keys_that_cannot_be_read_seal_nothing() -> None:
    assert Sealer(Counted()).seal(PLAIN, b"nonsense", "aes256", 0.0) == not_encrypted(Reason.NO_PUBLIC_KEY)


@pytest.mark.spec("QB-3.1.7.1.5-11", "QB-3.1.7.1.5-12", "QB-3.1.7.1.5-15", "QB-3.1.3.1-08", "QB-3.1.6.11-01")
def test_a_session_key_is_reused_for_ten_minutes() -> None:
    sealer = Sealer(Counted())
    assert len(sealer.session_keys) == 0

    def blob(now: float, word: str = "aes256", keys: bytes = PUBLISHED, packet: bytes = PLAIN) -> bytes:
        sealed = sealer.seal(packet, keys, word, now)
        assert isinstance(sealed, bytes)
        header = MessageView(sealed).security_header
        assert header is not None
        return header.encryption_key

    first = blob(0.0)
    assert blob(KEY_LIFETIME_S) == first
    assert blob(1.0, packet=SIGNED_2_0) == first
    message = UserMessage.decode(PLAIN)
    elsewhere = replace(message, user=replace(message.user, queue_manager_address=UUID(int=9))).encode()
    others = {
        blob(2.0, "aes128"),
        blob(2.0, packet=elsewhere),
        blob(2.0, keys=published(PrivacyLevel.ADVANCED)),
        blob(KEY_LIFETIME_S + 1),
    }
    assert len(others - {first}) == 4
    assert sealer.cleanup(KEY_LIFETIME_S + 1) is not None


@pytest.mark.spec("QB-3.1.7.1.5-20")
def test_what_cannot_be_sealed_is_refused() -> None:
    sealer = Sealer(Counted())
    assert sealer.seal(SIGNED_AND_ENCRYPTED, PUBLISHED, "aes256", 0.0) == not_encrypted(Reason.ALREADY_ENCRYPTED)
    large = with_body(PLAIN, bytes(0x400000 - len(PLAIN) - 100))
    assert sealer.seal(large, PUBLISHED, "aes256", 0.0) == not_encrypted(Reason.TOO_LARGE)
    with pytest.raises(InvalidArgument, match=r"cipher: must be one of aes256, .*, got 'des'"):
        sealer.seal(PLAIN, PUBLISHED, "des", 0.0)


def test_keys_rotate_while_messages_are_on_their_way() -> None:
    keys = iter([rsa.generate_private_key(65537, 1024) for _ in range(4)])
    old = KeyRing.make(lambda bits: next(keys))
    new = old.rotated(lambda bits: next(keys))
    sealer, checked = Sealer(Counted()), Guard(old, REGISTERED)
    before, late = (sealer.seal(SIGNED_2_0, old.public_keys, word, 0.0) for word in ("aes256", "aes128"))
    after = sealer.seal(SIGNED_2_0, new.public_keys, "aes256", 1.0)
    assert isinstance(before, bytes)
    assert isinstance(late, bytes)
    assert isinstance(after, bytes)
    assert isinstance(checked.open(before, 1.0), Opened)
    assert checked.open(after, 1.0) == bad_encryption(Reason.NOT_DECRYPTED)
    checked.use_keys(new)
    for packet in (before, late, after):
        assert isinstance(checked.open(packet, 2.0), Opened)
