"""The option `decode`: what bodies and extensions say, as columns of a frame and of a stream, VARIANT among them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from postroad.errors import InvalidArgument
from postroad.spark.options import batch_options
from tests.served import Served
from tests.spark.driver import options
from tests.spark.test_session import messages, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REBUS = b'{"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "7"}'


def fill(alpha: Served) -> None:
    alpha.send(
        '{"id": 7, "lines": [{"sku": "a", "price": 1.5}]}', label="json", extension_base64=b64encode(REBUS).decode()
    )
    alpha.send("<Order><Id>7</Id></Order>", label="xml")
    alpha.send("hello", label="text")


def test_columns_of_a_frame(spark: SparkSession, alpha: Served) -> None:
    fill(alpha)
    frame = messages(spark, alpha, decode="true")
    assert "headers:map<string,string>" in frame.schema.simpleString()
    assert "body_variant:variant" in frame.schema.simpleString()
    found = {row["label"]: row for row in frame.collect()}
    assert {label: row["body_kind"] for label, row in found.items()} == {"json": "json", "xml": "xml", "text": "text"}
    assert found["json"]["headers"] == {"rbs2-msg-type": "Shop.Order, Shop", "rbs2-msg-id": "7"}
    assert (found["json"]["system"], found["json"]["message_type"]) == ("rebus", "Shop.Order")
    assert found["xml"]["body_text"] == "<Order>\n  <Id>7</Id>\n</Order>"
    assert (found["xml"]["headers"], found["xml"]["message_type"]) == ({}, "Order")
    assert found["text"]["body_variant"] is None
    paths = f.variant_get("body_variant", "$.lines[0].price", "double"), f.variant_get("body_variant", "$.Id", "int")
    values = {row[0]: row[1:] for row in frame.select("label", *paths).collect()}
    assert values == {"json": (1.5, None), "xml": (None, 7), "text": (None, None)}
    assert [row[0] for row in messages(spark, alpha, decode="true", columns="body_kind").collect()] == [
        "json",
        "xml",
        "text",
    ]


def test_columns_of_a_stream(spark: SparkSession, alpha: Served, checkpoint: str) -> None:
    fill(alpha)
    frame = stream(spark, alpha, decode="true").select("label", "body_kind", "headers", "message_type")
    writer = frame.writeStream.format("memory").queryName("said").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    found = {row["label"]: row["message_type"] for row in spark.table("said").collect()}
    assert found == {"json": "Shop.Order", "xml": "Order", "text": None}


def test_without_the_option_bodies_are_as_they_are(spark: SparkSession, alpha: Served) -> None:
    fill(alpha)
    frame = messages(spark, alpha)
    assert "headers" not in frame.columns
    assert [row[0] for row in frame.where("label = 'xml'").select("body_text").collect()] == [
        "<Order><Id>7</Id></Order>"
    ]
    with pytest.raises(InvalidArgument, match="there is no column 'body_kind'"):
        batch_options(options(alpha, columns="id,body_kind"))
