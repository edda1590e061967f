"""The cores of both sides, joined only by octets: the rules of [MS-RPCE] 3.3 one by one, and garbage."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import RemoteProtocolError
from postroad.rpc import pdu as pdus
from postroad.rpc.calls import Associations, CallCancelled, CallReceived, Endpoint, Limits, LoginRefused
from postroad.rpc.client_connection import Bound, ClientConnection, Faulted, Refused, Replied
from postroad.rpc.constants import (
    AuthLevel,
    AuthType,
    ContextResult,
    FaultStatus,
    PacketFlag,
    ProviderReason,
    RejectReason,
)
from postroad.rpc.interface import Nothing
from postroad.rpc.ndr import Format
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.pdu import NDR, NDR64, Pdu, PresentationContext, SyntaxId
from postroad.rpc.server_connection import MAX_CONTEXTS, SIGNATURE, ServerConnection
from tests.unit.rpc import parcels
from tests.unit.rpc.parcels import PARCELS, Colour, Echo, EchoReply, Parcel
from tests.unit.rpc.test_ntlm import AUTHENTICATE, NEGOTIATE

FIRST, LAST, MIDDLE, WHOLE = 1, 2, 0, 3
ABSTRACT = SyntaxId(PARCELS.uuid, 1)
ECHO_STUB = parcels.ECHO.request.encode(Echo(Parcel(1, 3, Colour.RED, b"abc")), Format.NDR)


def endpoint(limits: Limits | None = None) -> Endpoint:
    numbers = itertools.count(1)
    associations = Associations(lambda: next(numbers), lambda: UUID(int=next(numbers)).bytes_le, 100)
    found = Endpoint(associations, limits or Limits())
    found.interfaces[PARCELS.uuid] = PARCELS
    return found


def fresh(limits: Limits | None = None) -> ServerConnection:
    return ServerConnection(endpoint(limits), "10.0.0.7", 0.0, ("10.0.0.1", 2103))


def bind(*transfers: SyntaxId, abstract: SyntaxId = ABSTRACT, group: int = 0, flags: int = WHOLE) -> pdus.Bind:
    contexts = tuple(PresentationContext(n, abstract, (transfer,)) for n, transfer in enumerate(transfers or (NDR,)))
    return pdus.Bind(
        call_id=1, flags=flags, max_xmit_frag=4280, max_recv_frag=4280, assoc_group_id=group, contexts=contexts
    )


def bound(limits: Limits | None = None) -> ServerConnection:
    server = fresh(limits)
    assert server.receive(bind().encode(), 0.0) == []
    server.data_to_send()
    return server


def request(
    call_id: int = 2, flags: int = WHOLE, stub: bytes = ECHO_STUB, opnum: int = 0, context_id: int = 0, hint: int = 0
) -> bytes:
    return pdus.Request(
        call_id=call_id, flags=flags, alloc_hint=hint, context_id=context_id, opnum=opnum, stub=stub
    ).encode()


def called(server: ServerConnection, data: bytes) -> CallReceived:
    """The one call in these octets."""
    (event,) = server.receive(data, 0.0)
    assert isinstance(event, CallReceived)
    return event


def sent(server: ServerConnection) -> list[Pdu]:
    return [pdus.decode(frame) for frame in pdus.Framer().feed(server.data_to_send())]


def fault(server: ServerConnection) -> tuple[int, bool]:
    """(status, whether the call was executed), from the only answer."""
    (answer,) = sent(server)
    assert isinstance(answer, pdus.Fault)
    return answer.status, not answer.flags & PacketFlag.DID_NOT_EXECUTE


# Binds


def answers(server: ServerConnection) -> list[tuple[int, int]]:
    (ack,) = sent(server)
    assert isinstance(ack, pdus.BindAck)
    return [(answer.result, answer.reason) for answer in ack.results]


# Interfaces and transfer syntaxes

ACCEPTED = (ContextResult.ACCEPTANCE, 0)
NO_INTERFACE = (ContextResult.PROVIDER_REJECTION, ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
NO_TRANSFER = (ContextResult.PROVIDER_REJECTION, ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED)
FEATURES = (ContextResult.NEGOTIATE_ACK, 3)


@pytest.mark.parametrize(
    ("transfers", "expected"),
    [
        ((NDR,), [ACCEPTED]),
        ((NDR64,), [ACCEPTED]),
        ((NDR, NDR64, pdus.feature_syntax(3)), [ACCEPTED, NO_TRANSFER, FEATURES]),
        ((NDR64, NDR), [NO_TRANSFER, ACCEPTED]),
        ((NDR, NDR), [ACCEPTED, NO_TRANSFER]),
        ((replace(NDR, major=1),), [NO_TRANSFER]),
        ((NDR, pdus.feature_syntax(0xFF)), [ACCEPTED, FEATURES]),
        ((NDR, pdus.feature_syntax(0)), [ACCEPTED, (ContextResult.NEGOTIATE_ACK, 0)]),
    ],
)
@pytest.mark.spec("QP-2.2-02")
def test_one_transfer_syntax_is_accepted(transfers: tuple[SyntaxId, ...], expected: list[tuple[int, int]]) -> None:
    server = fresh()
    server.receive(bind(*transfers).encode(), 0.0)
    assert answers(server) == expected


@pytest.mark.parametrize(
    "abstract", [replace(ABSTRACT, major=2), replace(ABSTRACT, minor=1), replace(ABSTRACT, uuid=UUID(int=1))]
)
def test_another_interface_or_version_is_rejected(abstract: SyntaxId) -> None:
    server = fresh()
    server.receive(bind(abstract=abstract).encode(), 0.0)
    assert answers(server) == [NO_INTERFACE]


def test_an_acknowledged_bind_tells_sizes_group_and_port() -> None:
    server = fresh()
    server.receive(bind(flags=WHOLE | PacketFlag.CONC_MPX).encode(), 0.0)
    (ack,) = sent(server)
    assert isinstance(ack, pdus.BindAck)
    assert (ack.max_xmit_frag, ack.max_recv_frag, ack.secondary_address) == (4280, 4280, "2103")
    assert ack.assoc_group_id
    assert ack.flags == WHOLE | PacketFlag.CONC_MPX


def test_a_bind_of_another_protocol_version_gets_ours() -> None:
    server = fresh()
    server.receive(b"\4" + bind().encode()[1:], 0.0)
    (nak,) = sent(server)
    assert isinstance(nak, pdus.BindNak)
    assert (nak.reason, nak.versions) == (RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED, ((5, 0),))
    assert server.closed


def test_a_group_that_is_not_there_cannot_be_joined() -> None:
    server = fresh()
    server.receive(bind(group=99).encode(), 0.0)
    (nak,) = sent(server)
    assert isinstance(nak, pdus.BindNak)
    assert server.closed


@pytest.mark.parametrize(
    "octets",
    [
        request(),
        pdus.CoCancel(call_id=1).encode(),
        pdus.AlterContext(call_id=1, max_xmit_frag=4280, max_recv_frag=4280, assoc_group_id=0, contexts=()).encode(),
    ],
)
def test_nothing_comes_before_the_bind(octets: bytes) -> None:
    server = fresh()
    assert server.receive(octets, 0.0) == []
    assert server.closed
    assert "in state established" in server.fault_text


def test_a_second_bind_ends_the_connection() -> None:
    server = bound()
    server.receive(bind().encode(), 0.0)
    assert server.closed


def test_the_bind_has_a_deadline_and_so_has_the_rest_of_a_request() -> None:
    server = fresh(Limits(bind_timeout_s=5, fragment_timeout_s=7))
    assert server.deadline == 5
    server.receive(bind().encode(), 1.0)
    assert server.deadline is None
    server.receive(request(flags=FIRST, stub=b"abcd"), 3.0)
    assert server.deadline == 10
    server.receive(request(flags=LAST, stub=b"abcd"), 4.0)
    assert server.deadline is None


# Requests


def test_a_request_in_fragments() -> None:
    server = bound()
    assert server.receive(request(flags=FIRST, stub=ECHO_STUB[:8], hint=len(ECHO_STUB)), 0.0) == []
    assert server.receive(request(flags=MIDDLE, stub=ECHO_STUB[8:16]), 0.0) == []
    event = called(server, request(flags=LAST, stub=ECHO_STUB[16:]))
    assert isinstance(event, CallReceived)
    assert event.call.request == Echo(Parcel(1, 3, Colour.RED, b"abc"))
    assert server.endpoint.gathering == 0
    server.reply(event.call, EchoReply(event.call.request.parcel, 0))
    (answer,) = sent(server)
    assert isinstance(answer, pdus.Response)
    assert answer.alloc_hint == len(answer.stub)


def test_a_reply_in_fragments_counts_down() -> None:
    server = bound()
    event = called(server, request())
    server.reply(event.call, EchoReply(Parcel(1, 10_000, Colour.RED, bytes(10_000)), 0))
    parts = sent(server)
    assert [part.flags for part in parts] == [FIRST, MIDDLE, LAST]
    stubs = [part.stub for part in parts if isinstance(part, pdus.Response)]
    hints = [part.alloc_hint for part in parts if isinstance(part, pdus.Response)]
    total = sum(map(len, stubs))
    assert hints == [total, total - len(stubs[0]), len(stubs[2])]
    assert max(len(stub) for stub in stubs) == 4280 - 24


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (request(opnum=8), FaultStatus.NCA_OP_RANGE_ERROR),
        (request(opnum=65535), FaultStatus.NCA_OP_RANGE_ERROR),
        (request(context_id=5), FaultStatus.NCA_UNKNOWN_INTERFACE),
        (request(stub=b""), FaultStatus.BAD_STUB_DATA),
        (request(hint=len(ECHO_STUB) + 1), FaultStatus.NCA_PROTOCOL_ERROR),
        (request(opnum=parcels.USE.opnum, stub=b"\1" * 20), FaultStatus.NCA_CONTEXT_MISMATCH),
        (request(opnum=parcels.USE.opnum, stub=bytes(20)), FaultStatus.IN_NULL_CONTEXT),
    ],
)
def test_faults_that_leave_the_connection(octets: bytes, status: int) -> None:
    server = bound()
    assert server.receive(octets, 0.0) == []
    assert fault(server) == (status, False)
    assert not server.closed
    assert len(server.receive(request(call_id=3), 0.0)) == 1


@pytest.mark.parametrize(
    "stream",
    [
        [request(flags=FIRST), request(call_id=3)],  # a request within a request
        [request(flags=MIDDLE, call_id=500)],  # a fragment without the start of its request
        [request(), request()],  # two calls of one id
        [request(flags=FIRST), request(flags=LAST, opnum=1)],  # fragments of two operations
        [request(call_id=0x80000000)],
    ],
)
def test_protocol_errors_end_the_connection(stream: list[bytes]) -> None:
    server = bound()
    for octets in stream:
        server.receive(octets, 0.0)
    assert fault(server) == (FaultStatus.NCA_PROTOCOL_ERROR, False)
    assert server.closed
    assert server.endpoint.gathering == 0
    assert server.receive(request(call_id=9), 0.0) == []


def test_late_fragments_of_an_old_call_are_ignored() -> None:
    server = bound()
    event = called(server, request(call_id=200))
    server.drop(event.call)
    assert server.receive(request(call_id=100, flags=LAST), 0.0) == []
    assert not server.closed
    assert server.data_to_send() == b""
    server.receive(request(call_id=50, flags=LAST), 0.0)
    assert server.closed


def test_a_request_beyond_the_limit_is_answered_at_once_and_its_rest_ignored() -> None:
    server = bound(Limits(max_request=1000))
    server.receive(request(flags=FIRST, stub=bytes(900)), 0.0)
    server.receive(request(flags=MIDDLE, stub=bytes(200)), 0.0)
    assert fault(server) == (FaultStatus.ACCESS_DENIED, False)
    assert server.receive(request(flags=MIDDLE, stub=bytes(200)), 0.0) == []
    assert server.receive(request(flags=LAST, stub=bytes(200)), 0.0) == []
    assert server.data_to_send() == b""
    assert len(server.receive(request(call_id=3), 0.0)) == 1


def test_unfinished_requests_of_all_clients_are_bounded_together() -> None:
    shared = endpoint(Limits(max_gathering=1000))
    servers = [ServerConnection(shared, "10.0.0.7", 0.0) for _ in range(2)]
    for server in servers:
        server.receive(bind().encode(), 0.0)
        server.data_to_send()
        server.receive(request(flags=FIRST, stub=bytes(600)), 0.0)
    assert servers[0].data_to_send() == b""
    assert fault(servers[1]) == (FaultStatus.NCA_SERVER_TOO_BUSY, False)
    assert shared.gathering == 600
    servers[0].disconnected()
    assert shared.gathering == 0


def test_cancelling_and_orphaning() -> None:
    server = bound()
    event = called(server, request())
    assert server.receive(pdus.CoCancel(call_id=2).encode(), 0.0) == [CallCancelled(event.call, orphaned=False)]
    assert server.receive(pdus.Orphaned(call_id=2).encode(), 0.0) == [CallCancelled(event.call, orphaned=True)]
    server.drop(event.call)
    assert server.data_to_send() == b""
    assert server.receive(pdus.CoCancel(call_id=2).encode(), 0.0) == []
    # A request can also be orphaned before all of it has come.
    server.receive(request(call_id=3, flags=FIRST), 0.0)
    server.receive(pdus.Orphaned(call_id=3).encode(), 0.0)
    assert server.endpoint.gathering == 0
    assert len(server.receive(request(call_id=4), 0.0)) == 1


def test_statuses_that_no_server_sends() -> None:
    server = bound()
    event = called(server, request())
    server.fault(event.call, 0)
    assert fault(server) == (FaultStatus.NCA_FAULT_UNSPECIFIED, True)


def test_handles_are_run_down_when_the_last_call_has_ended() -> None:
    server = bound()
    gone: list[object] = []
    event = called(server, request())
    event.call.open_context(parcels.SHELF, "shelf", gone.append)
    server.disconnected()
    assert gone == []
    server.reply(event.call, EchoReply(event.call.request.parcel, 0))
    assert gone == ["shelf"]
    event.call.open_context(parcels.SHELF, "late", gone.append)
    assert gone == ["shelf", "late"]
    assert server.data_to_send() == b""


def test_one_rundown_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    server = bound()
    gone: list[object] = []
    event = called(server, request())

    def fail(value: object) -> None:
        raise ValueError(value)

    event.call.open_context(parcels.SHELF, "first", fail)
    event.call.open_context(parcels.SHELF, "second", gone.append)
    server.drop(event.call)
    server.disconnected()
    assert gone == ["second"]
    assert "context handle rundown failed" in caplog.text


# The verification trailer, [MS-RPCE] 2.2.2.13

PCONTEXT = (2, ABSTRACT.encode() + NDR.encode())
HEADER2 = (3, bytes.fromhex("0000000010000000" "02000000" "0000" "0000"))  # fmt: skip


def trailer(*commands: tuple[int, bytes]) -> bytes:
    body = b"".join(kind.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data for kind, data in commands)
    return ECHO_STUB + bytes(-len(ECHO_STUB) % 4) + SIGNATURE + body


@pytest.mark.parametrize(
    ("commands", "accepted"),
    [
        ([PCONTEXT, (0x4000 | 3, HEADER2[1])], True),
        ([(0x4001, bytes(4))], True),
        ([(0x4001, b"\1\0\0\0")], False),  # header signing was not asked for
        ([(0x4002, NDR.encode() * 2)], False),
        ([(0x4003, bytes(16))], False),
        ([(0x4004, bytes(8))], True),  # not known, and need not be
        ([(0xC004, bytes(8))], False),
        ([PCONTEXT], False),  # no end
        ([(0x4002, b"\0")], False),
    ],
)
def test_a_verification_trailer(commands: list[tuple[int, bytes]], accepted: bool) -> None:
    server = bound()
    events = server.receive(request(stub=trailer(*commands)), 0.0)
    if accepted:
        assert len(events) == 1
    else:
        assert fault(server) == (FaultStatus.ACCESS_DENIED, False)


# Both cores


def joined(limits: Limits | None = None) -> tuple[ClientConnection, ServerConnection]:
    client, server = ClientConnection(), fresh(limits)
    client.bind(PARCELS)
    server.receive(client.data_to_send(), 0.0)
    assert client.receive(server.data_to_send()) == [Bound()]
    return client, server


@given(st.lists(st.tuples(st.binary(max_size=9000), st.booleans()), min_size=1, max_size=5), st.integers(1, 3000))
def test_calls_arrive_whatever_the_pieces(calls: list[tuple[bytes, bool]], piece: int) -> None:
    client, server = joined()
    expected = []
    stream = b""
    for content, _ in calls:
        parcel = Parcel(1, len(content), Colour.GREEN, content)
        stub = parcels.ECHO.request.encode(Echo(parcel), Format.NDR)
        expected.append((client.call(PARCELS, 0, stub), parcel))
        stream += client.data_to_send()
    events: list[CallReceived] = []
    for start in range(0, len(stream), piece):
        found = server.receive(stream[start : start + piece], 0.0)
        events += [event for event in found if isinstance(event, CallReceived)]
    assert [(event.call.call_id, event.call.request.parcel) for event in events] == expected
    for event, (_, answered) in zip(events, calls, strict=True):
        if answered:
            server.reply(event.call, EchoReply(event.call.request.parcel, 5))
        else:
            server.fault(event.call, 0xC00E0007)
    stream = server.data_to_send()
    got = []
    for start in range(0, len(stream), piece):
        got += client.receive(stream[start : start + piece])
    for (call_id, parcel), (_, answered), answer in zip(expected, calls, got, strict=True):
        if answered:
            assert isinstance(answer, Replied)
            assert answer.call_id == call_id
            assert parcels.ECHO.reply.decode(answer.stub, Format.NDR) == EchoReply(parcel, 5)
        else:
            assert answer == Faulted(call_id, 0xC00E0007)


def test_a_client_told_of_no_interface_is_refused() -> None:
    client, server = ClientConnection(), fresh()
    server.endpoint.interfaces.clear()
    client.bind(PARCELS)
    server.receive(client.data_to_send(), 0.0)
    (event,) = client.receive(server.data_to_send())
    assert isinstance(event, Refused)


def test_without_the_servers_word_an_orphaned_call_closes_the_connection() -> None:
    client, _ = joined()
    stub = parcels.EMPTY.request.encode(Nothing(), Format.NDR)
    client.orphan(client.call(PARCELS, parcels.EMPTY.opnum, stub))
    assert not client.closed
    client.keeps_orphans = False
    client.orphan(client.call(PARCELS, parcels.EMPTY.opnum, stub))
    assert client.closed


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([request(), request(flags=FIRST), bind().encode()]), max_size=6)
)
def test_a_server_fed_with_garbage_closes_or_goes_on(pieces: list[bytes]) -> None:
    server = bound()
    for piece in pieces:
        server.receive(piece, 0.0)
    server.data_to_send()
    server.disconnected()
    for call in list(server.calls.values()):
        server.drop(call)
    assert server.endpoint.gathering == 0
    assert len(server.endpoint.associations) == 0


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_a_client_fed_with_garbage_says_so(pieces: list[bytes]) -> None:
    client, _ = joined()
    try:
        for piece in pieces:
            client.receive(piece)
    except RemoteProtocolError:
        return


# What a client can make one connection hold


def test_so_many_presentation_contexts() -> None:
    server = bound()
    for number in range(MAX_CONTEXTS + 1):
        alter = pdus.AlterContext(
            call_id=2,
            flags=WHOLE,
            max_xmit_frag=4280,
            max_recv_frag=4280,
            assoc_group_id=0,
            contexts=(PresentationContext(number, ABSTRACT, (NDR,)),),
        )
        server.receive(alter.encode(), 0.0)
    answer = sent(server)[-1]
    assert isinstance(answer, pdus.BindNak)
    assert answer.reason == RejectReason.LOCAL_LIMIT_EXCEEDED
    assert server.closed


def test_a_login_that_is_not_finished_has_a_deadline() -> None:
    found = endpoint()
    found.providers = {AuthType.NTLM: NtlmProvider({"anna": "geheim"}, "alpha")}
    server = ServerConnection(found, "10.0.0.7", 0.0, ("10.0.0.1", 2103))
    begun = replace(bind(), trailer=pdus.SecTrailer(AuthType.NTLM, AuthLevel.PRIVACY, 1, NEGOTIATE))
    server.receive(begun.encode(), 0.0)
    assert (server.half_open, server.logging_in, server.deadline) == (True, True, Limits().bind_timeout_s)
    wrong = pdus.Auth3(call_id=1, trailer=pdus.SecTrailer(AuthType.NTLM, AuthLevel.PRIVACY, 1, AUTHENTICATE))
    assert server.receive(wrong.encode(), 1.0) == [LoginRefused("User")]
    assert (server.half_open, server.logging_in, server.deadline) == (False, False, None)
