"""Messages as Arrow columns: decodes packets a batch at a time, and makes messages to send from columns.

Only this package needs numpy and pyarrow. It agrees with describe/, which defines the properties.
"""

from postroad.columns.decoding import decode
from postroad.columns.schema import ARROW_TYPES, ERROR, PROPERTIES

__all__ = ["ARROW_TYPES", "ERROR", "PROPERTIES", "decode"]
