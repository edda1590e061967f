"""The security of messages that applications here send: a signature is attached, a body is encrypted, or both are
checked, before anything is promised.

An application signs with its own key. For a queue of this manager the signature is checked as on arrival. For another
manager the body is encrypted with that manager's key, [MS-MQQB] 3.1.7.1.5, whatever the next hop is.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from postroad.errors import AccessDenied, NotAuthenticated, NotEncrypted, PostroadError
from postroad.message import Message
from postroad.queues.permissions import Access, Action, no_right
from postroad.queues.queue import Queue
from postroad.security.access import ADMINISTRATORS, Token
from postroad.security.encryption import SessionKey
from postroad.security.guard import Protection, SendPlace, is_secured
from postroad.security.refusals import (
    BODY_ENCRYPTED,
    BODY_NOT_ENCRYPTED,
    NO_ACCESS,
    NOT_AUTHENTICATED,
    Reason,
    Refused,
)
from postroad.security.signatures import attach
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.constants import SecurityFlags, SenderIdType
from postroad.wire.headers import SecurityHeader
from postroad.wire.security_patch import with_security
from postroad.wire.view import MessageView

_VOUCHED = SenderIdType.SID | SecurityFlags.SECURITY_DATA | 1 << 8  # AS 1: a login shows who sent it
_WHY_NOT_ENCRYPTED = {
    Reason.NO_PUBLIC_KEY: "the directory has no public key of the destination's manager for this cipher: set "
    "public_keys of that [[manager]] to what `postroad keys show` prints there",
    Reason.DIRECT_NAME: "a direct name does not say which manager's key to use: send to the queue's public or private "
    "format name",
    Reason.TOO_LARGE: "the encrypted packet would be larger than 4 MiB: make the body smaller",
    Reason.ALREADY_ENCRYPTED: "it is already encrypted",
}


class SendRefused(Exception):
    """Refuses a send: why, and with which class of acknowledgment, for senders that asked for one. `outgoing` is the
    queue of a message that could not be encrypted."""

    def __init__(
        self, error: PostroadError, message_class: int, packets: list[bytes], outgoing: Queue | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.message_class = message_class
        self.packets = packets
        self.outgoing = outgoing


class Securing:
    """`public_keys` returns the MQDSPUBLICKEYS of a manager from the directory; empty if it has none.

    `key_clock` is the monotonic clock of the caches. Without it, they use the time of the call.
    """

    def __init__(
        self,
        access: Access,
        protection: Protection,
        public_keys: Callable[[UUID], bytes],
        key_clock: Callable[[], float] | None = None,
    ) -> None:
        self.access = access
        self.protection = protection
        self._public_keys = public_keys
        self._key_clock = key_clock

    def apply(self, queue: Queue, message: Message, packet: bytes, token: Token, now: float) -> bytes:
        """Returns the packet as it is stored or leaves. Raises SendRefused if it cannot be."""
        if self._key_clock is not None:
            now = self._key_clock()
        if message.signature is not None:
            packet = attach(packet, message.signature)
        if queue.is_outgoing:
            return packet if message.encrypt is None else self._seal(queue, message.encrypt, packet, now)
        return self._admit(queue, message, packet, token, now)

    # A session key can be made in another thread before the message is sent: RSA would block the event loop.

    def missing_key(self, manager: UUID, cipher: str, now: float) -> SendPlace | None:
        """The place of the session key for a manager if the cache does not have that key."""
        place = (manager.bytes_le, cipher or self.protection.send_cipher, self._public_keys(manager))
        return place if self.protection.sealer.session_keys.get(place, now) is None else None

    def make_key(self, place: SendPlace) -> SessionKey | None:
        """Makes the key, in any thread. None if there is no public key for it."""
        return self.protection.sealer.make(place)

    def keep_key(self, place: SendPlace, key: SessionKey, now: float) -> None:
        self.protection.sealer.session_keys.put(place, key, now)

    def _seal(self, queue: Queue, cipher: str, packet: bytes, now: float) -> bytes:
        keys = self._public_keys(MessageView(packet).queue_manager_address)
        sealed = self.protection.sealer.seal(packet, keys, cipher or self.protection.send_cipher, now)
        if not isinstance(sealed, Refused):
            return sealed
        error = NotEncrypted(f"the message cannot be encrypted: {_WHY_NOT_ENCRYPTED.get(sealed.reason, sealed.reason)}")
        raise SendRefused(error, sealed.acknowledgment, [packet], queue)

    def _admit(self, queue: Queue, message: Message, packet: bytes, token: Token, now: float) -> bytes:
        """[MS-MQQB] 3.1.5.8.3 for a queue of this manager."""
        properties = queue.properties
        if not self.access.may_send(queue, token):
            raise SendRefused(AccessDenied(no_right(Action.SEND, queue)), NO_ACCESS.acknowledgment, [packet])
        if properties.privacy is QueuePrivacy.BODY and message.encrypt is None:
            fault = (
                f"the queue {queue.name} takes encrypted messages only: use --encrypt for commands, encrypt= in Python"
            )
            raise SendRefused(NotEncrypted(fault), BODY_NOT_ENCRYPTED.acknowledgment, [packet])
        if properties.privacy is QueuePrivacy.NONE and message.encrypt is not None:
            fault = f"the queue {queue.name} takes no encrypted messages: leave out encrypt"
            raise SendRefused(NotEncrypted(fault), BODY_ENCRYPTED.acknowledgment, [packet])
        view = MessageView(packet)
        if is_secured(view):
            opened = self.protection.guard.open(packet, now)
            if isinstance(opened, Refused):
                fault = f"the signature of the message is refused ({opened.reason})"
                raise SendRefused(NotAuthenticated(fault), opened.acknowledgment, [packet])
            return opened.packet
        if not properties.authenticate:
            return packet
        if (token.user is None and not token.everything) or token == Token.anonymous():
            fault = f"the queue {queue.name} takes signed messages only, or those of a user who has logged in"
            raise SendRefused(NotAuthenticated(fault), NOT_AUTHENTICATED.acknowledgment, [packet])
        return with_security(view, SecurityHeader(_VOUCHED, (token.user or ADMINISTRATORS).encode()))
