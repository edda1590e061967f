"""Cutting a stub into fragments, for requests and responses alike, [C706] 12.6.2."""

from __future__ import annotations

from collections.abc import Iterator

from postroad.rpc.constants import WHOLE, PacketFlag

_FIRST = int(PacketFlag.FIRST_FRAG)
_LAST = int(PacketFlag.LAST_FRAG)


def fragments(stub: bytes, room: int) -> Iterator[tuple[int, int, bytes]]:
    """(flags, allocation hint, part) of each fragment; [MS-RPCE] 2.2.2.6: the hint is the size of the rest."""
    size = len(stub)
    if size <= room:
        yield WHOLE, size, stub
        return
    for start in range(0, size, room):
        first = _FIRST if start == 0 else 0
        last = _LAST if start + room >= size else 0
        yield first | last, size - start, stub[start : start + room]
