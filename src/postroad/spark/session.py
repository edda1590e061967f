"""Makes a Spark session with our data sources, and sets the environment that it needs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from postroad.errors import SparkUnavailable
from postroad.spark.java import archive_options, cache_directory, java_home, spark_home

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_LOOPBACK = "127.0.0.1"

# Spark's default file manager starts a dozen processes for each micro-batch on a local disk.
_LOCAL_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_SETTINGS = {"spark.ui.showConsoleProgress": "false"}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DROPPED: WeakKeyDictionary[SparkContext, Accumulator[int]] = WeakKeyDictionary()


def session(name: str, master: str | None = None, *, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session with the sources `postroad` and `postroad_packets`. If a session is running, returns that one.

    `master` is the address of a cluster. Without it, Spark runs on this machine, on every core. `settings` are Spark's
    settings and override ours. Raises SparkUnavailable if Spark cannot start.
    """
    require_pyspark()
    local = (master or LOCAL).startswith("local")
    prepare(local=local)
    import pyspark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master or LOCAL)
    chosen = {**_SETTINGS, **(_LOCAL_SETTINGS if local else {}), **(settings or {})}
    archive = archive_options(cache_directory(), os.environ, Path(pyspark.__file__).parent)
    chosen[JAVA_OPTIONS] = f"{archive} {chosen.get(JAVA_OPTIONS, '')}".strip()
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Registers our sources with a session and returns the session."""
    require_pyspark()
    from postroad.spark.data_source import MessageSource
    from postroad.spark.packets import PacketSource
    from postroad.spark.pipeline.lakes import register_formats

    class CountingSource(MessageSource):  # Spark pickles a local class whole, with its accumulator
        dropped = dropped_rows(spark)

    spark.dataSource.register(CountingSource)
    spark.dataSource.register(PacketSource)
    register_formats(spark)
    _show_metrics()
    return spark


def dropped_rows(spark: SparkSession) -> Accumulator[int] | None:
    """Counts the rows that writes of this session dropped because they were sent before under the same name.

    None with Spark Connect, which has no accumulators.
    """
    if not hasattr(spark, "_sc"):
        return None
    context = spark.sparkContext
    if context not in _DROPPED:
        _DROPPED[context] = context.accumulator(0)
    return _DROPPED[context]


def metrics(progress: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures of each source in the progress of a query: `backlog`, `oldestAgeMs`, `lost`, and `queues` with those
    of each queue. Empty for a source that is not `postroad`, or reads by `rpc`.
    """
    found = []
    for source in progress["sources"]:
        try:
            latest = json.loads(source["latestOffset"] or "null")
        except ValueError:  # of another source
            latest = None
        found.append(latest if isinstance(latest, dict) and latest.keys() >= {*_METRICS} else {})
    return found


_METRICS = ("backlog", "oldestAgeMs", "lost", "queues")


def _show_metrics() -> None:
    """Shows the figures in `metrics` of our sources, too, where other sources have theirs. Spark 4.3 has no way for a
    Python source to report them, so the class that Spark shows is extended, once."""
    from pyspark.sql.streaming.listener import SourceProgress

    plain = SourceProgress.__init__
    if plain.__name__ == "with_figures":
        return

    def with_figures(self: SourceProgress, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        (figures,) = metrics({"sources": [self]})
        for name, value in figures.items():
            if name != "queues":
                self["metrics"].setdefault(name, str(value))

    SourceProgress.__init__ = with_figures  # type: ignore[method-assign]


def require_pyspark() -> None:
    for package in ("pyspark", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise SparkUnavailable(f"{package} is not installed; run pip install 'postroad[spark]'")


def prepare(*, local: bool = True, cache: Path | None = None) -> None:
    """Sets the environment variables that Spark needs. The user's own values stay."""
    import pyspark

    environment = os.environ
    cache = cache or cache_directory()
    home = java_home(cache)
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    if "SPARK_HOME" not in environment:
        environment["SPARK_HOME"] = str(spark_home(cache, Path(pyspark.__file__).parent))
    # Otherwise Spark starts its workers with the first `python3` on the PATH.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        environment.setdefault("SPARK_LOCAL_IP", _LOOPBACK)  # otherwise Spark asks the network for its own address
