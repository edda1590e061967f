"""Numbers of the connection-oriented protocol: PDU types, flags, results, reasons, authentication, fault statuses."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class PacketType(IntEnum):
    """[C706] 12.6.3.1 PTYPE, and [MS-RPCE] 2.2.2.10."""

    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESP = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


class PacketFlag(IntFlag):
    """[C706] 12.6.3.1 pfc_flags. 0x04 means one thing in a bind and another in a request, [MS-RPCE] 2.2.2.3."""

    NONE = 0
    FIRST_FRAG = 0x01
    LAST_FRAG = 0x02
    PENDING_CANCEL = 0x04
    SUPPORT_HEADER_SIGN = 0x04
    CONC_MPX = 0x10
    DID_NOT_EXECUTE = 0x20
    MAYBE = 0x40
    OBJECT_UUID = 0x80


WHOLE: Final = 0x03  # the first fragment, and the last


class ContextResult(IntEnum):
    """[C706] 12.6.3.1 p_cont_def_result_t, and [MS-RPCE] 2.2.2.4."""

    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3


class ProviderReason(IntEnum):
    """[C706] 12.6.3.1 p_provider_reason_t"""

    NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX_NOT_SUPPORTED = 1
    PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED = 2
    LOCAL_LIMIT_EXCEEDED = 3


class RejectReason(IntEnum):
    """[MS-RPCE] 2.2.2.5: why a bind is refused as a whole."""

    NOT_SPECIFIED = 0
    TEMPORARY_CONGESTION = 1
    LOCAL_LIMIT_EXCEEDED = 2
    PROTOCOL_VERSION_NOT_SUPPORTED = 4
    AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8
    INVALID_CHECKSUM = 9


class AuthType(IntEnum):
    """[MS-RPCE] 2.2.1.1.7 Security providers. Unknown providers stay plain numbers."""

    NONE = 0
    SPNEGO = 0x09
    NTLM = 0x0A
    KERBEROS = 0x10


class AuthLevel(IntEnum):
    """[MS-RPCE] 2.2.1.1.8"""

    DEFAULT = 0
    NONE = 1
    CONNECT = 2
    CALL = 3
    PACKET = 4
    INTEGRITY = 5
    PRIVACY = 6


class FaultStatus(IntEnum):
    """Statuses that this runtime itself sends or expects, [C706] N.2 and Win32 codes."""

    ACCESS_DENIED = 0x00000005
    IN_NULL_CONTEXT = 0x000006EF  # RPC_X_SS_IN_NULL_CONTEXT
    BAD_STUB_DATA = 0x000006F7  # [MS-RPCE] 3.1.3.5.2
    NCA_OP_RANGE_ERROR = 0x1C010002
    NCA_UNKNOWN_INTERFACE = 0x1C010003
    NCA_PROTOCOL_ERROR = 0x1C01000B
    NCA_SERVER_TOO_BUSY = 0x1C010014
    NCA_FAULT_CANCEL = 0x1C00000D
    NCA_FAULT_UNSPECIFIED = 0x1C000012
    NCA_CONTEXT_MISMATCH = 0x1C00001A
    NCA_OUT_OF_MEMORY = 0x1C00001B


# [MS-RPCE] 3.3.3.5.1: a server never sends these.
FORBIDDEN_STATUSES: Final = frozenset(
    {0x00000000, 0x80000001, 0x80000002, 0x80000003, 0xC0000005, 0xC0000006, 0xC000001D, 0xC0000096}
    | {0xC00000AA, 0xC00000FD, 0xC0000194, 0xC0000235, 0xC0000409, 0xC0000420}
)

MUST_RECEIVE_FRAGMENT: Final = 1432  # [C706] 12.6.3.1 MustRecvFragSize: every implementation accepts this much

# Of a bind: security context multiplexing, and keeping the connection after an orphaned PDU.
FEATURES: Final = 0x03
