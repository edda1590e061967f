"""What is signed, [MS-MQMQ] 2.5, and how, [MS-MQQB] 3.1.7.1.4 and 3.1.5.8.3."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha512
from math import gcd
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import NoDigestInfo
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import InvalidArgument, LocalProtocolError
from postroad.message import Signature
from postroad.security.algorithms import HASHES
from postroad.security.refusals import Reason, Refused, bad_signature
from postroad.security.signatures import (
    LISTED,
    PROFILES,
    VERSIONS,
    Verified,
    attach,
    find_profile,
    hash_input,
    sign,
    signature_of,
    verify,
)
from postroad.wire.constants import QueueCode
from postroad.wire.headers import AddressHeader
from postroad.wire.internal import SessionHeader
from postroad.wire.patch import with_session_header, without_session_header
from postroad.wire.queue_names import QueueField
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.packets import OTHER
from tests.security_vectors import (
    BASE,
    CERTIFICATE,
    PLAIN,
    SENDER,
    SID,
    SIGNATURES,
    SIGNED_2_0,
    SIGNED_3_0,
    VECTORS,
    certificate_of,
    unsigned,
    vector,
    with_body,
)

LEVELS = {"1.0": 1, "2.0": 3, "3.0": 5}


@pytest.mark.spec("MQ-2.5.1-01", "MQ-2.5.1-02", "MQ-2.5.2-01", "MQ-2.5.2-02", "MQ-2.5.2-03", "MQ-2.5.3-01")
@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_the_hash_input_is_that_of_the_vector(name: str, version: str, word: str) -> None:
    assert hash_input(MessageView(vector(name, "packet")), version) == vector(name, "hash_input")
    assert hash_input(MessageView(unsigned(vector(name, "packet"))), version) == vector(name, "hash_input")


@pytest.mark.spec("MQ-2.2.20.6-23", "MQ-2.2.20.3-05", "QB-3.1.7.1.4-02", "QB-3.1.7.1.4-03")
@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_signing_gives_the_packet_of_the_vector(name: str, version: str, word: str) -> None:
    packet = vector(name, "packet")
    view = MessageView(unsigned(packet))
    assert signature_of(view, SENDER, version, word) == vector(name, "signature_wire")
    assert signature_of(view, SENDER, version, word, PROFILES["listed-reversed"]) == vector(name, "signature_rfc8017")
    assert sign(view.data, SENDER, CERTIFICATE, version, word, LISTED, SID) == packet


@pytest.mark.spec("QB-3.1.5.8.3-02", "QB-3.1.5.8.3-03", "QB-3.1.5.8.3-04", "MQ-2.2.20.6-24")
@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_the_signature_of_the_vector_is_right(name: str, version: str, word: str) -> None:
    found = verify(vector(name, "packet"), CERTIFICATE, accepted_hashes=HASHES, accepted_versions=VERSIONS)
    assert found == Verified(LEVELS[version], version, word)


@pytest.mark.spec("QB-6-01", "MQ-2.2.19.3-25")
@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_a_hash_must_be_accepted(name: str, version: str, word: str) -> None:
    found = verify(vector(name, "packet"), CERTIFICATE, accepted_versions=VERSIONS)
    strong = word in ("sha256", "sha512")
    assert found == (Verified(LEVELS[version], version, word) if strong else bad_signature(Reason.HASH_REFUSED))


@pytest.mark.spec("MQ-2.2.19.3-25")
def test_an_unknown_hash_is_refused() -> None:
    message = UserMessage.decode(SIGNED_2_0)
    packet = replace(message, properties=replace(message.properties, hash_algorithm=0x800D)).encode()
    assert verify(packet, CERTIFICATE, accepted_hashes=HASHES) == bad_signature(Reason.HASH_REFUSED)


def test_the_other_readings_give_the_digests_of_the_vectors() -> None:
    digests = VECTORS["V4_variants"]
    view = MessageView(SIGNED_2_0)
    for profile, name in (
        ("listed", "fields_as_listed"),
        ("aligned", "two_pad_bytes_before_BodyType"),
        ("text-names", "names_as_text"),
    ):
        for word in (profile, f"{profile}-reversed"):
            assert sha512(hash_input(view, "2.0", PROFILES[word])).hexdigest() == digests[name]


def test_body_and_label_have_no_border() -> None:
    message = UserMessage.decode(PLAIN)
    inputs = {
        hash_input(
            MessageView(
                replace(
                    message,
                    properties=replace(
                        message.properties, body=bytes.fromhex(part["body"]), label=part["label"], message_size=None
                    ),
                ).encode()
            ),
            "2.0",
        )
        for part in (VECTORS["V4_shift"]["a"], VECTORS["V4_shift"]["b"])
    }
    assert len(inputs) == 1
    assert VECTORS["V4_shift"]["equal"]


@pytest.mark.spec("MQ-2.5.3-02")
def test_only_version_3_covers_the_extension() -> None:
    message = UserMessage.decode(unsigned(SIGNED_3_0))
    changed = replace(message, properties=replace(message.properties, extension=b"other"))
    before, after = MessageView(message.encode()), MessageView(changed.encode())
    assert [version for version in LEVELS if hash_input(before, version) != hash_input(after, version)] == ["3.0"]


@pytest.mark.spec("MQ-2.5.2-02", "MQ-2.5.2-03")
def test_journaling_and_acknowledgment_flags_are_one_byte_each() -> None:
    message = UserMessage.decode(PLAIN)
    flags = message.user.flags & ~0x300 | 0x200  # JP alone
    packet = replace(
        message, user=replace(message.user, flags=flags), properties=replace(message.properties, flags=0xF5)
    ).encode()
    covered = hash_input(MessageView(packet), "2.0")
    at = covered.index(message.user.source_queue_manager.bytes_le) + 16
    assert covered[at : at + 4] == bytes((1, 5, 2, 5))  # recoverable, priority 5, JP, the low four bits


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("version", LEVELS)
def test_every_profile_verifies_its_own_and_no_other(profile: str, version: str) -> None:
    plain = unsigned(SIGNED_3_0 if version == "3.0" else SIGNED_2_0)
    packet = sign(plain, SENDER, CERTIFICATE, version, "sha256", PROFILES[profile])
    verdicts = {word: verify(packet, CERTIFICATE, each, accepted_versions=VERSIONS) for word, each in PROFILES.items()}
    right = {word for word, verdict in verdicts.items() if isinstance(verdict, Verified)}
    if version == "1.0":  # BodyType is not in it
        right -= {"aligned", "aligned-reversed"} - {profile}
        right -= {"listed", "listed-reversed"} if profile.startswith("aligned") else set()
    assert right == {profile}
    found = find_profile(packet, CERTIFICATE)
    assert found is not None
    assert found[1] == Verified(LEVELS[version], version, "sha256")


def test_no_profile_fits_a_wrong_signature() -> None:
    assert find_profile(with_body(SIGNED_2_0, b"other"), CERTIFICATE) is None


def test_text_names_say_which_manager_has_a_private_queue() -> None:
    message = UserMessage.decode(PLAIN)
    texts = []
    for code in (QueueCode.PRIVATE_ON_SOURCE, QueueCode.PRIVATE_ON_DESTINATION, QueueCode.PRIVATE_ON_OTHER):
        user = replace(message.user, admin_queue=QueueField(code, 7, OTHER), response_queue=QueueField(QueueCode(1)))
        texts.append(hash_input(MessageView(replace(message, user=user).encode()), "1.0", PROFILES["text-names"]))
    managers = (message.user.source_queue_manager, message.user.queue_manager_address, OTHER)
    for covered, manager in zip(texts, managers, strict=True):
        name = f"PRIVATE={manager}\\7\0".encode("utf-16-le")
        assert covered.endswith(name * 2)  # the response queue is the administration queue


def test_a_response_queue_at_the_admin_queues_manager_has_its_guid() -> None:
    message = UserMessage.decode(PLAIN)
    user = replace(
        message.user,
        admin_queue=QueueField(QueueCode.PRIVATE_ON_OTHER, 7, OTHER),
        response_queue=QueueField(QueueCode.PRIVATE_ON_ADMIN, 8),
    )
    packet = replace(message, user=user).encode()
    assert f"PRIVATE={OTHER}\\8\0".encode("utf-16-le") in hash_input(MessageView(packet), "1.0", PROFILES["text-names"])
    assert hash_input(MessageView(packet), "1.0").endswith(b"\x08\0\0\0" + OTHER.bytes_le + b"\x07\0\0\0")


def test_what_is_absent_adds_nothing() -> None:
    message = UserMessage.decode(PLAIN)
    user = replace(message.user, admin_queue=QueueField(), response_queue=QueueField(), connector_type=None)
    packet = replace(
        message, user=user, properties=replace(message.properties, label="", body=b"", message_size=0, flags=0)
    ).encode()
    for profile in PROFILES.values():
        assert len(hash_input(MessageView(packet), "1.0", profile)) == 24


@pytest.mark.parametrize("word", HASHES)
def test_every_hash_can_sign_and_verify(word: str) -> None:
    packet = sign(PLAIN, SENDER, CERTIFICATE, "2.0", word)
    assert verify(packet, CERTIFICATE, accepted_hashes=[word]) == Verified(3, "2.0", word)


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=50), st.sampled_from(list(LEVELS)), st.sampled_from(list(PROFILES)))
def test_what_is_signed_verifies_and_a_changed_body_does_not(body: bytes, version: str, profile: str) -> None:
    plain = with_body(unsigned(SIGNED_3_0 if version == "3.0" else SIGNED_2_0), body)
    packet = sign(plain, SENDER, CERTIFICATE, version, "sha512", PROFILES[profile], SID)
    assert unsigned(packet) == replace_hash(plain)
    found = verify(packet, CERTIFICATE, PROFILES[profile], accepted_versions=VERSIONS)
    assert found == Verified(LEVELS[version], version, "sha512")
    other = with_body(packet, body + b"!")
    assert verify(other, CERTIFICATE, PROFILES[profile]) == bad_signature(Reason.WRONG_SIGNATURE)


def replace_hash(packet: bytes) -> bytes:
    message = UserMessage.decode(packet)
    return replace(message, properties=replace(message.properties, hash_algorithm=0x800E)).encode()


def test_a_client_signs_without_the_id_and_the_time() -> None:
    """The client composes its own packet. The manager adds an id and a time, and needs no key."""
    message = UserMessage.decode(PLAIN)
    mine = replace(message, user=replace(message.user, message_id=0, sent_time=0)).encode()
    signature = Signature(signature_of(MessageView(mine), SENDER), CERTIFICATE, sender_id=str(SID))
    assert verify(attach(PLAIN, signature), CERTIFICATE) == Verified(3, "2.0", "sha512")


def test_signing_again_replaces_the_signature_and_the_sender() -> None:
    manager = UUID("11223344-5566-7788-99aa-bbccddeeff00")
    packet = sign(SIGNED_2_0, SENDER, CERTIFICATE, "1.0", "sha256", LISTED, manager)
    header = MessageView(packet).security_header
    assert header is not None
    assert (header.flags, header.security_id) == (0xC2, manager.bytes_le)
    assert verify(packet, CERTIFICATE, accepted_versions=VERSIONS) == Verified(1, "1.0", "sha256")


def test_a_session_header_stays_behind_the_packet() -> None:
    session = SessionHeader(1, 2, 3, 4, 5)
    packet = sign(with_session_header(PLAIN, session), SENDER, CERTIFICATE, "2.0", "sha512", LISTED, SID)
    assert MessageView(packet).session_header == session
    assert without_session_header(packet) == SIGNED_2_0


@pytest.mark.parametrize(
    ("certificate", "reason"), [(b"", Reason.NO_CERTIFICATE), (CERTIFICATE[:-1], Reason.BAD_CERTIFICATE)]
)
def test_a_certificate_must_be_readable(certificate: bytes, reason: Reason) -> None:
    assert verify(SIGNED_2_0, certificate) == bad_signature(reason)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_no_certificate_of_a_stranger_makes_the_check_fail_otherwise() -> None:
    """A sender without an id chooses the certificate freely."""
    for bit in range(8 * len(CERTIFICATE)):
        at = bit // 8
        odd = CERTIFICATE[:at] + bytes((CERTIFICATE[at] ^ 1 << bit % 8,)) + CERTIFICATE[at + 1 :]
        assert isinstance(verify(SIGNED_2_0, odd), Verified | Refused)


def test_a_short_key_is_refused() -> None:
    assert verify(SIGNED_2_0, certificate_of(BASE)) == bad_signature(Reason.WEAK_KEY)
    with pytest.raises(InvalidArgument, match="key: must have at least 1024 bits, got 512"):
        signature_of(MessageView(PLAIN), BASE, "2.0", "sha256")


def test_a_key_that_is_not_rsa_is_refused() -> None:
    certificate = certificate_of(ec.generate_private_key(ec.SECP256R1()))
    assert verify(SIGNED_2_0, certificate) == bad_signature(Reason.BAD_CERTIFICATE)


def test_an_exponent_that_no_key_blob_can_hold_is_refused() -> None:
    """A stranger chooses the certificate. An exponent as long as the modulus would make each check a hundred times
    slower."""
    numbers = SENDER.private_numbers()
    order = (numbers.p - 1) * (numbers.q - 1)
    exponent = (1 << 32) + 1
    while gcd(exponent, order) != 1:
        exponent += 2
    d = pow(exponent, -1, order)
    key = RSAPrivateNumbers(
        numbers.p,
        numbers.q,
        d,
        d % (numbers.p - 1),
        d % (numbers.q - 1),
        numbers.iqmp,
        RSAPublicNumbers(exponent, numbers.public_numbers.n),
    ).private_key()
    certificate = certificate_of(key)
    assert verify(sign(PLAIN, key, certificate), certificate) == bad_signature(Reason.BAD_CERTIFICATE)


@pytest.mark.parametrize("value", [b"", b"\1", bytes(128), b"\xff" * 128, bytes(127) + b"\1", bytes(256)])
def test_bytes_that_are_not_a_signature_are_refused(value: bytes) -> None:
    packet = attach(PLAIN, Signature(value, CERTIFICATE))
    assert verify(packet, CERTIFICATE) == bad_signature(Reason.WRONG_SIGNATURE)


def test_a_digest_without_its_digest_info_is_refused() -> None:
    """The whole block is compared: no part of a signature's content is parsed."""
    digest = sha512(hash_input(MessageView(PLAIN), "2.0")).digest()
    right = HASHES["sha512"].prefix + digest
    for block in (digest, right + b"\0", right[:-1], HASHES["sha256"].prefix + digest):
        value = SENDER.sign(block, PKCS1v15(), NoDigestInfo())[::-1]
        assert isinstance(verify(attach(PLAIN, Signature(value, CERTIFICATE)), CERTIFICATE), Refused)
    value = SENDER.sign(right, PKCS1v15(), NoDigestInfo())[::-1]
    assert isinstance(verify(attach(PLAIN, Signature(value, CERTIFICATE)), CERTIFICATE), Verified)


