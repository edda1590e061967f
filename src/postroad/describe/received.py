"""A message as a reader gets it: the stored packet, its position in the queue, and properties read on demand.

`encode_records` and `decode_records` are the binary format of the HTTP API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from struct import Struct
from typing import Any

from postroad.bodies import BodyKind, Decoded, decode, message_type
from postroad.bodies.bounds import LIMIT
from postroad.describe.packets import (
    admin_text,
    authentication_level,
    cipher_word,
    delivery_word,
    destination_text,
    hash_word,
    is_authenticated,
    is_encrypted,
    message_json,
    response_text,
    sender_id,
)
from postroad.describe.sections import identifier_text, rfc3339_ns
from postroad.errors import RemoteProtocolError, UnreadableBody
from postroad.message import Message
from postroad.names import MessageId
from postroad.wire.constants import INFINITE, class_name
from postroad.wire.octets import body_text
from postroad.wire.view import MessageView

_RECORD = Struct("<QQIHHI")  # lookup id, arrived_ms, aborts, reason, reserved, size of the packet that follows


class ReceivedMessage:
    """A message from a queue. `packet` is the message byte for byte, and the properties are read from it on demand."""

    __slots__ = ("_decoded", "_view", "aborts", "arrived_ms", "lookup_id", "packet", "reason")

    def __init__(self, packet: bytes, lookup_id: int, arrived_ms: int, aborts: int = 0, reason: int = 0) -> None:
        self.packet = packet
        self.lookup_id = lookup_id
        self.arrived_ms = arrived_ms
        self.aborts = aborts
        self.reason = reason  # for a dead letter, the message class that says why it died
        self._view: MessageView | None = None
        self._decoded: Decoded | None = None

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.id} {self.label!r}, {len(self.body)} bytes>"

    @property
    def view(self) -> MessageView:
        """The packet's own fields, under the specification's names."""
        if self._view is None:
            self._view = MessageView(self.packet)
        return self._view

    @property
    def id(self) -> str:
        r"""The id, `{guid}\ordinal`, as `send` returned it."""
        return str(MessageId(self.view.source_queue_manager, self.view.message_id))

    @property
    def body(self) -> bytes:
        return self.view.body

    @property
    def text(self) -> str:
        """The body as text. Raises UnreadableBody if neither its type nor its bytes show that it is text."""
        text = self.text_or_none
        if text is None:
            raise UnreadableBody(f"the body of message {self.id} is not text: {self._body_facts}; use `body`")
        return text

    @property
    def text_or_none(self) -> str | None:
        """The body as text if its type or its bytes show that it is text. Otherwise None."""
        return None if self.view.encrypted else body_text(self.view.body, self.view.body_type)

    def json(self) -> Any:
        """The value of a JSON body, as from `Message(json=...)`. Raises UnreadableBody if the body is not JSON."""
        text = self.text_or_none
        try:
            if text is not None:
                return json.loads(text)
            fault = "it is not text"
        except (ValueError, RecursionError) as error:
            fault = str(error)
        raise UnreadableBody(f"the body of message {self.id} is not JSON: {fault}; {self._body_facts}; use `body`")

    def decoded(self) -> dict[str, Any]:
        """What the body and the extension say: `body_kind`, `body_text`, `headers`, and, where they are known, `system`
        and `message_type`. Every message has an answer; `body_text` is None for bytes."""
        return self._reading.fields()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that a framework wrote, such as those of NServiceBus; empty if there are none."""
        return self._reading.headers

    @property
    def message_type(self) -> str | None:
        """As in `decoded`, for lists: only the start of the body is read."""
        view = self.view
        return message_type(b"" if view.encrypted else view.body, view.body_type, view.extension)

    def read(self, limit: int = LIMIT) -> Decoded:
        """What `decoded` says, with a text of at most `limit` characters. The message keeps nothing of it in memory."""
        view = self.view
        body = b"" if view.encrypted else view.body
        found = decode(body, view.body_type, view.extension, app_tag=view.application_tag, limit=limit)
        return replace(found, kind=BodyKind.BYTES, text=None) if view.encrypted else found

    @property
    def _reading(self) -> Decoded:
        if self._decoded is None:
            self._decoded = self.read()
        return self._decoded

    @property
    def _body_facts(self) -> str:
        facts = f"{len(self.body)} bytes of body type {self.body_type}"
        return f"{facts}, encrypted" if self.view.encrypted else facts

    @property
    def body_type(self) -> int:
        return self.view.body_type

    @property
    def label(self) -> str:
        return self.view.label

    @property
    def priority(self) -> int:
        return self.view.priority

    @property
    def delivery(self) -> str:
        """express, recoverable or transactional."""
        return delivery_word(self.view)

    @property
    def message_class(self) -> int:
        """The class of the message. For a dead letter, the reason why it died."""
        return self.reason or self.view.message_class

    @property
    def class_name(self) -> str:
        return class_name(self.message_class)

    @property
    def correlation_id(self) -> str | None:
        r"""`{guid}\ordinal` of the message that this one answers. None without one."""
        return identifier_text(self.view.correlation_id)

    @property
    def app_tag(self) -> int:
        return self.view.application_tag

    @property
    def extension(self) -> bytes:
        return self.view.extension

    @property
    def connector_type(self) -> str | None:
        connector = self.view.connector_type
        return None if connector is None else str(connector)

    @property
    def source_manager(self) -> str:
        """The GUID of the manager that sent the message."""
        return str(self.view.source_queue_manager)

    @property
    def destination_queue(self) -> str | None:
        return destination_text(self.view)

    @property
    def admin_queue(self) -> str | None:
        return admin_text(self.view)

    @property
    def response_queue(self) -> str | None:
        return response_text(self.view)

    @property
    def dead_letter_queue(self) -> str | None:
        """The queue that the sender has named for dead letters. Only the sender's own manager knows it."""
        return self.view.dead_letter_queue

    @property
    def sender_id(self) -> str | None:
        """The sender's SID. It is proved only if the message is `authenticated`."""
        return sender_id(self.view)

    @property
    def authentication_level(self) -> int:
        """0 if nobody checked the message; 1, 3 or 5 by the version of its signature, or 9 for digests of SOAP.

        1 also means that the sender had logged in.
        """
        return authentication_level(self.view)

    @property
    def authenticated(self) -> bool:
        return is_authenticated(self.view)

    @property
    def encrypted(self) -> bool:
        """Whether the message arrived encrypted. Its body is plain in any case."""
        return is_encrypted(self.view)

    @property
    def hash(self) -> str | None:
        """The hash of the signature, such as sha512. None if the message is not signed."""
        return hash_word(self.view)

    @property
    def cipher(self) -> str | None:
        """The cipher that the message was encrypted with, such as aes256. None if it was not."""
        return cipher_word(self.view)

    @property
    def sent_at(self) -> datetime:
        return datetime.fromtimestamp(self.view.sent_time, UTC)

    @property
    def arrived_at(self) -> datetime:
        return datetime.fromtimestamp(self.arrived_ms / 1000, UTC)

    def describe(self, *, decode: bool = False) -> dict[str, object]:
        """Every property of the message, ready for JSON, as in commands and the HTTP API."""
        fields = message_json(self.view)
        fields["lookup_id"] = self.lookup_id
        fields["arrived_at"] = rfc3339_ns(self.arrived_ms * 1_000_000)
        fields["aborts"] = self.aborts
        if self.reason:
            fields["class"] = self.reason
            fields["class_name"] = class_name(self.reason)
        return fields | self.decoded() if decode else fields


