"""Why a message is refused. The sender gets the acknowledgment class; the reason stays here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from postroad.wire.constants import MessageClass

COULD_NOT_ENCRYPT: Final = 0x8008  # [MS-MQDMPR] names this class, but no table gives its number


class Reason(StrEnum):
    """Used in counters, status and log."""

    NO_CERTIFICATE = "no-certificate"
    BAD_CERTIFICATE = "bad-certificate"
    WEAK_KEY = "weak-key"
    HASH_REFUSED = "hash-refused"
    VERSION_REFUSED = "version-refused"
    WRONG_SIGNATURE = "wrong-signature"
    NOT_REGISTERED = "certificate-not-registered"
    UNKNOWN_PROVIDER = "unknown-provider"
    PRIVACY_LEVEL = "privacy-level"
    CIPHER_REFUSED = "cipher-refused"
    NOT_DECRYPTED = "not-decrypted"  # wrong padding, length, blob or key; these are never told apart
    NO_PUBLIC_KEY = "no-public-key"
    DIRECT_NAME = "direct-name"
    TOO_LARGE = "too-large"
    ALREADY_ENCRYPTED = "already-encrypted"
    NOT_AUTHENTICATED = "not-authenticated"
    BODY_NOT_ENCRYPTED = "body-not-encrypted"
    BODY_ENCRYPTED = "body-encrypted"
    NO_ACCESS = "access-denied"
    WRONG_DIGEST = "wrong-digest"
    NO_QUEUE = "no-such-queue"
    NOT_TRANSACTIONAL_QUEUE = "queue-not-transactional"
    NOT_TRANSACTIONAL_MESSAGE = "message-not-transactional"
    EXPIRED = "expired"
    QUEUE_FULL = "queue-full"
    TOO_MANY_HOPS = "too-many-hops"


_OF_SECURITY = frozenset(
    {
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)


@dataclass(frozen=True, slots=True)
class Refused:
    """`acknowledgment` is the class of the NACK and of the negative FinalAck."""

    acknowledgment: int
    reason: Reason

    @property
    def of_security(self) -> bool:
        """Whether the reason belongs in the audit log."""
        return self.acknowledgment in _OF_SECURITY


def bad_signature(reason: Reason) -> Refused:
    return Refused(MessageClass.NACK_BAD_SIGNATURE, reason)


def bad_encryption(reason: Reason) -> Refused:
    return Refused(MessageClass.NACK_BAD_ENCRYPTION, reason)


def not_encrypted(reason: Reason) -> Refused:
    return Refused(COULD_NOT_ENCRYPT, reason)


UNSUPPORTED_PROVIDER: Final = Refused(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, Reason.UNKNOWN_PROVIDER)
NOT_AUTHENTICATED: Final = bad_signature(Reason.NOT_AUTHENTICATED)
WRONG_DIGEST: Final = bad_signature(Reason.WRONG_DIGEST)
BODY_NOT_ENCRYPTED: Final = bad_encryption(Reason.BODY_NOT_ENCRYPTED)
BODY_ENCRYPTED: Final = bad_encryption(Reason.BODY_ENCRYPTED)
NO_ACCESS: Final = Refused(MessageClass.NACK_ACCESS_DENIED, Reason.NO_ACCESS)
# Not about security, but counted and logged like the others.
NO_QUEUE: Final = Refused(MessageClass.NACK_BAD_DST_Q, Reason.NO_QUEUE)
NOT_TRANSACTIONAL_QUEUE: Final = Refused(MessageClass.NACK_NOT_TRANSACTIONAL_Q, Reason.NOT_TRANSACTIONAL_QUEUE)
NOT_TRANSACTIONAL_MESSAGE: Final = Refused(MessageClass.NACK_NOT_TRANSACTIONAL_MSG, Reason.NOT_TRANSACTIONAL_MESSAGE)
EXPIRED: Final = Refused(MessageClass.NACK_REACH_QUEUE_TIMEOUT, Reason.EXPIRED)
QUEUE_FULL: Final = Refused(MessageClass.NACK_Q_EXCEED_QUOTA, Reason.QUEUE_FULL)
TOO_MANY_HOPS: Final = Refused(MessageClass.NACK_HOP_COUNT_EXCEEDED, Reason.TOO_MANY_HOPS)
# The queue accepts messages, but none from this sender. An acknowledgment that was asked for is sent nevertheless.
CLOSED: Final = frozenset({NOT_AUTHENTICATED, BODY_NOT_ENCRYPTED, NO_ACCESS})
