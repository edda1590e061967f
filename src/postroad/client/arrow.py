"""Turns the pieces of an Arrow stream, as `Queue.arrow` returns them, into record batches. Needs pyarrow and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def batches(pieces: Iterable[bytes]) -> Iterator[Any]:
    """Yields the `pyarrow.RecordBatch`es of a stream, each as soon as its last byte has arrived.

    Raises RemoteProtocolError for a stream that no queue manager would send. A malicious server can neither crash the
    process nor fill its memory.
    """
    from postroad.columns.ipc import read_batches

    found = read_batches(pieces)
    next(found)  # an empty batch that only has the schema
    yield from found
