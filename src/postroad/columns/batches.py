"""Record batches of messages: the requested columns, from packets and from the values stored with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa

from postroad.columns.decoding import decode
from postroad.columns.schema import ERROR, KNOWN, MESSAGE, PACKET, PROPERTIES, arrow_type
from postroad.columns.texts import Ints
from postroad.errors import InvalidArgument

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # the end mark of the Arrow format: a message of length 0


def listed(*, packet: bool) -> tuple[str, ...]:
    """The columns of an answer whose caller chose none."""
    return (*MESSAGE, PACKET) if packet else MESSAGE


def schema_of(columns: Sequence[str]) -> Any:
    """The schema of these columns. Raises InvalidArgument for an unknown column."""
    for name in columns:
        if name not in KNOWN:
            close = get_close_matches(name, KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(KNOWN)}"
            raise InvalidArgument(f"columns: there is no column {name!r}; {hint}")
    return pa.schema([(name, arrow_type(name)) for name in columns])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Messages of a batch before decoding: each number is a column, and the packets are a binary array."""

    lookup_ids: Ints
    arrived_ms: Ints
    aborts: Ints
    reasons: Ints
    packets: Any

    @classmethod
    def of(cls, *columns: Sequence[Any]) -> Rows:
        """Makes rows from plain values, in the order of the fields."""
        *numbers, packets = columns
        lookup_ids, arrived_ms, aborts, reasons = (np.array(each, np.int64) for each in numbers)
        return cls(lookup_ids, arrived_ms, aborts, reasons, pa.array(packets, pa.binary()))

    def __len__(self) -> int:
        return len(self.lookup_ids)

    def take(self, indices: Ints) -> Rows:
        """The rows at these indices."""
        numbers = (self.lookup_ids, self.arrived_ms, self.aborts, self.reasons)
        lookup_ids, arrived_ms, aborts, reasons = (each[indices] for each in numbers)
        return Rows(lookup_ids, arrived_ms, aborts, reasons, self.packets.take(pa.array(indices)))

    def decode(self, columns: Sequence[str]) -> dict[str, Any]:
        return decode(self.packets, reason=pa.array(self.reasons), columns=columns)

    def batch(self, schema: Any) -> Any:
        """The record batch for a schema from `schema_of`."""
        decoded = [name for name in schema.names if name in PROPERTIES or name == ERROR]
        found = self.decode(decoded) if decoded else {}
        arrays = [found[name] if name in found else self._place(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _place(self, name: str) -> Any:
        match name:
            case "lookup_id":
                return pa.array(self.lookup_ids)
            case "arrived_at":
                return pa.array(self.arrived_ms * 1000).cast(arrow_type(name))
            case "aborts":
                return pa.array(self.aborts.astype(np.int32))
            case "reason":
                return pa.array(self.reasons.astype(np.int32))
        assert name == PACKET
        return self.packets
