"""Signatures of messages, [MS-MQMQ] 2.5 and [MS-MQQB] 3.1.7.1.4: what is hashed, how it is signed and checked.

Other modules decide whose certificate it is and whether it is registered. An application signs with its own key: the
client composes the packet that its manager will make, signs it, and sends only the `Signature`. This works because no
signature covers the message id and the time of sending.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hmac import compare_digest
from struct import Struct
from typing import Final
from uuid import UUID

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import NoDigestInfo

from postroad.errors import InvalidArgument, LocalProtocolError
from postroad.message import Signature
from postroad.names import PrivateName, PublicName
from postroad.security.algorithms import DEFAULT_HASH, DEFAULT_HASHES, HASHES, HASHES_BY_NUMBER, MIN_RSA_BITS, Hash
from postroad.security.descriptors import Sid
from postroad.security.refusals import Reason, Refused, bad_signature
from postroad.wire.constants import QueueCode, SecurityFlags, SenderIdType
from postroad.wire.headers import SecurityHeader
from postroad.wire.octets import NULL_GUID, Writer, encode_text
from postroad.wire.security_patch import (
    ADMIN_QUEUE,
    DESTINATION_QUEUE,
    RESPONSE_QUEUE,
    connector_bytes,
    label_bytes,
    name_bytes,
    with_multi_queue_signature,
    with_security,
)
from postroad.wire.view import MessageView

VERSIONS: Final = ("1.0", "2.0", "3.0")
DEFAULT_VERSIONS: Final = ("3.0", "2.0")  # a signature made as 2.0 can be read as 1.0, and then covers no destination
LEVELS: Final = {"1.0": 1, "2.0": 3, "3.0": 5}  # SecurityHeader.Flags.AS after the check
_U32 = Struct("<I")
_UINT32_MAX = 0xFFFFFFFF  # a PUBLICKEYBLOB holds no larger exponent; a stranger's would only cost time
_CHANGED = (SecurityFlags.SENDER_ID_TYPE | SecurityFlags.AUTHENTICATED | SecurityFlags.SIGNATURE_TYPE).value
_OURS = (SecurityFlags.DEFAULT_PROVIDER | SecurityFlags.SECURITY_DATA).value


@dataclass(frozen=True, slots=True)
class Profile:
    """One reading of [MS-MQMQ] 2.5, which leaves open how names and numbers become bytes.

    `aligned`: two zero bytes precede BodyType. `text_names`: queues are hashed as format names in UTF-16 with a
    terminator. `big_endian`: the signature is the octet string of [RFC8017]; otherwise it is that string reversed.
    """

    word: str
    aligned: bool = False
    text_names: bool = False
    big_endian: bool = False


LISTED: Final = Profile("listed")
PROFILES: Final = {
    each.word: each
    for each in (
        LISTED,
        Profile("aligned", aligned=True),
        Profile("text-names", text_names=True),
        Profile("listed-reversed", big_endian=True),
        Profile("aligned-reversed", aligned=True, big_endian=True),
        Profile("text-names-reversed", text_names=True, big_endian=True),
    )
}

# What somebody can change in a signed packet without a refusal, by the specifications' names: the fields that no
# version covers, then those that one version leaves out. The first part of SecurityData, SenderCert and HashAlgorithm
# are not signed either, but a packet in which they are changed is refused.
UNSIGNED_FIELDS: Final[dict[str, frozenset[str]]] = {}


def _unsigned(version: str, *more: str) -> None:
    UNSIGNED_FIELDS[version] = frozenset(
        {
            "BaseHeader.Reserved",
            "BaseHeader.Flags.reserved",
            "BaseHeader.TimeToReachQueue",
            "UserHeader.QueueManagerAddress",
            "UserHeader.TimeToBeReceived",
            "UserHeader.SentTime",
            "UserHeader.MessageID",
            "UserHeader.Flags.RC",
            "UserHeader.Flags.AQ",  # which manager a private administration queue belongs to
            "UserHeader.Flags.RQ",  # the same for a private response queue
            "UserHeader.Flags.AH",
            "UserHeader.Flags.reserved",
            "TransactionHeader",
            "SecurityHeader.Flags.AU",
            "SecurityHeader.Flags.AI",
            "SecurityHeader.Flags.AS",
            "SecurityHeader.Flags.reserved",
            "MessagePropertiesHeader.Flags.reserved",
            "MessagePropertiesHeader.AllocationBodySize",  # the bytes after the body, up to the next header
            "MessagePropertiesHeader.PrivacyLevel",
            "MessagePropertiesHeader.EncryptionAlgorithm",
            "padding",
            *more,
        }
    )


_unsigned(
    "1.0",
    "BaseHeader.Flags.PR",
    "UserHeader.SourceQueueManager",
    "UserHeader.Flags.DM",
    "UserHeader.Flags.JN",
    "UserHeader.Flags.JP",
    "UserHeader.Flags.CQ",
    "UserHeader.DestinationQueue",
    "UserHeader.ConnectorType",
    "MessagePropertiesHeader.Flags",
    "MessagePropertiesHeader.MessageClass",
    "MessagePropertiesHeader.BodyType",
    "MessagePropertiesHeader.ExtensionData",
)
_unsigned("2.0", "MessagePropertiesHeader.ExtensionData")
_unsigned(
    "3.0",
    "UserHeader.DestinationQueue",
    "MQFAddressHeader.HeaderSize",  # whether it includes the padding
    "MQFAddressHeader.Reserved",
    "MQFSignatureHeader.Reserved",
)


def hash_input(view: MessageView, version: str, profile: Profile = LISTED) -> bytes:
    """The bytes that a signature of this version covers, joined without lengths.

    Therefore body "ab" with label "c" and body "a" with label "bc" have the same signature. The body must be plain.
    """
    if version not in LEVELS:
        raise InvalidArgument(f"signature: must be 1.0, 2.0 or 3.0, got {version!r}")
    name = _name_text if profile.text_names else name_bytes
    parts = [
        view.correlation_id,
        _U32.pack(view.application_tag),
        view.body,
        label_bytes(view),
        name(view, RESPONSE_QUEUE),
        name(view, ADMIN_QUEUE),
    ]
    if version == "1.0":
        return b"".join(parts)
    if version == "3.0":
        parts += (view.extension, _format_name_list(view))
    flags = view.user_flags
    parts += (
        view.source_queue_manager_bytes,
        bytes((flags >> 5 & 3, view.priority, flags >> 8 & 3, view.ack_flags & 0x0F)),  # DM, PR, JP and JN, Flags
        view.message_class.to_bytes(2, "little"),
        b"\0\0" if profile.aligned else b"",
        _U32.pack(view.body_type),
        connector_bytes(view),
    )
    if version == "2.0":
        parts.append(name(view, DESTINATION_QUEUE))
    return b"".join(parts)


def _name_text(view: MessageView, which: int) -> bytes:
    """The queue's format name. Only this form contains the manager that a private number belongs to."""
    field = (view.destination_queue, view.admin_queue, view.response_queue)[which]
    if field.code is QueueCode.SAME_AS_ADMIN:
        field = view.admin_queue
    match field.code:
        case QueueCode.NONE | QueueCode.SAME_AS_ADMIN:
            return b""
        case QueueCode.DIRECT:
            return encode_text(f"DIRECT={field.direct_name}", "a direct name")
        case QueueCode.PUBLIC:
            return encode_text(str(PublicName(field.guid)), "a public name")
        case QueueCode.PRIVATE_ON_SOURCE:
            manager = view.source_queue_manager
        case QueueCode.PRIVATE_ON_DESTINATION:
            manager = view.queue_manager_address
        case QueueCode.PRIVATE_ON_ADMIN:
            manager = view.admin_queue.guid if view.admin_queue.code is QueueCode.PRIVATE_ON_OTHER else NULL_GUID
        case _:
            manager = field.guid
    return encode_text(str(PrivateName(manager, field.number)), "a private name")


