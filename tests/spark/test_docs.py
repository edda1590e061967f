"""Runs the page about Spark as it is written, block after block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postroad.spark.options import READ, WRITE
from postroad.spark.schema import MESSAGE
from postroad.spark.writing import COLUMNS
from tests.remote.station import Station, station
from tests.served import ORDERS, Served
from tests.spark.test_packet_files import packet

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "queues-in-spark.md"
REFERENCE = DOCS / "reference" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GREETINGS = "/api/v1/queues/private$/greetings"


@pytest.fixture
def there() -> Iterator[Station]:
    with station(host="127.0.80.5") as running:
        yield running


def test_every_block_runs(
    spark: SparkSession, alpha: Served, there: Station, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alpha.send("one", "two", "three", label="order")
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "wire.pcap").write_bytes(packet("captured"))
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    there.send("four", "five")
    host, port = there.address
    for block in BLOCK.finditer(text):
        source = block[1].replace("http://127.0.0.1:8180", f"http://127.0.0.1:{alpha.server.port}")
        source = source.replace('"winserver"', f'"{host}:{port}"')
        for path in ('"orders"', '"orders.checkpoint"', '"there"', '"there.checkpoint"', '"captures/*.pcap"'):
            source = source.replace(f", {path})", f', "{tmp_path}/{path[1:]})').replace(
                f"load({path})", f'load("{tmp_path}/{path[1:]})'
            )
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + source, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "|order|       3|    3|" in printed
    assert "|UserMessage|" in printed
    assert {row.body_text for row in spark.read.parquet(str(tmp_path / "orders")).collect()} == {"one", "two", "three"}
    assert alpha.call("GET", ORDERS).json["messages"] == 0
    assert {row.body_text for row in spark.read.parquet(str(tmp_path / "there")).collect()} == {"four", "five"}
    assert there.count() == 0
    assert sorted(alpha.bodies(GREETINGS)) == ["hello 0", "hello 1", "hello 2"]


def test_the_reference_names_every_option_and_every_column() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for name in (*READ, *WRITE, *MESSAGE, *COLUMNS):
        assert f"`{name}`" in text, name