@pytest.mark.spec("QB-3.1.5.8.3-04")
def test_a_multi_queue_signature_counts_only_where_the_header_has_none() -> None:
    message = UserMessage.decode(SIGNED_3_0)
    assert message.security is not None
    both = replace(message, security=replace(message.security, signature=b"\1" * 128, padding=b"")).encode()
    assert verify(both, CERTIFICATE) == bad_signature(Reason.WRONG_SIGNATURE)


def test_only_several_destinations_can_have_version_3() -> None:
    with pytest.raises(LocalProtocolError, match="only a message with several destinations"):
        sign(PLAIN, SENDER, CERTIFICATE, "3.0")


def test_an_encrypted_message_cannot_be_signed() -> None:
    packet = vector("V9_signed_then_encrypted", "packet")
    with pytest.raises(LocalProtocolError, match="signed before it is encrypted"):
        sign(packet, SENDER, CERTIFICATE)
    with pytest.raises(LocalProtocolError, match="signed before it is encrypted"):
        attach(packet, Signature(b"1", CERTIFICATE))


def test_wrong_words_are_named() -> None:
    with pytest.raises(InvalidArgument, match=r"hash: must be one of sha512, .*, got 'sha3'"):
        sign(PLAIN, SENDER, CERTIFICATE, "2.0", "sha3")
    with pytest.raises(InvalidArgument, match=r"signature: must be 1.0, 2.0 or 3.0, got '4.0'"):
        sign(PLAIN, SENDER, CERTIFICATE, "4.0")