def _format_name_list(view: MessageView) -> bytes:
    """The destinations as in the packet: with the padding between them, but without the padding after the last one."""
    header = view.multi_queue_header
    if header is None:
        return b""
    writer = Writer()  # the list starts at a multiple of 4, so counting from 0 gives the same alignment
    writer.keep_padding(header.destination.padding)
    for element in header.destination.elements:
        element.encode(writer, header.destination.align_public)
    return writer.getvalue()


def signature_of(
    view: MessageView,
    key: RSAPrivateKey,
    version: str = "2.0",
    hash_word: str = DEFAULT_HASH,
    profile: Profile = LISTED,
) -> bytes:
    """RSASSA-PKCS1-v1_5 over the message's fields, in the wire's byte order."""
    hashing = _hash(hash_word)
    if view.encrypted:
        raise LocalProtocolError("a message must be signed before it is encrypted")
    _check_size(key.key_size)
    info = hashing.digest_info(hash_input(view, version, profile))
    octets = key.sign(info, PKCS1v15(), NoDigestInfo())  # `info` has the DigestInfo: the library lacks MD2
    return octets if profile.big_endian else octets[::-1]


def attach(packet: bytes, signature: Signature) -> bytes:
    """The packet with this signature, its certificate and its sender. If the message has several destinations, a
    signature of version 3.0 goes into the MQFSignatureHeader, [MS-MQQB] 3.1.7.1.4."""
    view = MessageView(packet)
    if view.encrypted:
        raise LocalProtocolError("a message must be signed before it is encrypted")
    several = signature.version == "3.0"
    if several:
        view = MessageView(with_multi_queue_signature(view, signature.value))
    before = view.security_header
    sender_type, sender = _sender(signature.sender_id)
    header = SecurityHeader(
        flags=(before.flags if before else 0) & ~_CHANGED | _OURS | sender_type,
        security_id=sender,
        signature=b"" if several else signature.value,
        sender_certificate=signature.certificate,
    )
    return with_security(view, header, hash_algorithm=_hash(signature.hash).number)


