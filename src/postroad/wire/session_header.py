"""SessionHeader, [MS-MQMQ] 2.2.20.4: acknowledgments and counts, in a SessionAck or after a UserMessage."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

_LAYOUT = Struct("<HHIHHHH")


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """All counters are 16 bits wide and wrap."""

    ack_sequence_number: int = 0
    recoverable_msg_ack_seq_number: int = 0
    recoverable_msg_ack_flags: int = 0
    user_msg_sequence_number: int = 0
    recoverable_msg_seq_number: int = 0
    window_size: int = 0x40
    reserved: int = 0

    @classmethod
    def decode(cls, data: bytes, offset: int = 0) -> SessionHeader:
        return cls(*_LAYOUT.unpack_from(data, offset))

    def encode(self) -> bytes:
        return _LAYOUT.pack(
            self.ack_sequence_number,
            self.recoverable_msg_ack_seq_number,
            self.recoverable_msg_ack_flags,
            self.user_msg_sequence_number,
            self.recoverable_msg_seq_number,
            self.window_size,
            self.reserved,
        )
