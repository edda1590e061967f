"""GUIDs as text, and the identifiers made of a GUID and a number: OBJECTID and the message identifier.

Their bytes are little-endian, as everywhere on the wire. New identifiers are made elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from postroad.errors import IllegalIdentifier, LocalProtocolError
from postroad.names.grammar import Scanner

_IMAGE = Struct("<16sI")  # [MS-MQMQ] 2.2.18.1.3
IDENTIFIER_SIZE = _IMAGE.size
UINT32_MAX = 0xFFFFFFFF


def parse_guid(text: str) -> UUID:
    """Reads a GUID of 36 characters, 8-4-4-4-12, without braces. Raises IllegalIdentifier for anything else."""
    scanner = Scanner(text, IllegalIdentifier)
    guid = scanner.guid()
    scanner.expect_end("a GUID must have 36 characters")
    return guid


def _check_number(number: int, what: str) -> None:
    if not 0 <= number <= UINT32_MAX:
        raise LocalProtocolError(f"{what} must fit in 32 bits, got {number}")


@dataclass(frozen=True, slots=True)
class ObjectId:
    """OBJECTID, [MS-MQMQ] 2.2.8: an object of the group `lineage`. It names a private queue by its manager and
    number."""

    lineage: UUID
    uniquifier: int

    def __post_init__(self) -> None:
        _check_number(self.uniquifier, "the uniquifier")


@dataclass(frozen=True, slots=True)
class MessageId:
    r"""MessageIdentifier, [MS-MQMQ] 2.2.18.1.3: the sending manager and its ordinal, written `{guid}\ordinal`."""

    guid: UUID
    ordinal: int

    def __post_init__(self) -> None:
        _check_number(self.ordinal, "the ordinal")

    @classmethod
    def parse(cls, text: str) -> MessageId:
        scanner = Scanner(text, IllegalIdentifier)
        if not scanner.accept("{"):
            scanner.fail("a message id must start with its manager's GUID in braces, as in {guid}\\17")
        guid = scanner.guid()
        if not scanner.accept("}\\"):
            scanner.fail("the GUID must be followed by a closing brace, a backslash and the ordinal, as in {guid}\\17")
        start = scanner.position
        digits = scanner.digits()
        if not digits:
            scanner.fail("the ordinal must be a decimal number")
        scanner.expect_end("a message id must end after the digits of its ordinal")
        if len(digits) > len(str(UINT32_MAX)) or int(digits) > UINT32_MAX:
            scanner.fail(f"an ordinal must be at most {UINT32_MAX}", start)
        return cls(guid, int(digits))

    def __str__(self) -> str:
        return f"{{{self.guid}}}\\{self.ordinal}"

    def to_bytes(self) -> bytes:
        return _IMAGE.pack(self.guid.bytes_le, self.ordinal)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> MessageId:
        if len(data) != IDENTIFIER_SIZE:
            raise LocalProtocolError(f"an identifier must have {IDENTIFIER_SIZE} bytes, got {len(data)}")
        guid, ordinal = _IMAGE.unpack(data)
        return cls(UUID(bytes_le=guid), ordinal)
