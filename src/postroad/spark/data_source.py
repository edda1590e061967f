"""The data source `postroad`: reads the messages of queues as a DataFrame or a stream, and sends rows to a queue."""

from __future__ import annotations

from typing import ClassVar

from pyspark import Accumulator
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from postroad.errors import InvalidArgument
from postroad.spark.options import Mode, WriteOptions, batch_options, read_options, stream_options, write_options
from postroad.spark.reading import BatchReader
from postroad.spark.remote import RemoteBatchReader, RemoteStreamReader
from postroad.spark.schema import QUEUE, spark_schema
from postroad.spark.streaming import StreamReader
from postroad.spark.tracebacks import without_traceback
from postroad.spark.writing import BatchWriter, StreamWriter


class MessageSource(DataSource):
    """`spark.read`, `readStream`, `write` and `writeStream` with `format("postroad")`."""

    dropped: ClassVar[Accumulator[int] | None] = None  # counts rows that were sent before; set by the session

    @classmethod
    def name(cls) -> str:
        return "postroad"

    @without_traceback
    def schema(self) -> StructType:
        return spark_schema(read_options(self.options).columns)

    @without_traceback
    def reader(self, schema: StructType) -> BatchReader | RemoteBatchReader:
        options = batch_options(self.options)
        if options.mode is Mode.CONSUME:
            raise InvalidArgument(
                "mode: must be peek for spark.read, which does not report when its rows are safe; to consume the "
                "messages that are there and then end, use readStream with .trigger(availableNow=True)"
            )
        return BatchReader(options, schema) if options.rpc is None else RemoteBatchReader(options, options.rpc, schema)

    # Keep the traceback here: if this method fails, Spark fails too, and only the traceback in its message has our
    # error.
    def streamReader(self, schema: StructType) -> StreamReader | RemoteStreamReader:  # noqa: N802
        options = stream_options(self.options)
        if options.rpc is None:
            return StreamReader(options, schema)
        if options.mode is Mode.PEEK:
            raise InvalidArgument(
                "mode: must be consume for a stream from `rpc`, because MS-MQQP does not say up to where a queue is "
                "complete; use .option('mode', 'consume'), or the option `api`, or spark.read"
            )
        return RemoteStreamReader(options, options.rpc, schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise InvalidArgument("mode: must be append, because a queue cannot be overwritten; use .mode('append')")
        return BatchWriter(self._write_options(schema), schema, self.dropped)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        if overwrite:
            raise InvalidArgument("outputMode: must be append or update, got complete: a queue takes rows one by one")
        return StreamWriter(self._write_options(schema), schema, self.dropped)

    def _write_options(self, schema: StructType) -> WriteOptions:
        return write_options(self.options, has_queues=QUEUE in schema.fieldNames())
