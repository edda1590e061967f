"""Messages in Spark: sources and sinks for DataFrames and streams. `pip install 'postroad[spark]'`.

Importing this imports neither pyspark nor pyarrow; the first use does.
"""

from postroad.spark.session import dropped_rows, register, session

__all__ = ["dropped_rows", "register", "session"]
