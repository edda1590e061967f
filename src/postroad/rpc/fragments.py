"""Cutting a stub into fragments, for requests and responses alike, [C706] 12.6.2."""

from __future__ import annotations

from collections.abc import Iterator

from postroad.rpc.constants import WHOLE, PacketFlag, PacketType
from postroad.rpc.pdu import REQUEST_HEADER_SIZE, REQUESTS, RESPONSES, header, whole_call
from postroad.rpc.security import SecurityContext

_FIRST = int(PacketFlag.FIRST_FRAG)
_LAST = int(PacketFlag.LAST_FRAG)


def fragments(
    ptype: PacketType,
    call_id: int,
    following: tuple[int, int],
    stub: bytes,
    largest: int,
    security: SecurityContext | None,
    header_sign: bool,
) -> list[bytes]:
    """The fragments of a stub, of at most `largest` octets. After the header come the allocation hint, which is the
    size of the rest ([MS-RPCE] 2.2.2.6), and the two numbers `following` it in a PDU of this type."""
    room = largest - REQUEST_HEADER_SIZE
    signing = security if security is not None and security.signs else None
    if signing is not None:
        room = signing.room(room)
    elif len(stub) <= room:
        return [whole_call(ptype, call_id, following, stub)]
    form = (REQUESTS if ptype is PacketType.REQUEST else RESPONSES)["<"]
    found = []
    for flags, hint, part in ((WHOLE, len(stub), stub),) if len(stub) <= room else _parts(stub, room):
        fixed = form.pack(hint, *following)
        if signing is not None:
            found.append(signing.protect(ptype, flags, call_id, fixed, part, header_sign=header_sign))
        else:
            found.append(header(ptype, flags, REQUEST_HEADER_SIZE + len(part), 0, call_id) + fixed + part)
    return found


def _parts(stub: bytes, room: int) -> Iterator[tuple[int, int, bytes]]:
    """(flags, size of the rest, part) of each fragment."""
    size = len(stub)
    for start in range(0, size, room):
        first = _FIRST if start == 0 else 0
        last = _LAST if start + room >= size else 0
        yield first | last, size - start, stub[start : start + room]
