"""Packets to columns, one packet at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from postroad.describe.values import whole_text
from postroad.errors import RemoteProtocolError
from postroad.received import ReceivedMessage
from postroad.spark.schema import PROPERTIES, arrow_schema


def decode(packets: pa.BinaryArray, *, reason: pa.Array | None = None, columns: Sequence[str]) -> dict[str, pa.Array]:
    rows: list[dict[str, object]] = []
    reasons = [0] * len(packets) if reason is None else reason.to_pylist()
    for packet, why in zip(packets.to_pylist(), reasons, strict=True):
        rows.append({} if packet is None else _row(packet, why))
    schema = arrow_schema([name for name in columns if name in PROPERTIES or name == "decode_error"])
    return {f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in schema}


def _row(packet: bytes, reason: int) -> dict[str, object]:
    message = ReceivedMessage(packet, 0, 0, 0, reason)
    try:
        row = message.json()
    except RemoteProtocolError as fault:
        return {"decode_error": str(fault)}
    row["body_text"] = None if message.text is None else whole_text(message.text)
    row["body"] = message.body
    row["extension"] = message.extension
    row["sent_at"] = message.view.sent_time * 1_000_000
    return row