def encode_records(messages: Iterable[ReceivedMessage]) -> bytes:
    """Encodes messages one after the other."""
    parts: list[bytes] = []
    for each in messages:
        parts.append(_RECORD.pack(each.lookup_id, each.arrived_ms, each.aborts, each.reason, 0, len(each.packet)))
        parts.append(each.packet)
    return b"".join(parts)


def decode_records(data: bytes) -> list[ReceivedMessage]:
    """Decodes all messages. Raises RemoteProtocolError if `data` ends inside a record. Does not check packets."""
    messages: list[ReceivedMessage] = []
    offset, end = 0, len(data)
    while offset < end:
        start = offset + _RECORD.size
        if start > end:
            raise RemoteProtocolError(
                f"the head of a record must have {_RECORD.size} bytes, got {end - offset}", offset
            )
        lookup_id, arrived_ms, aborts, reason, _, size = _RECORD.unpack_from(data, offset)
        if start + size > end:
            raise RemoteProtocolError(f"the packet of the record must have {size} bytes, got {end - start}", start)
        messages.append(ReceivedMessage(data[start : start + size], lookup_id, arrived_ms, aborts, reason))
        offset = start + size
    return messages


# A message that is sent again: what the new message takes from the old one.


SHORT_LIFETIME_S = 60  # too short for an operator to notice that messages have died again
_NO_CORRELATION = bytes(20)


def new_message(dead_letter: ReceivedMessage, ttbr: int | None = None) -> Message:
    """A message with the same content and options. The manager gives it a new id, time and sequence number.

    With `ttbr`, it has that many seconds to be received, and at least as many to reach its queue.
    """
    view = dead_letter.view
    traced = view.debug_header
    return Message(
        view.body,
        label=view.label,
        priority=view.priority,
        recoverable=view.recoverable,
        body_type=view.body_type,
        app_tag=view.application_tag,
        correlation_id=None if view.correlation_id == _NO_CORRELATION else view.correlation_id,
        response_queue=dead_letter.response_queue,
        admin_queue=dead_letter.admin_queue,
        ack=view.ack_flags,
        time_to_reach_queue=max(view.time_to_reach_queue, ttbr or 0),
        time_to_be_received=view.time_to_be_received if ttbr is None else ttbr,
        journal=view.positive_journaling,
        dead_letter=view.negative_journaling,
        dead_letter_queue=dead_letter.dead_letter_queue,
        trace=None if traced is None else traced.queue_identifier,
        extension=view.extension,
        connector_type=view.connector_type,
        message_class=view.message_class,
    )


def is_short(seconds: int | None) -> bool:
    """Whether a message with this lifetime may well die again before anybody looks."""
    return seconds is not None and seconds < SHORT_LIFETIME_S


def lifetime_s(message: ReceivedMessage, ttbr: int | None, *, here: bool) -> int | None:
    """The lifetime of the new message: the time to be received and, for a queue elsewhere, the time to reach it.

    None means for ever.
    """
    view = message.view
    received = view.time_to_be_received if ttbr is None else ttbr
    shortest = received if here else min(received, max(view.time_to_reach_queue, ttbr or 0))
    return None if shortest == INFINITE else shortest
