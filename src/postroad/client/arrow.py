"""Arrow streams in pieces, as `Queue.arrow` gives them, made into record batches. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import RawIOBase
from typing import Any


class _Pieces(RawIOBase):
    """Pieces of bytes as one file that is read once, from the front."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(wanted):
            if not self._piece:
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece = memoryview(following)
                continue
            size = min(len(self._piece), len(wanted) - filled)
            wanted[filled : filled + size] = self._piece[:size]
            self._piece = self._piece[size:]
            filled += size
        return filled


def batches(pieces: Iterable[bytes]) -> Iterator[Any]:
    """The `pyarrow.RecordBatch`es of a stream, each as soon as its last byte has come."""
    import pyarrow

    with pyarrow.ipc.open_stream(pyarrow.PythonFile(_Pieces(pieces), mode="r")) as reader:
        yield from reader
