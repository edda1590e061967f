"""Targets of RPC: a stream into the server's core, stubs of whole operations, packets in sections, and authentication
tokens."""

from __future__ import annotations

import itertools
from uuid import UUID

from postroad.errors import AuthenticationFailed, RemoteProtocolError
from postroad.remote_read import remoteread as wire
from postroad.remote_read.message_packet import message_in
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.remoteread import REMOTE_READ, SectionBuffer
from postroad.rpc import epm_interface as ept
from postroad.rpc import pdu as pdus
from postroad.rpc.calls import Associations, CallReceived, Endpoint, Limits
from postroad.rpc.constants import AuthType
from postroad.rpc.epm_interface import Tower
from postroad.rpc.interface import Operation
from postroad.rpc.ndr import NULL_HANDLE, Format, Handle
from postroad.rpc.negotiate import NTLM, SpnegoProvider
from postroad.rpc.ntlm import NtlmAcceptor, User
from postroad.rpc.ntlm_keys import nt_hash
from postroad.rpc.pdu import NDR, NDR64, PresentationContext, SyntaxId
from postroad.rpc.security import Provider
from postroad.rpc.server_connection import ServerConnection

_USERS = {"user": User("user", nt_hash("Password"))}
_LIMITS = Limits(max_request=2000, max_calls=3)
_ABSTRACT = SyntaxId(ept.EPMAPPER.uuid, 3)
_REMOTE_READ = SyntaxId(REMOTE_READ.uuid, 1)


class _Ntlm:
    def accept(self) -> NtlmAcceptor:
        return NtlmAcceptor(_USERS, "SERVER", bytes(8), 0)


def _endpoint() -> Endpoint:
    numbers = itertools.count(1)
    providers: dict[int, Provider] = {AuthType.NTLM: _Ntlm(), AuthType.SPNEGO: SpnegoProvider({NTLM: _Ntlm()})}
    associations = Associations(lambda: next(numbers), lambda: UUID(int=next(numbers)).bytes_le, 5)
    endpoint = Endpoint(associations, _LIMITS, providers=providers)
    for interface in (ept.EPMAPPER, REMOTE_READ):
        endpoint.interfaces[interface.uuid] = interface
    return endpoint


def _bind(transfer: SyntaxId, abstract: SyntaxId = _ABSTRACT) -> bytes:
    contexts = (PresentationContext(0, abstract, (transfer,)),)
    return pdus.Bind(call_id=1, max_xmit_frag=1432, max_recv_frag=1432, assoc_group_id=0, contexts=contexts).encode()


def fuzz_rpc_server(data: bytes) -> None:
    """A stream into a new connection, and into a bound one. It gets answers, and nothing is left behind."""
    for before in (b"", _bind(NDR), _bind(NDR64), _bind(NDR, _REMOTE_READ), _bind(NDR64, _REMOTE_READ)):
        endpoint = _endpoint()
        server = ServerConnection(endpoint, "10.0.0.7", 0.0)
        server.receive(before, 0.0)
        for event in server.receive(data, 0.0):
            if isinstance(event, CallReceived) and event.call.call_id % 2:
                server.fault(event.call, event.call.call_id)
        assert len(server.calls) <= _LIMITS.max_calls
        assert endpoint.gathering <= _LIMITS.max_request
        for frame in pdus.Framer().feed(server.data_to_send()):
            pdus.decode(frame)
        server.disconnected()
        for call in list(server.calls.values()):
            server.drop(call)
        assert endpoint.gathering == 0
        assert len(endpoint.associations) == 0


def fuzz_rpc_stubs(data: bytes) -> None:
    """The first octet chooses the operation. What was read can be written, and reads the same again."""
    operations: list[Operation[object, object]] = [
        operation for interface in (ept.EPMAPPER, REMOTE_READ, QM2QM) for operation in interface.operations.values()
    ]
    operation = operations[data[0] % len(operations)] if data else operations[0]
    for layout in Format:
        for parameters in (operation.request, operation.reply):
            try:
                value = parameters.decode(data[1:], layout)
            except RemoteProtocolError:
                continue
            assert parameters.decode(parameters.encode(value, layout), layout) == value
    try:
        tower = Tower.decode(data)
    except RemoteProtocolError:
        return
    assert tower is None or Tower.decode(tower.encode()) == tower


