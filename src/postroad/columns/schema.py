"""The columns of messages, as data: from the packet, and from its place in a queue. The types are Spark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

TEXT = pa.string()
BYTES = pa.binary()
TRUTH = pa.bool_()
INT = pa.int32()
LONG = pa.int64()
TIME = pa.timestamp("us", tz="UTC")

# Columns from the packet.
PROPERTIES: dict[str, Any] = {
    "id": TEXT,
    "class": INT,
    "class_name": TEXT,
    "label": TEXT,
    "body": BYTES,
    "body_text": TEXT,
    "body_type": LONG,
    "priority": INT,
    "delivery": TEXT,
    "correlation_id": TEXT,
    "sent_at": TIME,
    "source_manager": TEXT,
    "destination_queue": TEXT,
    "admin_queue": TEXT,
    "response_queue": TEXT,
    "dead_letter_queue": TEXT,
    "extension": BYTES,
    "app_tag": LONG,
    "hops": INT,
    "authenticated": TRUTH,
    "encrypted": TRUTH,
    "sender_id": TEXT,
    "first_in_transaction": TRUTH,
    "last_in_transaction": TRUTH,
    "transaction_id": LONG,
    "authentication_level": INT,
    "hash": TEXT,
    "cipher": TEXT,
}
ERROR = "decode_error"  # why a packet cannot be decoded; all its properties are then null
PACKET = "packet"
# Columns that are known without decoding the packet.
PLACE: dict[str, Any] = {"lookup_id": LONG, "arrived_at": TIME, "aborts": INT, "reason": INT, PACKET: BYTES}
SECURITY = ("authentication_level", "hash", "cipher")  # added later, so they stand after all other columns
# The order for people.
MESSAGE = (
    *("id", "lookup_id", "class", "class_name", "label", "body", "body_text", "body_type", "priority", "delivery"),
    *("correlation_id", "sent_at", "arrived_at", "source_manager", "destination_queue", "admin_queue"),
    *("response_queue", "dead_letter_queue", "extension", "app_tag", "hops", "authenticated", "encrypted", "sender_id"),
    *("first_in_transaction", "last_in_transaction", "transaction_id", "aborts"),
    *SECURITY,
)
ARROW_TYPES = {**PROPERTIES, **PLACE, ERROR: TEXT}
KNOWN = (*MESSAGE, "reason", PACKET, ERROR)
