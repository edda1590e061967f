"""The data source `postroad_packets`: reads files of packets (captures, hex text, raw bytes), one row for each packet.

A packet that cannot be decoded gets a row too, with the error. Each file is one task.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from postroad.columns import PROPERTIES, decode
from postroad.columns.schema import PACKET
from postroad.describe import packet_json
from postroad.describe.capture import (
    STANDARD_PORTS,
    CaptureFile,
    DamagedPacket,
    DecodedPacket,
    Item,
    OtherPacket,
    Ports,
)
from postroad.describe.packets import packet_kind
from postroad.errors import InvalidArgument
from postroad.spark.options import Options
from postroad.spark.schema import FOUND, arrow_schema, named, spark_schema
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback
from postroad.validation.kinds import PORT_MAX, parsed, whole
from postroad.wire import MessageView

MOST_ROWS = 1000  # in a record batch
MOST_BYTES = 8 << 20
_OPTIONS = ("path", "port", "pingPort")
_PORTS = parsed("text", lambda text: frozenset(whole(1, PORT_MAX).from_text(each.strip()) for each in text.split(",")))


class PacketSource(DataSource):
    """The source of `spark.read.format("postroad_packets").load("captures/*.pcap")`."""

    @classmethod
    def name(cls) -> str:
        return "postroad_packets"

    @without_traceback
    def schema(self) -> StructType:
        _files(self.options)
        return spark_schema(tuple(FOUND), FOUND)

    @without_traceback
    def reader(self, schema: StructType) -> PacketReader:
        return PacketReader(_files(self.options), _ports(self.options), named(schema, FOUND))


class PacketReader(DataSourceReader):
    def __init__(self, files: Sequence[str], ports: Ports, columns: tuple[str, ...]) -> None:
        self._files = files
        self._ports = ports
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files]

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        file: str = partition.value
        try:
            with open(file, "rb") as stream:
                yield from _batches(file, CaptureFile(stream, self._ports).items(), self._columns)
        except OSError as fault:
            raise InvalidArgument(f"{file}: cannot be read: {fault.strerror}") from None


def _files(given: Mapping[str, str]) -> list[str]:
    """The files at a path, which is a file, a directory or a pattern. Raises InvalidArgument if there are none."""
    options = Options(given, _OPTIONS)
    options.check_names()
    path = options.text("path")
    if not path:
        raise InvalidArgument("path: is missing; name files, as in .load('captures/*.pcap')")
    parts = urlsplit(path)
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif "://" in path:
        raise InvalidArgument(f"path: must be a file on this machine, got {path}")
    pattern = os.path.join(glob.escape(path), "*") if os.path.isdir(path) else path
    files = sorted(os.path.abspath(file) for file in glob.glob(pattern, recursive=True) if os.path.isfile(file))
    if not files and os.path.isfile(path):  # a file whose name looks like a pattern
        files = [os.path.abspath(path)]
    if not files:
        raise InvalidArgument(f"path: there is no file {path}")
    return files


def _ports(given: Mapping[str, str]) -> Ports:
    options = Options(given, _OPTIONS)

    sessions = options.read("port", _PORTS, frozenset[int]())
    pings = options.read("pingPort", _PORTS, frozenset[int]())
    return Ports(STANDARD_PORTS.sessions | sessions, STANDARD_PORTS.pings | pings)


@dataclass(slots=True)
class _Rows:
    """Rows for one record batch: columns about each packet, and the packets that are messages."""

    found: list[dict[str, object]] = field(default_factory=list)
    messages: list[bytes | None] = field(default_factory=list)
    size: int = 0

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        schema = arrow_schema(columns, FOUND)
        wanted = [name for name in columns if name in PROPERTIES]
        decoded: dict[str, Any] = decode(pa.array(self.messages, pa.binary()), columns=wanted) if wanted else {}
        arrays = []
        for each in schema:
            if each.name in PROPERTIES:
                arrays.append(decoded[each.name].cast(each.type))
            else:
                arrays.append(pa.array([row.get(each.name) for row in self.found], each.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches(file: str, items: Iterator[Item], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = _Rows()
    number = 0
    for item in items:
        data = b""
        row = _place(file, item)
        message = None
        if isinstance(item, DecodedPacket | DamagedPacket):
            number += 1
            data = item.data
            row |= {"number": number, "size": len(data), PACKET: data}
        if isinstance(item, DecodedPacket):
            row["kind"] = packet_kind(item.packet)
            if isinstance(item.packet, MessageView):
                message = data
            elif "details" in columns:
                row["details"] = json.dumps(packet_json(data, item.packet))
        elif isinstance(item, DamagedPacket):
            row["error"] = str(item.fault)
        elif isinstance(item, OtherPacket):
            row |= {"size": len(item.data), "error": f"this is not an MSMQ packet, but another kind: {item.kind.value}"}
        else:
            row |= {"size": item.size, "error": item.reason}
        rows.found.append(row)
        rows.messages.append(message)
        rows.size += len(data)
        if len(rows.found) == MOST_ROWS or rows.size > MOST_BYTES:
            yield rows.batch(columns)
            rows = _Rows()
    if rows.found:
        yield rows.batch(columns)


def _place(file: str, item: Item) -> dict[str, object]:
    origin = item.origin
    return {
        "file": file,
        "offset": origin.offset,
        "line": origin.line,
        "frame": origin.frame,
        "captured_at": None if origin.time_ns is None else origin.time_ns // 1000,
        "source": origin.source,
        "destination": origin.destination,
    }
