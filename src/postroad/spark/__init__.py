"""Messages in Spark: sources and sinks for DataFrames and streams. Install with `pip install 'postroad[spark]'`.

Importing this package does not import pyspark or pyarrow. The first use does.
"""

from postroad.spark.lake_sink import lake_sink
from postroad.spark.session import dropped_rows, metrics, register, session

__all__ = ["dropped_rows", "lake_sink", "metrics", "register", "session"]
