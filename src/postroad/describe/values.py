"""Single values as JSON and as text: times, flags, codes, identifiers, strings. No packet is known here."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from uuid import UUID

from postroad.errors import IllegalFormatName, RemoteProtocolError
from postroad.names import MessageId
from postroad.security.sid import Sid
from postroad.wire.constants import INFINITE, SenderIdType
from postroad.wire.queue_names import written_name
from postroad.wire.security_header import SecurityHeader

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
_NS = 1_000_000_000


def rfc3339(seconds: int, nanoseconds: int | None = None) -> str | None:
    """`2024-05-17T09:30:00Z`, with six or nine digits if there is a fraction; None outside the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    if nanoseconds is None:
        return f"{moment}Z"
    fraction = f"{nanoseconds:09d}"
    return f"{moment}.{fraction.removesuffix('000')}Z"


def rfc3339_ns(time_ns: int) -> str | None:
    """The same for nanoseconds since 1970."""
    return rfc3339(*divmod(time_ns, _NS))


def duration(seconds: int) -> str:
    """Seconds in words: `345600 s (4 days)`, `for ever` for the value that means it."""
    if seconds == INFINITE:
        return "for ever"
    for size, unit in _UNITS:
        count, rest = divmod(seconds, size)
        if count and not rest:
            return f"{seconds} s ({count} {unit}{'s' if count > 1 else ''})"
    return f"{seconds} s"


def word(member: IntEnum | IntFlag) -> str:
    """A constant's name in lower case with hyphens."""
    return (member.name or str(member.value)).lower().replace("_", "-")


def code_word(kind: type[IntEnum], value: int) -> str | None:
    """The word for a code, None for an unknown one."""
    try:
        return word(kind(value))
    except ValueError:
        return None


def flag_words(kind: type[IntFlag], value: int) -> list[str]:
    """The words of the single bits that are set; fields of several bits and reserved bits have none."""
    return [word(flag) for flag in kind if flag.value.bit_count() == 1 and value & flag.value]


def whole_text(text: str) -> str:
    """Text for every encoder: half a surrogate pair, which a string on the wire may have, becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def identifier_text(data: bytes) -> str | None:
    r"""The 20 bytes of a message identifier as `{guid}\ordinal`; None if they are all zero."""
    return str(MessageId.from_bytes(data)) if any(data) else None


def direct_format_name(text: str) -> str:
    """The format name of a direct string; an invalid one is shown as it is."""
    try:
        return whole_text(str(written_name(text)))
    except IllegalFormatName:
        return f"DIRECT={whole_text(text)}"


def sender_text(security: SecurityHeader | None) -> str | None:
    """The sender as a SID or a queue manager's GUID, [MS-MQMQ] 2.2.20.6 ST; bytes that are no SID as hex."""
    if security is None or not security.security_id:
        return None
    raw = security.security_id
    if security.sender_id_type is SenderIdType.QUEUE_MANAGER:
        return str(UUID(bytes_le=raw))
    try:
        return str(Sid.decode(raw))
    except RemoteProtocolError:
        return raw.hex()
