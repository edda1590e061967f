"""Arrow streams in pieces, as `Queue.arrow` gives them, made into record batches. Needs pyarrow and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def batches(pieces: Iterable[bytes]) -> Iterator[Any]:
    """The `pyarrow.RecordBatch`es of a stream, each as soon as its last byte has come. Raises RemoteProtocolError for
    what no queue manager sends: nothing that a false one sends can end the process or fill its memory."""
    from postroad.columns.ipc import read_batches

    found = read_batches(pieces)
    next(found)  # the schema
    yield from found
