"""Messages as Arrow columns: packets decoded a batch at a time, and messages to send made of columns.

The only room with numpy and pyarrow. describe/ defines the properties, and the two agree.
"""

from postroad.columns.decoding import decode
from postroad.columns.schema import ERROR, PROPERTIES, arrow_type

__all__ = ["ERROR", "PROPERTIES", "arrow_type", "decode"]
