"""A message as JSON, for commands, the HTTP API and exports.

Only the fields of the packet are here. Callers add `lookup_id` and `arrived_at`, which belong to a queue.
"""

from __future__ import annotations

from collections.abc import Callable

from postroad.describe.values import (
    base64_text,
    direct_format_name,
    identifier_text,
    rfc3339,
    sender_text,
    whole_text,
)
from postroad.errors import IllegalFormatName
from postroad.names import FormatName, MessageId, PrivateName
from postroad.wire import MessageView, body_text
from postroad.wire.constants import QueueCode, SecurityFlags, class_name
from postroad.wire.layout import NULL_GUID
from postroad.wire.queue_names import admin_name, destination_name, response_name
from postroad.wire.user_header import QueueField


def message_json(view: MessageView) -> dict[str, object]:
    """JSON-ready; a missing property is None, and exactly one of `body` and `body_base64` is present.

    `authenticated` is the packet's own mark, which a queue manager sets after it has checked a signature.
    """
    transaction = view.transaction_header
    security = view.security_header
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
        "authenticated": bool(security and security.flags & SecurityFlags.AUTHENTICATED),
        "encrypted": view.encrypted,
        "sender_id": sender_text(security),
        "first_in_transaction": bool(transaction and transaction.first_in_transaction),
        "last_in_transaction": bool(transaction and transaction.last_in_transaction),
        "transaction_id": transaction.transaction_id if transaction else None,
    }


def _body(view: MessageView) -> dict[str, object]:
    text = None if view.encrypted else body_text(view.body, view.body_type)
    return {"body_base64": base64_text(view.body)} if text is None else {"body": text}


def delivery_word(view: MessageView) -> str:
    if view.transactional:
        return "transactional"
    return "recoverable" if view.recoverable else "express"


def destination_text(view: MessageView) -> str | None:
    """The destination's format name; an invalid direct name is shown as it is in the packet."""
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
        if field.code is QueueCode.PRIVATE_ON_ADMIN:  # the fault is the administration queue's
            found = PrivateName(NULL_GUID, field.number)
        else:
            return direct_format_name(field.direct_name)
    return None if found is None else whole_text(str(found))
