"""Messages as Arrow: record batches in the IPC stream format. The columns are those of postroad/columns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from importlib import import_module
from typing import Any

from postroad.api.problems import HttpFault
from postroad.errors import InvalidArgument
from postroad.received import ReceivedMessage

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


async def load() -> None:
    """Imports pyarrow and all that needs it, which takes a second or more, and lets other calls go on meanwhile.
    Without pyarrow nothing happens."""
    await asyncio.shield(asyncio.wrap_future(_loading()))


@cache
def _loading() -> Future[None]:
    """One for all callers, in a thread of its own: none of them keeps another thread waiting."""
    threads = ThreadPoolExecutor(1, "postroad-arrow")
    loading = threads.submit(_import_all)
    threads.shutdown(wait=False)
    return loading


def _import_all() -> None:
    with suppress(ImportError):
        for module in ("batches", "sending", "ranges"):
            import_module(f"postroad.columns.{module}")


def columns_room() -> Any:
    """The module that writes messages; HttpFault, 406, if pyarrow or numpy is missing."""
    return _room("batches", HTTPStatus.NOT_ACCEPTABLE, "Accept: the server cannot write Arrow")


def sending_room() -> Any:
    """The module that reads messages to send; HttpFault, 415, if pyarrow or numpy is missing."""
    return _room("sending", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type: the server cannot read Arrow")


def _room(module: str, status: HTTPStatus, fault: str) -> Any:
    try:
        import pyarrow  # noqa: F401

        return import_module(f"postroad.columns.{module}")
    except ImportError:
        remedy = "run pip install postroad[arrow] there and restart it"
        raise HttpFault(status, InvalidArgument(f"{fault}; {remedy}")) from None


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
