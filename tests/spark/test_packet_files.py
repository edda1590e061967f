"""Files of packets as rows: captures, hex text and raw bytes, including packets that cannot be decoded."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from postroad.errors import InvalidArgument
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.spark.packets import PacketSource
from postroad.wire import Ping
from tests.captures import pcap, segment
from tests.packets import SOURCE, patched


def packet(body: str, label: str = "") -> bytes:
    name = parse_format_name(r"DIRECT=OS:beta\private$\orders")
    return Composer(SOURCE, name).compose(Message(body, label=label), 7, 1_700_000_000)


def rows(path: Path | str, schema: StructType | None = None, **given: str) -> list[dict[str, object]]:
    source = PacketSource({"path": str(path), **given})
    reader = source.reader(schema or source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return list(pa.Table.from_batches(batches).to_pylist()) if batches else []


def test_raw_packets(tmp_path: Path) -> None:
    file = tmp_path / "raw.bin"
    file.write_bytes(packet("one", "first") + packet("two"))
    first, second = rows(file)
    assert (first["file"], first["number"], first["offset"], first["kind"]) == (str(file), 1, 0, "UserMessage")
    assert (first["body_text"], first["label"], first["error"]) == ("one", "first", None)
    assert first["destination_queue"] == r"DIRECT=OS:beta\private$\orders"
    assert (second["number"], second["body"], second["size"]) == (2, b"two", len(packet("two")))
    assert second["packet"] == packet("two")


def test_an_undecodable_packet_is_kept_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "raw.bin"
    broken = patched(packet("bad"), 0x2C, b"\xff" * 4)
    file.write_bytes(packet("good") + broken + packet("after") + b"\0" * 40)
    found = rows(file)
    assert next(row["body_text"] for row in found if row["kind"] == "UserMessage") == "good"
    assert any(row["error"] for row in found)
    assert all((row["kind"] is None) == (row["error"] is not None) for row in found)


def test_hex_text(tmp_path: Path) -> None:
    file = tmp_path / "dump.hex"
    file.write_text("# one\n" + packet("one").hex(" ") + "\n")
    (row,) = rows(file)
    assert (row["line"], row["body_text"]) == (2, "one")


def test_a_capture(tmp_path: Path) -> None:
    file = tmp_path / "wire.pcap"
    one, two = packet("one"), packet("two")
    file.write_bytes(pcap([segment(one[:50], 0), segment(one[50:] + two, 50)]))
    found = rows(file)
    assert [row["body_text"] for row in found] == ["one", "two"]
    assert all(row["source"] and row["destination"] and row["captured_at"] for row in found)


def test_several_files_are_several_tasks(tmp_path: Path) -> None:
    for name in ("a.bin", "b.bin", "c.txt"):
        (tmp_path / name).write_bytes(packet(name))
    source = PacketSource({"path": str(tmp_path / "*.bin")})
    assert len(source.reader(source.schema()).partitions()) == 2
    assert sorted(str(row["body_text"]) for row in rows(tmp_path)) == ["a.bin", "b.bin", "c.txt"]
    assert [row["body_text"] for row in rows(f"file://{tmp_path}/a.bin")] == ["a.bin"]


def test_packets_that_are_no_messages_have_details(tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(Ping(7, SOURCE).encode())
    (row,) = rows(tmp_path)
    assert (row["kind"], row["label"], row["error"]) == ("Ping", None, None)
    assert json.loads(str(row["details"]))["packet"] == "Ping"


def test_only_the_columns_that_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(packet("one"))
    assert rows(tmp_path, StructType().add("kind", "string").add("label", "string")) == [
        {"kind": "UserMessage", "label": ""}
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "path: is missing"),
        ({"path": "/nowhere/*.pcap"}, "path: there is no file /nowhere/*.pcap"),
        ({"path": "hdfs://host/x"}, "path: must be a file on this machine, got hdfs://host/x"),
        ({"path": "/", "ports": "1"}, "ports: there is no such option; did you mean port?"),
    ],
)
def test_a_wrong_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PacketSource(given).schema()
    assert str(caught.value).startswith(sentence)


def test_a_wrong_port(tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(packet("one"))
    source = PacketSource({"path": str(tmp_path), "port": "http"})
    with pytest.raises(InvalidArgument, match="port: must be a whole number, got 'http'"):
        source.reader(source.schema())


def test_what_is_no_packet_of_a_session_is_a_row_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(b'{"a": 1}')
    (row,) = rows(file)
    assert (row["kind"], row["size"]) == (None, 8)
    assert row["error"] == "this is not an MSMQ packet, but another kind: body of a message"
