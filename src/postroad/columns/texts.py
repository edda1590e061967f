"""Text of many rows at once: GUIDs, identifiers, UTF-16 labels, and bodies that are text by the rules of
wire/octets.py.

Plain ASCII is converted as a whole. The rest is converted row by row, with the rules for single messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroad.wire.constants import BodyType
from postroad.wire.octets import body_text

# Columns, and the numpy arrays over their bytes. Arrow copies the slices of many rows at once, not Python.


Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def offsets_of(array: Any) -> npt.NDArray[np.int32]:
    """Where each value of a binary or string array starts in its bytes, and where the last one ends."""
    raw = np.frombuffer(array.buffers()[1], np.int32) if len(array) else np.zeros(1, np.int32)
    return raw[array.offset : array.offset + len(array) + 1]


def bytes_of(array: Any) -> Bytes:
    """All bytes of a binary or string array."""
    buffer = array.buffers()[2]
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def slices(array: Any, starts: Ints, stops: Ints) -> Any:
    """A binary array of the bytes from each start to each stop. Both must grow from row to row, as in `array`.

    Arrow copies every second value of an array that consists of the slices and the gaps between them.
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
    """`width` bytes from each start on, as a row each. All of them must exist."""
    return bytes_of(slices(array, starts, starts + width))[: len(starts) * width].reshape(len(starts), width)


def binary(data: Bytes, offsets: Ints, kind: Any) -> Any:
    """A binary or string array over bytes and offsets. Strings must be in UTF-8."""
    count = len(offsets) - 1
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, count, buffers)


def fixed(rows: Bytes) -> Any:
    """A string array of rows of equal width, all in ASCII."""
    count, width = rows.shape
    return binary(rows.reshape(-1), np.arange(count + 1, dtype=np.int64) * width, pa.string())


def count_per_row(flags: Mask, offsets: Ints) -> Ints:
    """How many of the flags are set between each offset and the next."""
    indices = np.flatnonzero(flags)
    if not len(indices):
        return np.zeros(len(offsets) - 1, np.int64)
    found: Ints = np.diff(np.searchsorted(indices, offsets))
    return found


_GUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]  # positions in bytes_le, in the order of the text
# positions of the digits; hyphens are between them
_GUID_PARTS = ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4))
_GUID_SIZE = 36
_TEXT_TYPES = (BodyType.VT_BSTR.value, BodyType.VT_LPWSTR.value, BodyType.VT_LPSTR.value)
_MARKS = (0xEF, 0xFE, 0xFF)  # the first bytes of byte order marks
_BEFORE_CONTROLS = 0xC2  # the first byte of U+0080 to U+00BF in UTF-8
_LOOK = 32  # bytes to look at, enough to see that most binary bodies are not text
_ASCII = 0x80
_DELETE, _SPACE, _TAB, _LINE_FEED, _RETURN = 0x7F, 0x20, 0x09, 0x0A, 0x0D


def guid_rows(guids: Bytes, before: bytes = b"", behind: bytes = b"") -> Bytes:
    """GUIDs, 16 bytes in a row, as ASCII in the form 8-4-4-4-12, between two constant texts."""
    digits = np.frombuffer(guids[:, _GUID_ORDER].tobytes().hex().encode("ascii"), np.uint8).reshape(len(guids), 32)
    start = len(before)
    rows = np.full((len(guids), start + _GUID_SIZE + len(behind)), ord("-"), np.uint8)
    rows[:, :start] = np.frombuffer(before, np.uint8)
    rows[:, start + _GUID_SIZE :] = np.frombuffer(behind, np.uint8)
    for first, last, hyphens in _GUID_PARTS:
        rows[:, start + first + hyphens : start + last + hyphens] = digits[:, first:last]
    return rows


def identifiers(guids: Bytes, ordinals: Ints) -> Any:
    r"""`{guid}\ordinal` for each row."""
    return pc.binary_join_element_wise(
        fixed(guid_rows(guids, b"{", b"}\\")), pa.array(ordinals).cast(pa.string()), pa.scalar("")
    )


