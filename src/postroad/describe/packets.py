"""Packets as people see them: messages and other packets of a session as JSON-ready values, and checks of
signatures."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.describe.sections import (
    Section,
    base64_text,
    describe_headers,
    describe_ping,
    direct_format_name,
    identifier_text,
    rfc3339,
    sender_text,
)
from postroad.errors import IllegalFormatName, InvalidArgument
from postroad.names import FormatName, MessageId, PrivateName
from postroad.security.signatures import find_profile, is_signed
from postroad.wire import FinalAck, MessageView, OrderAck, Packet, Ping, body_text
from postroad.wire.constants import EncryptionAlgorithm, HashAlgorithm, QueueCode, SecurityFlags, class_name
from postroad.wire.octets import NULL_GUID, whole_text
from postroad.wire.queue_names import QueueField, admin_name, destination_name, response_name
from postroad.wire.security_patch import security_sizes

# A message as JSON, for commands, the HTTP API and exports.
#
# This has only the fields of the packet. Callers add `lookup_id` and `arrived_at`, which belong to a queue.


XML_DIGESTS = 9
_AS_SHIFT = 8


def message_json(view: MessageView) -> dict[str, object]:
    """The message as JSON-ready values. A missing property is None. Exactly one of `body` and `body_base64` is present.

    `authentication_level` is the packet's own mark, which a queue manager sets after it has checked a signature.
    """
    transaction = view.transaction_header
    source = view.source_queue_manager
    return {
        "id": str(MessageId(source, view.message_id)),
        "class": view.message_class,
        "class_name": class_name(view.message_class),
        "label": whole_text(view.label),
        **_body(view),
        "body_type": view.body_type,
        "priority": view.priority,
        "delivery": delivery_word(view),
        "correlation_id": identifier_text(view.correlation_id),
        "sent_at": rfc3339(view.sent_time),
        "source_manager": str(source),
        "destination_queue": destination_text(view),
        "admin_queue": admin_text(view),
        "response_queue": response_text(view),
        "dead_letter_queue": view.dead_letter_queue,
        "extension_base64": base64_text(view.extension) if view.extension else None,
        "app_tag": view.application_tag,
        "hops": view.hop_count,
        "authenticated": is_authenticated(view),
        "encrypted": is_encrypted(view),
        "sender_id": sender_id(view),
        "first_in_transaction": bool(transaction and transaction.first_in_transaction),
        "last_in_transaction": bool(transaction and transaction.last_in_transaction),
        "transaction_id": transaction.transaction_id if transaction else None,
        "authentication_level": authentication_level(view),
        "hash": hash_word(view),
        "cipher": cipher_word(view),
    }


def authentication_level(view: MessageView) -> int:
    """AS, [MS-MQMQ] 2.2.20.6: 1, 3 and 5 for signatures of version 1.0, 2.0 and 3.0, and 9 for the digests of SOAP.

    1 also means that the sender had logged in.
    """
    sizes = security_sizes(view)
    return (sizes.flags & SecurityFlags.SIGNATURE_TYPE) >> _AS_SHIFT if sizes else 0


def is_authenticated(view: MessageView) -> bool:
    """Whether the sender is proved. The digests of SOAP do not prove a sender."""
    return authentication_level(view) not in (0, XML_DIGESTS)


def is_encrypted(view: MessageView) -> bool:
    """Whether the message arrived encrypted. It keeps its key, although its body is stored plain."""
    sizes = security_sizes(view)
    return sizes is not None and (view.encrypted or sizes.encryption_key > 0)


def hash_word(view: MessageView) -> str | None:
    """The hash of a signed message, as a word of the configuration."""
    if not view.signed:
        header = view.multi_queue_header if security_sizes(view) else None
        if header is None or not header.signature:
            return None
    return _algorithm_word(HashAlgorithm, view.hash_algorithm)


def cipher_word(view: MessageView) -> str | None:
    return _algorithm_word(EncryptionAlgorithm, view.encryption_algorithm) if is_encrypted(view) else None


def algorithm_words(kind: type[IntEnum]) -> list[str]:
    """Hashes or ciphers as words of the configuration."""
    return [_word(each) for each in kind]


def _algorithm_word(kind: type[IntEnum], number: int) -> str | None:
    return next((_word(each) for each in kind if each == number), None)


def _word(algorithm: IntEnum) -> str:
    return algorithm.name.lower().replace("_", "")


def sender_id(view: MessageView) -> str | None:
    return sender_text(view.security_header)


def _body(view: MessageView) -> dict[str, object]:
    text = None if view.encrypted else body_text(view.body, view.body_type)
    return {"body_base64": base64_text(view.body)} if text is None else {"body": text}


def delivery_word(view: MessageView) -> str:
    if view.transactional:
        return "transactional"
    return "recoverable" if view.recoverable else "express"


def destination_text(view: MessageView) -> str | None:
    """The destination's format name. An invalid direct name is shown as it is in the packet."""
    return _queue_text(destination_name, view, lambda: view.destination_queue)


