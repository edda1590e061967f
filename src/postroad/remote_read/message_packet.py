"""The message packet of [MS-MQRR] 2.2.5, cut into sections (2.2.6) and put together again.

A packet is what [MS-MQQP] sends, with a little more: the time to reach the queue is absolute, and headers follow that
no other protocol has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812

from postroad.errors import RemoteProtocolError
from postroad.remote_read.remoteread import SectionBuffer, SectionType
from postroad.store.interface import Record
from postroad.wire.constants import INFINITE
from postroad.wire.patch import times_of, without_local_part
from postroad.wire.view import MessageView, moves

_U32 = Struct("<I")
_EXTENSION = Struct("<IIB3x")  # 2.2.5.2
_SUBQUEUE = Struct("<IIIII64s64s")  # 2.2.5.3
_ADDRESS = Struct("<IHHI16s")  # 2.2.5.5
_DEAD_LETTER, _SUBQUEUE_THERE, _DEAD_LETTER_INVALID, _ADDRESS_THERE = 0x01, 0x02, 0x08, 0x10
_SIZE_AT, _TIME_AT, _FLAGS_AT = 8, 12, 63  # PacketSize, TimeToReachQueue, the octet of UserHeader.Flags with AH
_BY_HTTP = 0x02
_NAME_OCTETS = 64
# 2.2.5.5: AddressType 0 means that nobody knows where the message came from.
_NO_ADDRESS = _ADDRESS.pack(_ADDRESS.size, 0, 0, 0, bytes(16))


def _trailers(abort_count: int, acknowledgment_class: int, moved: tuple[int, int], name: str, letters: str) -> bytes:
    """The headers after the UserMessage."""
    count, last_ms = moved
    # LastMoveTime has 32 bits for milliseconds since 1970: the low ones, but never 0 once the message was moved.
    last = (last_ms & 0xFFFFFFFF or 1) if count else 0
    class_and_tm = acknowledgment_class << 1  # the TM bit is 0
    octets = name.encode("utf-16-le")[: _NAME_OCTETS - 2]
    subqueue = _SUBQUEUE.pack(_SUBQUEUE.size, class_and_tm, abort_count, count & 0xFFFFFFFF, last, octets, b"")
    flags, dead_letter = _SUBQUEUE_THERE | _ADDRESS_THERE, b""
    if letters:
        text = (letters + "\0").encode("utf-16-le")
        text += bytes(-len(text) % 4)
        dead_letter = _U32.pack(4 + len(text)) + text
        flags |= _DEAD_LETTER
    rest = b"".join((subqueue, dead_letter, _NO_ADDRESS))
    return _EXTENSION.pack(_EXTENSION.size, len(rest), flags) + rest


_PLAIN = _trailers(0, 0, (0, 0), "", "")


def sections_of(record: Record, subqueue: str, max_body_size: int) -> tuple[SectionBuffer, ...]:
    """The sections of a message for R_StartReceive, 3.1.4.7. `subqueue` is the name of the one it is in, or empty.

    No message keeps its SOAP envelope and its compound message, so all of them are binary.
    """
    stored = record.packet
    packet = without_local_part(stored)
    time_to_reach_queue, _, sent = times_of(packet)
    if time_to_reach_queue != INFINITE or packet[_FLAGS_AT] & _BY_HTTP:
        absolute = INFINITE
        if time_to_reach_queue != INFINITE:
            absolute = min(sent + time_to_reach_queue, INFINITE - 1)
        flags = bytes((packet[_FLAGS_AT] & ~_BY_HTTP,))
        packet = b"".join(
            (packet[:_TIME_AT], _U32.pack(absolute), packet[_TIME_AT + 4 : _FLAGS_AT], flags, packet[_FLAGS_AT + 1 :])
        )
    trailers = _PLAIN
    if subqueue or record.aborts or record.reason or len(stored) != len(packet):
        view = MessageView(stored)
        trailers = _trailers(
            record.aborts, record.reason, moves(stored[len(packet) :]), subqueue, view.dead_letter_queue or ""
        )
    if max_body_size < len(packet):
        start, end = MessageView(packet).body_span()
        if max_body_size < end - start:
            first, second = packet[: start + max_body_size], packet[end:] + trailers
            return (
                SectionBuffer(SectionType.BINARY_FIRST, end, len(first), first),
                SectionBuffer(SectionType.BINARY_SECOND, len(second), len(second), second),
            )
    whole = packet + trailers
    return (SectionBuffer(SectionType.FULL_PACKET, len(whole), len(whole), whole),)


@dataclass(frozen=True, slots=True)
class Trailers:
    """What the headers after the UserMessage say."""

    acknowledgment_class: int = 0
    aborts: int = 0
    moves: int = 0
    last_move_ms: int = 0
    subqueue: str = ""
    dead_letter_queue: str = ""


NO_TRAILERS = Trailers()


def message_in(sections: Sequence[SectionBuffer]) -> tuple[bytes, Trailers]:
    """The UserMessage in the sections, as every other protocol has it, and what follows it. What was left out of the
    body is zeroes.

    Raises RemoteProtocolError if they are not those of a message, 3.2.4.4.1.
    """
    parts: list[bytes] = []
    kinds = tuple([each.section_type for each in sections])
    if kinds not in _WHOLE:
        raise RemoteProtocolError(f"the sections must be one packet, or its two halves, got {list(kinds)}")
    for each in sections:
        left_out = each.size_alloc - each.size
        if each.section is None or len(each.section) != each.size:
            raise RemoteProtocolError(f"a section must have its {each.size} octets")
        if not 0 <= left_out <= MAX_LEFT_OUT or (left_out and each.section_type in _CLOSED):
            raise RemoteProtocolError(f"a section must not leave out {left_out} octets")
        parts.append(each.section)
        if left_out:
            parts.append(bytes(left_out))
    octets = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(octets) <= _FLAGS_AT:
        raise RemoteProtocolError(f"a packet must have its headers, got {len(octets)} octets")
    (size,) = _U32.unpack_from(octets, _SIZE_AT)
    if not _FLAGS_AT < size <= len(octets):
        raise RemoteProtocolError(f"a packet must have {size} octets, got {len(octets)}")
    time_to_reach_queue, _, sent = times_of(octets)
    packet, rest = octets[:size], octets[size:]
    if time_to_reach_queue != INFINITE:
        packet = b"".join((packet[:_TIME_AT], _U32.pack(max(0, time_to_reach_queue - sent)), packet[_TIME_AT + 4 :]))
    return packet, NO_TRAILERS if not rest or rest == _PLAIN else trailers_of(rest)


MAX_LEFT_OUT = 0x00420000
_WHOLE = {
    (SectionType.FULL_PACKET,),
    (SectionType.BINARY_FIRST,),
    (SectionType.BINARY_FIRST, SectionType.BINARY_SECOND),
    (SectionType.SRMP_FIRST,),
    (SectionType.SRMP_FIRST, SectionType.SRMP_SECOND),
}
_CLOSED = {SectionType.FULL_PACKET, SectionType.BINARY_SECOND, SectionType.SRMP_SECOND}


def trailers_of(rest: bytes) -> Trailers:
    """Reads the headers after the UserMessage. Unknown flags and reserved octets do not count."""
    aborts = count = last = acknowledgment_class = 0
    subqueue = letters = ""
    try:
        at, _, flags = _EXTENSION.unpack_from(rest)
        if flags & _SUBQUEUE_THERE:
            size, class_and_tm, aborts, count, last, name, _ = _SUBQUEUE.unpack_from(rest, at)
            acknowledgment_class, subqueue = class_and_tm >> 1 & 0xFFFF, _text(name)
            at += size
        if flags & _DEAD_LETTER:
            (size,) = _U32.unpack_from(rest, at)
            letters = "" if flags & _DEAD_LETTER_INVALID else _text(rest[at + 4 : at + size])
    except StructError:
        raise RemoteProtocolError("the headers after a packet must be complete") from None
    return Trailers(acknowledgment_class, aborts, count, last, subqueue, letters)


def _text(octets: bytes) -> str:
    return octets.decode("utf-16-le", "replace").partition("\0")[0]
