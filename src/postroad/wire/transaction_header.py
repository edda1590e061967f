"""TransactionHeader, [MS-MQMQ] 2.2.20.5, and the TxSequenceID of 2.2.18.1.2."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from struct import Struct
from uuid import UUID

from postroad.wire.constants import TRANSACTION_ID_SHIFT, TransactionFlags
from postroad.wire.layout import Reader, Writer

LAYOUT = Struct("<IIIII")
SEQUENCE_ID = Struct("<II")
_CONNECTOR_QM_GUID = TransactionFlags.CONNECTOR_QM_GUID.value


@total_ordering
@dataclass(frozen=True, slots=True)
class TxSequenceId:
    """Identifies a sequence of transactional messages. Ordinal comes first on the wire, TimeStamp in comparisons."""

    ordinal: int
    time_stamp: int

    def __lt__(self, other: TxSequenceId) -> bool:
        return (self.time_stamp, self.ordinal) < (other.time_stamp, other.ordinal)

    @property
    def value(self) -> int:
        """The identifier as a 64-bit number, for SEQUENCE_INFO and comparisons."""
        return self.time_stamp << 32 | self.ordinal


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """A message is transactional if it has this header."""

    sequence_id: TxSequenceId
    sequence_number: int
    previous_sequence_number: int = 0
    flags: int = 0
    connector_qm_guid: UUID | None = None

    @property
    def final_ack_required(self) -> bool:
        return bool(self.flags & TransactionFlags.FINAL_ACK)

    @property
    def first_in_transaction(self) -> bool:
        return bool(self.flags & TransactionFlags.FIRST)

    @property
    def last_in_transaction(self) -> bool:
        return bool(self.flags & TransactionFlags.LAST)

    @property
    def transaction_id(self) -> int:
        return (self.flags & TransactionFlags.IDENTIFIER) >> TRANSACTION_ID_SHIFT

    @classmethod
    def decode(cls, reader: Reader) -> TransactionHeader:
        flags, ordinal, time_stamp, number, previous = reader.unpack(LAYOUT, "TransactionHeader")
        connector = reader.guid("ConnectorQMGuid") if flags & _CONNECTOR_QM_GUID else None
        return cls(TxSequenceId(ordinal, time_stamp), number, previous, flags, connector)

    def encode(self, writer: Writer) -> None:
        flags = self.flags & ~_CONNECTOR_QM_GUID
        if self.connector_qm_guid is not None:
            flags |= _CONNECTOR_QM_GUID
        sequence = self.sequence_id
        writer.put(
            LAYOUT.pack(
                flags, sequence.ordinal, sequence.time_stamp, self.sequence_number, self.previous_sequence_number
            )
        )
        if self.connector_qm_guid is not None:
            writer.put(self.connector_qm_guid.bytes_le)
