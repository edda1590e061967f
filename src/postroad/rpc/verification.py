"""[MS-RPCE] 2.2.2.13 Verification trailer: facts that a client repeats within the protected stub."""

from __future__ import annotations

from struct import Struct
from typing import Final

from postroad.errors import RpcFault
from postroad.rpc.constants import FaultStatus, PacketType
from postroad.rpc.pdu import SyntaxId

SIGNATURE: Final = bytes.fromhex("8ae3137102f43671")
_COMMAND: Final = Struct("<HH")
_HEADER2: Final = Struct("<BxxxIIHH")
_BITMASK, _PCONTEXT, _HEADER = 1, 2, 3
_END, _MUST_PROCESS, _TYPE = 0x4000, 0x8000, 0x3FFF
_LITTLE_ENDIAN: Final = 0x10
_SUPPORTS_HEADER_SIGNING: Final = 1


def check(
    rest: bytes, *, abstract: SyntaxId, transfer: SyntaxId, call_id: int, context_id: int, opnum: int, header_sign: bool
) -> None:
    """Checks the trailer after a request's parameters, if there is one; a fault if it disagrees."""
    start = rest.find(SIGNATURE)
    if start < 0:
        return
    offset = start + len(SIGNATURE)
    more = True
    while more:
        if offset + _COMMAND.size > len(rest):
            raise _refused("it is incomplete")
        command, length = _COMMAND.unpack_from(rest, offset)
        body = rest[offset + _COMMAND.size : offset + _COMMAND.size + length]
        if len(body) != length or length % 4:
            raise _refused(f"a command has a wrong length of {length} octets")
        kind = command & _TYPE
        if kind == _PCONTEXT:
            if body != abstract.encode() + transfer.encode():
                raise _refused("it names another presentation context")
        elif kind == _HEADER:
            repeated = _HEADER2.unpack(body) if length == _HEADER2.size else None
            if repeated != (PacketType.REQUEST, _LITTLE_ENDIAN, call_id, context_id, opnum):
                raise _refused("it names another header")
        elif kind == _BITMASK:
            if length != 4 or (body[0] & _SUPPORTS_HEADER_SIGNING and not header_sign):
                raise _refused("it asks for header signing, but the bind did not")
        elif command & _MUST_PROCESS:
            raise _refused(f"unknown command {kind}")
        offset += _COMMAND.size + length
        more = not command & _END


def _refused(fault: str) -> RpcFault:
    return RpcFault(FaultStatus.ACCESS_DENIED, f"the verification trailer: {fault}")
