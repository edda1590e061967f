"""Messages as Arrow: record batches in the IPC stream format. The columns are those of postroad/columns."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from postroad.api.problems import HttpFault
from postroad.errors import InvalidArgument
from postroad.received import ReceivedMessage

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


def columns_room() -> Any:
    """The modules that need pyarrow and numpy; HttpFault, 406, if these are missing."""
    try:
        import pyarrow  # noqa: F401

        from postroad.columns import batches
    except ImportError:
        raise HttpFault(
            HTTPStatus.NOT_ACCEPTABLE,
            InvalidArgument(
                "Accept: the server cannot write Arrow; run pip install postroad[arrow] there and restart it"
            ),
        ) from None
    return batches


def sending_room() -> Any:
    """The module that reads messages to send; HttpFault, 415, if pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401

        from postroad.columns import sending
    except ImportError:
        raise HttpFault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            InvalidArgument(
                "Content-Type: the server cannot read Arrow; run pip install postroad[arrow] there, restart it"
            ),
        ) from None
    return sending


class ArrowWriter:
    """Makes one stream: `start`, any number of `batch`, `end`. Raises HttpFault, 406, if pyarrow is missing."""

    def __init__(self, *, packet: bool = False) -> None:
        self._columns = columns_room()
        self._schema = self._columns.schema_of(self._columns.listed(packet=packet))

    def start(self) -> bytes:
        return bytes(self._schema.serialize())

    def batch(self, messages: Sequence[ReceivedMessage]) -> bytes:
        """One record batch; nothing for no messages."""
        if not messages:
            return b""
        rows = self._columns.Rows.of(
            [message.lookup_id for message in messages],
            [message.arrived_ms for message in messages],
            [message.aborts for message in messages],
            [message.reason for message in messages],
            [message.packet for message in messages],
        )
        return bytes(rows.batch(self._schema).serialize())

    def end(self) -> bytes:
        return bytes(self._columns.END_OF_STREAM)
