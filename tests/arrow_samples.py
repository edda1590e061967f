"""Arrow streams as strangers could write them: a valid one, and each kind that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from postroad.columns.ipc import MAX_HEADER

BODIES = ["first", "second", "third"]
MOST = 100  # rows


def stream(table: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def honest() -> bytes:
    return stream(pa.table({"body": BODIES, "priority": [1, 2, 3]}))


def changed(table: Any, old: bytes, new: bytes) -> bytes:
    """The stream of a valid table, with some of its bytes replaced."""
    whole = stream(table)
    assert len(old) == len(new)
    assert old in whole
    return whole.replace(old, new)


def offsets(*numbers: int, kind: Any = None) -> bytes:
    """A column of two values with the given offsets."""
    table = pa.table({"body": pa.array(["abcdefgh", "ijkl"], kind or pa.string())})
    return changed(table, int32s(0, 8, 12), int32s(*numbers))


def int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def int32s(*numbers: int) -> bytes:
    return b"".join(each.to_bytes(4, "little", signed=True) for each in numbers)


def renamed(column: str, array: Any) -> bytes:
    return stream(pa.table({column: array}))


def deep(levels: int) -> bytes:
    kind = pa.string()
    for _ in range(levels):
        kind = pa.list_(kind)
    return renamed("ack", pa.nulls(1, kind))


def big_endian() -> bytes:
    """An empty schema with big-endian numbers: `endianness` is the first 16-bit number after the start of its table."""
    whole = bytearray(pa.schema([("body", pa.string())]).serialize())
    header = memoryview(whole)[8:]

    def u32(at: int) -> int:
        return int.from_bytes(header[at : at + 4], "little")

    def place(table: int, slot: int) -> int:
        vtable = table - u32(table)
        return table + int.from_bytes(header[vtable + 4 + 2 * slot : vtable + 6 + 2 * slot], "little")

    message = u32(0)
    schema = place(message, 2)
    schema += u32(schema)
    vtable = schema - u32(schema)
    # pyarrow omits a zero, so the field takes the place of the fields' vector, whose low half is not zero
    header[vtable + 4 : vtable + 6] = header[vtable + 6 : vtable + 8]
    return bytes(whole)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"not Arrow at all",
    "old form": lambda: stream(pa.table({"body": BODIES}), use_legacy_format=True),
    "old version": lambda: stream(pa.table({"body": BODIES}), metadata_version=pa.ipc.MetadataVersion.V4),
    "ends early": lambda: honest()[:-40],
    "big endian": big_endian,
    "an offset behind the bytes": lambda: offsets(0, 8, 3_000_000),
    "an offset before the bytes": lambda: offsets(-4096, 8, 12, kind=pa.binary()),
    "an offset that goes back": lambda: offsets(0, 12, 8, kind=pa.binary()),
    "too few offsets": lambda: changed(pa.table({"body": ["abcdefgh", "ijkl"]}), int64(12), int64(4)),
    "no UTF-8": lambda: changed(pa.table({"body": ["abcdefgh"]}), b"cd", b"\xff\xfe"),
    "compressed with zstd": lambda: stream(pa.table({"body": ["x" * 1_000_000] * 90}), compression="zstd"),
    "compressed with lz4": lambda: stream(pa.table({"body": ["x" * 1_000_000] * 90}), compression="lz4"),
    "a dictionary": lambda: renamed("body", pa.array(["x"]).dictionary_encode()),
    "a list in a list": lambda: deep(2),
    "very deep lists": lambda: deep(60),
    "a struct": lambda: renamed("body", pa.array([{"a": 1}])),
    "views": lambda: renamed("body", pa.array(["a long enough text for a view"], pa.string_view())),
    "runs": lambda: renamed("body", pa.RunEndEncodedArray.from_arrays([MOST], ["x"])),
    "a list of nothing": lambda: renamed("ack", pa.array([[None] * 1000], pa.large_list(pa.null()))),
    "an extension": lambda: renamed("body", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))),
    "too many rows": lambda: renamed("body", pa.nulls(MOST + 1)),
    "far too many rows": lambda: changed(pa.table({"body": pa.nulls(77)}), int64(77), int64(1 << 50)),
    "too many batches": lambda: _many_batches(),
    "a schema in the middle": lambda: honest()[:-8] + honest(),
    "a huge header": lambda: b"\xff\xff\xff\xff" + (MAX_HEADER + 8).to_bytes(4, "little") + bytes(64),
}


def _many_batches() -> bytes:
    schema = pa.schema([("body", pa.string())])
    empty = bytes(pa.RecordBatch.from_arrays([pa.array([], pa.string())], schema=schema).serialize())
    return bytes(schema.serialize()) + empty * (2 * MOST)
