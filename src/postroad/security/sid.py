"""Security identifiers, [MS-DTYP] 2.4.2: between the bytes of a packet and the text that people know, `S-1-5-...`.

What a SID may do is decided elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct

from postroad.errors import IllegalIdentifier, LocalProtocolError, RemoteProtocolError

REVISION = 1
MAX_SUB_AUTHORITIES = 15  # [MS-DTYP] 2.4.2.2 SubAuthorityCount
_HEAD = Struct(">BBHI")  # the authority is the one big-endian number of the structure
_UINT32_MAX = 0xFFFFFFFF
_AUTHORITY_MAX = 0xFFFFFFFFFFFF
_TEXT = re.compile(r"S-1-([0-9]{1,10}|0x[0-9A-F]{12})((?:-[0-9]{1,10}){1,15})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sid:
    """`str()` gives text that parses back to an equal value, `encode` the bytes it was decoded from."""

    identifier_authority: int
    sub_authorities: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.identifier_authority <= _AUTHORITY_MAX:
            raise LocalProtocolError(f"a SID's authority must fit in 48 bits, got {self.identifier_authority}")
        if not 1 <= len(self.sub_authorities) <= MAX_SUB_AUTHORITIES:
            raise LocalProtocolError(
                f"a SID must have 1 to {MAX_SUB_AUTHORITIES} parts, got {len(self.sub_authorities)}"
            )
        if not all(0 <= part <= _UINT32_MAX for part in self.sub_authorities):
            raise LocalProtocolError("every part of a SID must fit in 32 bits")

    @classmethod
    def decode(cls, data: bytes) -> Sid:
        """Exactly one SID. Raises RemoteProtocolError for other bytes."""
        if len(data) < _HEAD.size:
            raise RemoteProtocolError(f"a SID must have at least {_HEAD.size + 4} bytes, got {len(data)}", len(data))
        revision, count, high, low = _HEAD.unpack_from(data)
        if revision != REVISION:
            raise RemoteProtocolError(f"SID revision must be {REVISION}, got {revision}", 0)
        if not 1 <= count <= MAX_SUB_AUTHORITIES:
            raise RemoteProtocolError(f"a SID must have 1 to {MAX_SUB_AUTHORITIES} parts, got {count}", 1)
        if len(data) != _HEAD.size + 4 * count:
            raise RemoteProtocolError(
                f"a SID of {count} parts must have {_HEAD.size + 4 * count} bytes, got {len(data)}", 1
            )
        return cls(high << 32 | low, Struct(f"<{count}I").unpack_from(data, _HEAD.size))

    def encode(self) -> bytes:
        count = len(self.sub_authorities)
        authority = self.identifier_authority
        return _HEAD.pack(REVISION, count, authority >> 32, authority & _UINT32_MAX) + Struct(f"<{count}I").pack(
            *self.sub_authorities
        )

    @classmethod
    def parse(cls, text: str) -> Sid:
        """[MS-DTYP] 2.4.2.1; raises IllegalIdentifier on any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise IllegalIdentifier(text, 0, "a SID must be S-1-, an authority and 1 to 15 numbers, as in S-1-5-18")
        authority = int(match[1], 16) if match[1][:2].lower() == "0x" else int(match[1])
        parts = tuple(int(part) for part in match[2][1:].split("-"))
        if authority > _UINT32_MAX and match[1].isdigit():
            raise IllegalIdentifier(text, match.start(1), "an authority above 32 bits must be 0x and 12 digits")
        if max(parts) > _UINT32_MAX:
            raise IllegalIdentifier(text, match.start(2) + 1, "every part of a SID must fit in 32 bits")
        return cls(authority, parts)

    def __str__(self) -> str:
        authority = self.identifier_authority
        written = str(authority) if authority <= _UINT32_MAX else f"0x{authority:012X}"
        return f"S-1-{written}-{'-'.join(map(str, self.sub_authorities))}"


EVERYONE = Sid(1, (0,))  # S-1-1-0, [MS-DTYP] 2.4.2.4
