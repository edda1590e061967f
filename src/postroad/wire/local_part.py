"""What a queue manager keeps with a message of its own and no packet format has a field for.

It stands behind the packet, where PacketSize ends, and never leaves the manager: a session and an export send the
packet alone. So a peer can neither see it nor make one up: what comes from a session ends with its packet.
"""

from __future__ import annotations

_DEAD_LETTER_QUEUE = b"dead_letter_queue="  # [MS-MQDMPR] 3.1.1.12 ApplicationDeadletterQueue
_SENDER = b"sender="  # the SID of whom the manager asks for, where it writes because of the message
_SIZE = slice(8, 12)  # BaseHeader.PacketSize


def with_dead_letter_queue(packet: bytes, name: str) -> bytes:
    return packet + b"\0" + _DEAD_LETTER_QUEUE + name.encode()


def with_sender(packet: bytes, sid: str) -> bytes:
    return packet + b"\0" + _SENDER + sid.encode()


def is_local_part(data: bytes) -> bool:
    """Whether what follows a packet is such a part."""
    items = data.split(b"\0")
    if items[0] or len(items) < 2 or not all(item.startswith((_DEAD_LETTER_QUEUE, _SENDER)) for item in items[1:]):
        return False
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def dead_letter_queue(local_part: bytes) -> str | None:
    """The name in what follows a packet; None where there is none."""
    return _item(local_part, _DEAD_LETTER_QUEUE)


def sender(local_part: bytes) -> str | None:
    """The SID in what follows a packet; None where there is none."""
    return _item(local_part, _SENDER)


def _item(local_part: bytes, key: bytes) -> str | None:
    for item in local_part.split(b"\0"):
        if item.startswith(key):
            return item[len(key) :].decode()
    return None


def without_local_part(packet: bytes) -> bytes:
    """The packet as other managers and programs may see it."""
    size = int.from_bytes(packet[_SIZE], "little")
    return packet if len(packet) == size else packet[:size]
