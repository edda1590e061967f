"""The batches of a stream by MS-MQQP, as Spark keeps them in a checkpoint. Only values: no Spark, no server.

The protocol has no mark and no hold, so the end of a batch lists its messages: each by its lookup id and by a check of
its identifier, because a server may use a lookup id twice.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any
from zlib import compress, crc32, decompress, error

import numpy as np
import numpy.typing as npt

from postroad.errors import InvalidArgument
from postroad.received import ReceivedMessage
from postroad.spark.offsets import VERSION, check_version, with_more


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was seen in a queue. `check` distinguishes it from another one with the same lookup id."""

    lookup_id: int
    check: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Seen:
        view = message.view
        return cls(
            message.lookup_id, crc32(view.message_id.to_bytes(4, "little"), crc32(view.source_queue_manager.bytes))
        )


@dataclass(frozen=True, slots=True)
class RemoteOffset:
    """The end of a batch: its messages, and its number of partitions.

    `gone` is how many messages of earlier batches were missing when they were to be removed. `more` has fields of a
    later version, which are kept.
    """

    messages: int
    partitions: int
    lookup_ids: str
    checks: str
    gone: int
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, batch: Sequence[Seen], partitions: int, gone: int, more: Mapping[str, Any] | None = None
    ) -> RemoteOffset:
        lookup_ids = np.array([each.lookup_id for each in batch], np.int64)
        checks = np.array([each.check for each in batch], np.uint32)
        packed = _packed(np.diff(lookup_ids, prepend=0)), _packed(checks)
        return cls(len(batch), partitions, *packed, gone, more or {})

    @classmethod
    def first(cls) -> RemoteOffset:
        """The start of a stream: the end of an empty batch."""
        return cls.of((), 0, 0)

    def json(self) -> dict[str, Any]:
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "more"}
        return {"version": VERSION, **own, **self.more}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> RemoteOffset:
        check_version(value.get("version", VERSION))  # the first version has no number, and the same fields
        try:
            return with_more(cls, {name: each for name, each in value.items() if name != "version"})
        except TypeError:
            raise _unknown(value) from None

    def batch(self) -> list[Seen]:
        try:
            lookup_ids = np.cumsum(_unpacked(self.lookup_ids, np.int64)).tolist()
            checks = _unpacked(self.checks, np.uint32).tolist()
            return [Seen(lookup_id, check) for lookup_id, check in zip(lookup_ids, checks, strict=True)]
        except (Error, error, ValueError, AttributeError):
            raise _unknown(self.json()) from None


def shared(batch: Sequence[Seen], parts: int) -> list[list[Seen]]:
    """The batch in so many nearly equal parts, none of them empty."""
    parts = max(1, min(parts, len(batch)))
    bounds = [len(batch) * part // parts for part in range(parts + 1)]
    return [list(batch[low:high]) for low, high in pairwise(bounds) if low < high]


def without(batch: Iterable[Seen], others: Iterable[Seen]) -> list[Seen]:
    left_out = frozenset(others)
    return [each for each in batch if each not in left_out]


def _packed(numbers: npt.NDArray[Any]) -> str:
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return b64encode(compress(little.tobytes())).decode()


def _unpacked(text: str, kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(decompress(b64decode(text)), np.dtype(kind).newbyteorder("<"))


def _unknown(value: Mapping[str, Any]) -> InvalidArgument:
    return InvalidArgument(
        f"checkpoint: an offset with {', '.join(value)} is of another version or of another source; "
        "start with a new checkpoint"
    )
