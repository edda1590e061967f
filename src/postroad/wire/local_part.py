"""What a queue manager keeps with a message of its own and no packet format has a field for.

It stands behind the packet, where PacketSize ends, and never leaves the manager: a session and an export send the
packet alone. So a peer can neither see it nor make one up: what comes from a session ends with its packet.
"""

from __future__ import annotations

_DEAD_LETTER_QUEUE = b"\0dead_letter_queue="  # [MS-MQDMPR] 3.1.1.12 ApplicationDeadletterQueue
_SIZE = slice(8, 12)  # BaseHeader.PacketSize


def with_dead_letter_queue(packet: bytes, name: str) -> bytes:
    return packet + _DEAD_LETTER_QUEUE + name.encode()


def dead_letter_queue(local_part: bytes) -> str | None:
    """The name in what follows a packet; None where it is something else."""
    if not local_part.startswith(_DEAD_LETTER_QUEUE):
        return None
    try:
        return local_part[len(_DEAD_LETTER_QUEUE) :].decode()
    except UnicodeDecodeError:
        return None


def without_local_part(packet: bytes) -> bytes:
    """The packet as other managers and programs may see it."""
    size = int.from_bytes(packet[_SIZE], "little")
    return packet if len(packet) == size else packet[:size]