def utf16_text(raw: Any) -> Any:
    """Strings of UTF-16LE, with U+FFFD in place of unpaired surrogates."""
    offsets = offsets_of(raw).astype(np.int64)
    data = bytes_of(raw)[: offsets[-1]]
    low, high = data[0::2], data[1::2]
    if not len(high) or (not high.any() and low.max() < _ASCII):
        return binary(low, offsets // 2, pa.string())
    known = raw.dictionary_encode()
    texts = pa.array([each.decode("utf-16-le", "replace") for each in known.dictionary.to_pylist()], pa.string())
    return texts.take(known.indices)


def body_texts(bodies: Any, body_types: Ints) -> Any:
    """The bodies as text. Null if their type or their bytes show that they are not text."""
    is_text, is_none = _sniffed(bodies, body_types)
    if is_text.all():
        return bodies.view(pa.string())
    plain, single = np.flatnonzero(is_text | is_none), np.flatnonzero(~(is_text | is_none))
    kept = bodies.take(pa.array(plain, mask=is_none[plain])).view(pa.string())
    if not len(single):
        return kept
    kinds = body_types[single].tolist()
    raw = bodies.take(pa.array(single)).to_pylist()
    texts = [body_text(body, kind) for body, kind in zip(raw, kinds, strict=True)]
    order = np.empty(len(bodies), np.int64)
    order[plain] = np.arange(len(plain))
    order[single] = len(plain) + np.arange(len(single))
    return pa.concat_arrays([kept, pa.array(texts, pa.string())]).take(pa.array(order))


def _sniffed(bodies: Any, body_types: Ints) -> tuple[Mask, Mask]:
    """Which bodies are ASCII text, and which are certainly not text. The others need a closer look."""
    offsets = offsets_of(bodies).astype(np.int64)
    data = bytes_of(bodies)
    untyped = body_types == BodyType.VT_EMPTY
    none = ~(untyped | np.isin(body_types, _TEXT_TYPES))
    first = _first_bytes(data, offsets)
    # A control character means that a body is not text, unless it has a byte order mark or may be UTF-16.
    settled = untyped & ~np.isin(first[:, 0], _MARKS) & (first[:, 1] != 0)
    none |= settled & _is_control(first).any(axis=1)
    rows = np.flatnonzero(untyped & ~none)
    text = np.zeros(len(bodies), bool)
    if not len(rows):
        return text, none
    looked_at = bodies if len(rows) == len(bodies) else bodies.take(pa.array(rows))
    bounds = offsets_of(looked_at).astype(np.int64)
    data = bytes_of(looked_at)[: bounds[-1]]
    odd = np.flatnonzero((data - _SPACE).astype(np.uint8) >= _DELETE - _SPACE)
    values = data[odd]
    control, high = _is_control(values), values >= _ASCII
    has_control, has_high = _holds_any(bounds, odd[control]), _holds_any(bounds, odd[high])
    text[rows] = ~has_control & ~has_high
    none[rows] = has_control & settled[rows]
    beyond = rows[has_high & ~has_control & settled[rows]]
    text[beyond] = _are_utf8(bodies.take(pa.array(beyond)))
    return text, none


def _are_utf8(bodies: Any) -> bool:
    """Whether all of them are UTF-8 without the control characters U+0080 to U+009F."""
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    data = bytes_of(bodies)
    following = data[1:][data[:-1] == _BEFORE_CONTROLS]
    return not ((following >= 0x80) & (following <= 0x9F)).any()


def _is_control(values: Bytes) -> Mask:
    """Which bytes are control characters other than tab and line ends. Characters beyond ASCII are not checked."""
    below = (values < _SPACE) & (values != _TAB) & (values != _LINE_FEED) & (values != _RETURN)
    found: Mask = below | (values == _DELETE)
    return found


def _holds_any(bounds: Ints, indices: Ints) -> Mask:
    """Which rows have one of the indices between their bounds."""
    found: Mask = np.diff(np.searchsorted(indices, bounds)) > 0
    return found


def _first_bytes(data: Bytes, offsets: Ints) -> Bytes:
    """The first bytes of each row, padded with spaces."""
    starts, sizes = offsets[:-1], np.diff(offsets)
    columns = np.arange(_LOOK)
    there = columns < sizes[:, None]
    rows = np.full(there.shape, _SPACE, np.uint8)
    rows[there] = data[(starts[:, None] + columns)[there]]
    return rows