def read_as_1_0() -> bytes:
    """What somebody can make of a message that was signed as 2.0: a body that contains all that was signed."""
    covered = hash_input(MessageView(PLAIN), "2.0")
    message = UserMessage.decode(PLAIN)
    forged = replace(
        message,
        user=replace(message.user, admin_queue=QueueField(), response_queue=QueueField()),
        properties=replace(message.properties, body=covered[24:], label="", message_size=None),
    ).encode()
    return attach(forged, Signature(signature_of(MessageView(PLAIN), SENDER), CERTIFICATE))


def test_a_2_0_signature_is_not_read_as_1_0() -> None:
    """A weakness of [MS-MQMQ] 2.5: no version and no length is signed. With 1.0, others could choose the queue."""
    assert verify(read_as_1_0(), CERTIFICATE) == bad_signature(Reason.VERSION_REFUSED)
    assert verify(read_as_1_0(), CERTIFICATE, accepted_versions=VERSIONS) == Verified(1, "1.0", "sha512")


def test_a_1_0_signature_must_be_accepted() -> None:
    packet = sign(PLAIN, SENDER, CERTIFICATE, "1.0")
    assert verify(packet, CERTIFICATE) == bad_signature(Reason.VERSION_REFUSED)
    assert verify(packet, CERTIFICATE, accepted_versions=("1.0",)) == Verified(1, "1.0", "sha512")
    newer = sign(PLAIN, SENDER, CERTIFICATE)
    assert verify(newer, CERTIFICATE, accepted_versions=("1.0",)) == bad_signature(Reason.VERSION_REFUSED)


def test_a_packet_with_a_list_of_destinations_is_never_read_as_1_0() -> None:
    several = sign(unsigned(SIGNED_3_0), SENDER, CERTIFICATE, "1.0")
    assert verify(several, CERTIFICATE, accepted_versions=VERSIONS) == bad_signature(Reason.WRONG_SIGNATURE)
    forged = replace(UserMessage.decode(read_as_1_0()), multi_queue=UserMessage.decode(SIGNED_3_0).multi_queue).encode()
    assert verify(forged, CERTIFICATE, accepted_versions=VERSIONS) == bad_signature(Reason.WRONG_SIGNATURE)


def test_version_3_needs_a_destination() -> None:
    """Without one, nothing that the signature covers would say where the message goes."""
    message = UserMessage.decode(unsigned(SIGNED_3_0))
    assert message.multi_queue is not None
    none = replace(message.multi_queue, destination=AddressHeader())
    packet = sign(replace(message, multi_queue=none).encode(), SENDER, CERTIFICATE, "3.0")
    assert verify(packet, CERTIFICATE) == bad_signature(Reason.WRONG_SIGNATURE)
