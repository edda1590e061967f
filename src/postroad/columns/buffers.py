"""Columns and the numpy arrays over their bytes: Arrow, not Python, copies slices of many rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def offsets_of(array: Any) -> npt.NDArray[np.int32]:
    """Where each value of a binary or string array starts in its bytes, and where the last one ends."""
    raw = np.frombuffer(array.buffers()[1], np.int32) if len(array) else np.zeros(1, np.int32)
    return raw[array.offset : array.offset + len(array) + 1]


def bytes_of(array: Any) -> Bytes:
    """All of the bytes under a binary or string array."""
    buffer = array.buffers()[2]
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def slices(array: Any, starts: Ints, stops: Ints) -> Any:
    """A binary array of the bytes from each start to each stop; both grow from row to row, like the rows of `array`.

    Arrow copies every second value of an array whose values are the slices and the gaps between them.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = stops
    whole = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), array.buffers()[2]])
    return whole.take(pa.array(np.arange(0, 2 * count - 1, 2)))


def matrix(array: Any, starts: Ints, width: int) -> Bytes:
    """`width` bytes from each start on, one row each; all of them must exist."""
    return bytes_of(slices(array, starts, starts + width))[: len(starts) * width].reshape(len(starts), width)


def binary(data: Bytes, offsets: Ints, kind: Any) -> Any:
    """A binary or string array over bytes and offsets; strings must be UTF-8."""
    count = len(offsets) - 1
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, count, buffers)


def fixed(rows: Bytes) -> Any:
    """A string array of rows of equal width, all of them ASCII."""
    count, width = rows.shape
    return binary(rows.reshape(-1), np.arange(count + 1, dtype=np.int64) * width, pa.string())


def count_per_row(flags: Mask, offsets: Ints) -> Ints:
    """How many of the flags are set between each offset and the next."""
    indices = np.flatnonzero(flags)
    if not len(indices):
        return np.zeros(len(offsets) - 1, np.int64)
    found: Ints = np.diff(np.searchsorted(indices, offsets))
    return found