def sign(
    packet: bytes,
    key: RSAPrivateKey,
    certificate: bytes,
    version: str = "2.0",
    hash_word: str = DEFAULT_HASH,
    profile: Profile = LISTED,
    sender_id: Sid | UUID | None = None,
) -> bytes:
    """Signs a composed packet. `certificate` is DER."""
    value = signature_of(MessageView(packet), key, version, hash_word, profile)
    return attach(
        packet,
        Signature(value, certificate, version, hash_word, str(sender_id) if isinstance(sender_id, Sid) else sender_id),
    )


@dataclass(frozen=True, slots=True)
class Verified:
    level: int  # the value of AS
    version: str
    hash: str


def is_signed(view: MessageView) -> bool:
    """Whether the packet has a signature of any version. Without a SecurityHeader there is no certificate."""
    return view.signed or bool(_multi_queue_signature(view))


def _multi_queue_signature(view: MessageView) -> bytes:
    header = view.multi_queue_header if view._security_at else None
    return header.signature if header is not None else b""


def public_key_of(certificate: bytes) -> RSAPublicKey | Refused:
    """The key in a certificate (DER). It checks neither chain nor dates nor usage: only the registration of the
    certificate counts."""
    if not certificate:
        return bad_signature(Reason.NO_CERTIFICATE)
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return bad_signature(Reason.BAD_CERTIFICATE)
    if not isinstance(key, RSAPublicKey) or key.public_numbers().e > _UINT32_MAX:
        return bad_signature(Reason.BAD_CERTIFICATE)
    return key if key.key_size >= MIN_RSA_BITS else bad_signature(Reason.WEAK_KEY)


def verify(
    packet: bytes,
    certificate: bytes,
    profile: Profile = LISTED,
    accepted_hashes: Collection[str] = DEFAULT_HASHES,
    accepted_versions: Collection[str] = DEFAULT_VERSIONS,
) -> Verified | Refused:
    """Checks the signature of a plain packet with the key of a certificate (DER)."""
    key = public_key_of(certificate)
    if isinstance(key, Refused):
        return key
    view = MessageView(packet)
    header = view.security_header
    return verify_with(view, header.signature if header else b"", key, profile, accepted_hashes, accepted_versions)


def verify_with(
    view: MessageView,
    value: bytes,
    key: RSAPublicKey,
    profile: Profile,
    accepted_hashes: Collection[str],
    accepted_versions: Collection[str],
) -> Verified | Refused:
    """[MS-MQQB] 3.1.5.8.3: version 2.0, then 1.0. Version 3.0 only if the SecurityHeader has no signature.

    `value` is that signature. A packet with a list of destinations is newer than version 1.0 and is not tried as
    such.
    """
    hashing = HASHES_BY_NUMBER.get(view.hash_algorithm)
    if hashing is None or hashing.word not in accepted_hashes:
        return bad_signature(Reason.HASH_REFUSED)
    several = view.multi_queue_header
    if not value:
        versions: tuple[str, ...] = ("3.0",) if several is not None and several.destination.elements else ()
    else:
        versions = ("2.0", "1.0") if several is None else ("2.0",)
    value = value or _multi_queue_signature(view)
    octets = value if profile.big_endian else value[::-1]
    if len(octets) != (key.key_size + 7) // 8:
        return bad_signature(Reason.WRONG_SIGNATURE)
    try:
        found = key.recover_data_from_signature(octets, PKCS1v15(), None)
    except (InvalidSignature, ValueError):
        return bad_signature(Reason.WRONG_SIGNATURE)
    for version in versions:
        # The expected DigestInfo is built and compared as a whole. The content of the signature is never parsed.
        if compare_digest(found, hashing.digest_info(hash_input(view, version, profile))):
            if version not in accepted_versions:
                return bad_signature(Reason.VERSION_REFUSED)
            return Verified(LEVELS[version], version, hashing.word)
    return bad_signature(Reason.WRONG_SIGNATURE)


def find_profile(packet: bytes, certificate: bytes) -> tuple[Profile, Verified] | None:
    """The first profile under which the signature is right, with any hash. It serves to examine captured packets: a
    queue manager uses only the configured profile."""
    for profile in PROFILES.values():
        found = verify(packet, certificate, profile, HASHES, VERSIONS)
        if isinstance(found, Verified):
            return profile, found
    return None


def _hash(word: str) -> Hash:
    if word not in HASHES:
        raise InvalidArgument(f"hash: must be one of {', '.join(HASHES)}, got {word!r}")
    return HASHES[word]


def _check_size(bits: int) -> None:
    if bits < MIN_RSA_BITS:
        raise InvalidArgument(f"key: must have at least {MIN_RSA_BITS} bits, got {bits}")


def _sender(sender_id: str | UUID | None) -> tuple[int, bytes]:
    if sender_id is None:
        return SenderIdType.NONE, b""
    if isinstance(sender_id, UUID):
        return SenderIdType.QUEUE_MANAGER, sender_id.bytes_le
    return SenderIdType.SID, Sid.parse(sender_id).encode()
