"""A digest of rows in their order, the same however they are divided into batches: it compares a repeat with the first.

Every column has three hashes: of its values, of their lengths, and of its nulls. Each hashes a stream of bytes in which
the ends of batches do not show.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SIZE = 16


class RowDigest:
    """`add` rows, and ask for the digest of all so far at any time."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name in batch.schema.names:
            self._add(name, batch.column(name))

    def text(self) -> str:
        whole = blake2b(str(self.rows).encode(), digest_size=_SIZE)
        for name in sorted(self._hashes):
            whole.update(f"{name}\0".encode() + self._hashes[name].digest())
        return whole.hexdigest()

    def _add(self, name: str, values: pa.Array) -> None:
        self._feed(f"{name} valid", np.asarray(values.is_valid()).astype(np.uint8))
        kind = values.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._feed(f"{name} lengths", _numbers(pc.list_value_length(values)))
            self._add(f"{name} items", values.flatten())
        elif pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind):
            plain = values.cast(pa.large_binary()).fill_null(b"")
            bounds = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
            self._feed(f"{name} lengths", np.diff(bounds))
            data = plain.buffers()[2]
            if len(plain) and data is not None:
                self._feed(name, memoryview(data)[int(bounds[0]) : int(bounds[-1])])
        else:
            self._feed(name, _numbers(values))

    def _feed(self, name: str, data: Any) -> None:
        if name not in self._hashes:
            self._hashes[name] = blake2b(digest_size=_SIZE)
        self._hashes[name].update(data)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _numbers(values: pa.Array) -> Any:
    return np.ascontiguousarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