def fuzz_rpc_sections(data: bytes) -> None:
    """The first two octets choose the sections. What is no packet is refused; no packet takes much memory."""
    kinds = [kind % 6 for kind in data[:2]]
    half = len(data) // 2
    sections = [
        SectionBuffer(kind, len(part) + (data[0] if kind in (1, 3) else 0), len(part), part)
        for kind, part in zip(kinds, (data[2:half], data[half:]), strict=False)
    ]
    for chosen in (sections, sections[:1], [SectionBuffer(0, len(data), len(data), data)]):
        try:
            packet, _ = message_in(chosen)
        except RemoteProtocolError:
            continue
        assert len(packet) <= len(data) + 0xFF


def fuzz_rpc_tokens(data: bytes) -> None:
    """Tokens of NTLM and SPNEGO, as the first and as the second token. None is accepted."""
    for begin, first in ((_Ntlm(), _NEGOTIATE), (SpnegoProvider({NTLM: _Ntlm()}), _INIT)):
        for before in (b"", first):
            acceptor = begin.accept()
            try:
                if before:
                    acceptor.step(before)
                acceptor.step(data)
            except AuthenticationFailed:
                pass
            assert not acceptor.complete


_NEGOTIATE = b"NTLMSSP\0\1\0\0\0" + (0xE2088233).to_bytes(4, "little") + bytes(16)
_INIT = bytes.fromhex("604006062b0601050502a0363034a00e300c060a2b06010401823702020aa2220420") + _NEGOTIATE
_RESPONSE = bytes.fromhex("a1243022a2200420") + _NEGOTIATE[:30]
_TOWER = ept.Twr.of(Tower(_ABSTRACT, 135, "10.0.0.1").encode())
_MAP = ept.EPT_MAP.request.encode(ept.Map(UUID(int=1), _TOWER, NULL_HANDLE, 4), Format.NDR)
_MAP_64 = ept.EPT_MAP.request.encode(ept.Map(UUID(int=1), _TOWER, NULL_HANDLE, 4), Format.NDR64)


def _request(flags: int, stub: bytes) -> bytes:
    return pdus.Request(call_id=2, flags=flags, alloc_hint=0, context_id=0, opnum=3, stub=stub).encode()


_HANDLE = Handle(0, bytes(range(16)))
_START = wire.START_RECEIVE.request.encode(wire.StartReceiveIn(_HANDLE, 0, 0, 0, 0, 1, 9, 9), Format.NDR)
_STARTED = wire.StartReceiveOut(1, 1, 1, (SectionBuffer(0, 4, 4, b"abcd"),), 0)
_MESSAGE = bytes((16, 0, 3, 0)) + b"LIOR" + (64).to_bytes(4, "little") + bytes(52)
_REST = bytes.fromhex("0c000000b000000012000000") + bytes((148, 0, 0, 0)) + bytes(144) + bytes((28,)) + bytes(27)

_PLACE = len(ept.EPMAPPER.operations) + list(REMOTE_READ.operations.values()).index(wire.START_RECEIVE)

TARGETS = {
    "rpc_server": fuzz_rpc_server,
    "rpc_stubs": fuzz_rpc_stubs,
    "rpc_sections": fuzz_rpc_sections,
    "rpc_tokens": fuzz_rpc_tokens,
}
SEEDS: dict[str, tuple[bytes, ...]] = {
    "rpc_server": (
        _bind(NDR) + _request(3, _MAP),
        _request(1, _MAP[:40]) + _request(2, _MAP[40:]),
        _request(3, _MAP_64),
        pdus.CoCancel(call_id=2).encode() + pdus.Orphaned(call_id=2).encode(),
        pdus.Bind(
            call_id=1,
            trailer=pdus.SecTrailer(AuthType.NTLM, 6, 1, _NEGOTIATE),
            max_xmit_frag=1432,
            max_recv_frag=1432,
            assoc_group_id=0,
            contexts=(PresentationContext(0, _ABSTRACT, (NDR, pdus.feature_syntax(3))),),
        ).encode(),
    ),
    "rpc_stubs": (
        *(b"\3" + _MAP, b"\3" + _MAP_64, _TOWER.tower_octet_string),
        bytes((_PLACE,)) + _START,
        *[bytes((_PLACE,)) + wire.START_RECEIVE.reply.encode(_STARTED, layout) for layout in Format],
    ),
    "rpc_sections": (_MESSAGE + _REST, b"\0\0" + _MESSAGE + _REST, b"\1\2" + _MESSAGE + _REST),
    "rpc_tokens": (_NEGOTIATE, _INIT, _RESPONSE),
}