def admin_text(view: MessageView) -> str | None:
    return _queue_text(admin_name, view, lambda: view.admin_queue)


def response_text(view: MessageView) -> str | None:
    if view.response_queue.code is QueueCode.SAME_AS_ADMIN:
        return admin_text(view)
    return _queue_text(response_name, view, lambda: view.response_queue)


def _queue_text(
    name: Callable[[MessageView], FormatName | None], view: MessageView, as_written: Callable[[], QueueField]
) -> str | None:
    try:
        found = name(view)
    except IllegalFormatName:
        field = as_written()
        if field.code is QueueCode.PRIVATE_ON_ADMIN:  # the administration queue has the invalid name, and shows it
            found = PrivateName(NULL_GUID, field.number)
        else:
            return direct_format_name(field.direct_name)
    return None if found is None else whole_text(str(found))


# Any packet as JSON: its kind, its content, and every field of its headers.


def packet_kind(packet: Packet | Ping) -> str:
    """The specification's name of a packet: UserMessage, OrderAck, SessionAck, Ping and so on."""
    return "UserMessage" if isinstance(packet, MessageView) else type(packet).__name__


def packet_json(data: bytes, packet: Packet | Ping) -> dict[str, object]:
    """The packet as JSON-ready values; `packet` is the decoded `data`.

    Messages, including ordering acknowledgments, have their message fields.
    """
    described: dict[str, object] = {"packet": packet_kind(packet)}
    if isinstance(packet, Ping):
        return described | {"headers": sections_json(describe_ping(packet))}
    if isinstance(packet, MessageView):
        described |= message_json(packet)
    elif isinstance(packet, OrderAck | FinalAck):
        described |= message_json(MessageView(data)) | {"ordering": ordering_json(packet)}
    return described | {"headers": sections_json(describe_headers(data))}


def ordering_json(ack: OrderAck | FinalAck) -> dict[str, object]:
    """The body of an OrderAck or a FinalAck, [MS-MQQB] 2.2.4 and 2.2.5."""
    described: dict[str, object] = {
        "sequence_id": {"ordinal": ack.sequence_id.ordinal, "time_stamp": ack.sequence_id.time_stamp},
        "sequence_number": ack.sequence_number,
        "previous_sequence_number": ack.previous_sequence_number,
    }
    if isinstance(ack, FinalAck):
        described |= {
            "source_guid": str(ack.source_guid),
            "acknowledged_message_id": ack.acknowledged_message_id,
        }
    return described


def sections_json(sections: list[Section]) -> dict[str, object]:
    return {section.key: section.json() for section in sections}


# Signatures of captured messages: under which reading of the specification they are valid, if any.


def read_certificate(data: bytes) -> bytes:
    """Reads a certificate in PEM or DER, and returns it in DER."""
    try:
        load = x509.load_pem_x509_certificate if b"-----BEGIN " in data else x509.load_der_x509_certificate
        return load(data).public_bytes(Encoding.DER)
    except (ValueError, x509.InvalidVersion):
        raise InvalidArgument("must be an X.509 certificate in PEM or DER") from None


class Verifier:
    """Checks messages one after the other and counts the results. Without a `certificate`, it uses the message's
    own."""

    def __init__(self, certificate: bytes | None = None) -> None:
        self._certificate = certificate
        self.verified = 0
        self.refused = 0

    def check(self, view: MessageView) -> dict[str, object] | str:
        """The profile, the version and the hash of a valid signature, or the reason why there is none."""
        if not is_signed(view):
            return "the message is not signed"
        if view.encrypted:
            self.refused += 1
            return "the body is encrypted, and the signature covers the plain body: only the receiver can check it"
        header = view.security_header
        found = find_profile(view.data, self._certificate or (header.sender_certificate if header else b""))
        if found is None:
            self.refused += 1
            return "the signature fits under no profile"
        self.verified += 1
        profile, verified = found
        return {"profile": profile.word, "signature": verified.version, "hash": verified.hash}
