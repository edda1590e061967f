"""impacket, an independent client, and our RPC server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from impacket.dcerpc.v5 import mgmt, transport
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_LEVEL_CONNECT,
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
    DCERPCException,
)
from impacket.uuid import bin_to_string, uuidtup_to_bin

from postroad.rpc.gss import providers
from postroad.rpc.mgmt import INQ_PRINC_NAME, MGMT, UNKNOWN_AUTHN_SERVICE, PrincipalName, PrincipalNameReply
from postroad.rpc.ndr import Format
from postroad.rpc.pdu import NDR64
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, Counter
from tests.unit.rpc.parcels import PARCELS, Colour, Parcel
from tests.unit.rpc.threads import served

NDR64_TUPLE = (str(NDR64.uuid), "1.0")


@pytest.fixture
def it() -> Iterator[Counter]:
    with served() as found:
        yield found


def connected(it: Counter) -> Any:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{it.port}]").get_dce_rpc()
    rpc.connect()
    return rpc


def bound(it: Counter, **options: Any) -> Any:
    rpc = connected(it)
    rpc.bind(uuidtup_to_bin((str(PARCELS.uuid), "1.0")), **options)
    return rpc


def echo(rpc: Any, size: int, layout: Format = Format.NDR) -> None:
    parcel = Parcel(3, size, Colour.BLUE, bytes(n % 251 for n in range(size)))
    rpc.call(parcels.ECHO.opnum, parcels.ECHO.request.encode(parcels.Echo(parcel), layout))
    assert parcels.ECHO.reply.decode(rpc.recv(), layout) == parcels.EchoReply(parcel, 0)


@pytest.mark.parametrize("size", [0, 5, 4000, 4256, 5000, 200_000])
def test_a_call_of_one_fragment_and_of_many(it: Counter, size: int) -> None:
    rpc = bound(it)
    echo(rpc, size)
    echo(rpc, size)
    rpc.disconnect()


def test_small_fragments(it: Counter) -> None:
    rpc = bound(it)
    rpc.set_max_fragment_size(64)
    echo(rpc, 3000)
    rpc.disconnect()


def test_ndr64(it: Counter) -> None:
    rpc = bound(it, transfer_syntax=NDR64_TUPLE)
    assert rpc.transfer_syntax == uuidtup_to_bin(NDR64_TUPLE)
    echo(rpc, 10_000, Format.NDR64)
    rpc.disconnect()


def test_unknown_interfaces_beside_a_known_one(it: Counter) -> None:
    rpc = bound(it, bogus_binds=3)
    echo(rpc, 10)
    rpc.disconnect()


def test_an_unknown_interface_alone(it: Counter) -> None:
    rpc = connected(it)
    with pytest.raises(DCERPCException, match="abstract_syntax_not_supported"):
        rpc.bind(uuidtup_to_bin(("5c7b1c2e-6f37-4b0e-9f6e-6d3a1c5f7e11", "1.0")))
    rpc.disconnect()


def test_alter_context(it: Counter) -> None:
    rpc = bound(it)
    echo(rpc, 10)
    second = rpc.alter_ctx(uuidtup_to_bin((str(PARCELS.uuid), "1.0")))
    echo(second, 20)
    echo(rpc, 30)
    rpc.disconnect()


@pytest.mark.parametrize(
    ("opnum", "stub", "fault"),
    [
        (parcels.FAIL.opnum, b"", "0xc00e0007|c00e0007|MQ_ERROR_INVALID_HANDLE"),
        (8, b"", "nca_s_op_rng_error"),
        (99, b"anything", "nca_s_op_rng_error"),
        (parcels.ECHO.opnum, b"short", "rpc_x_bad_stub_data"),
        (parcels.USE.opnum, b"\1" * 20, "nca_s_fault_context_mismatch"),
        (parcels.USE.opnum, bytes(20), "rpc_x_ss_in_null_context|000006ef"),
    ],
)
def test_faults_and_the_connection_goes_on(it: Counter, opnum: int, stub: bytes, fault: str) -> None:
    rpc = bound(it)
    rpc.call(opnum, stub)
    with pytest.raises(DCERPCException, match=fault):
        rpc.recv()
    echo(rpc, 1)
    rpc.disconnect()


def test_a_context_handle_and_its_twenty_zero_octets(it: Counter) -> None:
    rpc = bound(it)
    rpc.call(parcels.OPEN.opnum, bytes(4))
    answer = rpc.recv()
    assert len(answer) == 24
    assert answer[:20] != bytes(20)
    rpc.call(parcels.CLOSE.opnum, answer[:20])
    assert rpc.recv() == bytes(20)
    rpc.disconnect()


# NTLM


@pytest.fixture
def guarded() -> Iterator[Counter]:
    with served(providers=providers({"Anna": "geheim"}, "POSTROAD")) as found:
        yield found


def authenticated(it: Counter, level: int, user: str = "anna", password: str = "geheim") -> Any:
    binding = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{it.port}]")
    binding.set_credentials(user, password)
    rpc = binding.get_dce_rpc()
    rpc.connect()
    rpc.set_credentials(user, password)
    rpc.set_auth_level(level)
    try:
        rpc.bind(uuidtup_to_bin((str(PARCELS.uuid), "1.0")))
    except BaseException:
        rpc.disconnect()
        raise
    return rpc


LEVELS = [RPC_C_AUTHN_LEVEL_CONNECT, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY]


@pytest.mark.parametrize("level", LEVELS)
def test_ntlm_at_each_level(guarded: Counter, level: int) -> None:
    rpc = authenticated(guarded, level)
    for size in (0, 3, 100, 5000, 100_000):
        echo(rpc, size)
    assert guarded.identities == ["Anna"] * 5
    rpc.disconnect()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("user", "password"), [("anna", "falsch"), ("bert", "geheim"), ("", "")])
def test_ntlm_with_a_wrong_name_or_password(guarded: Counter, level: int, user: str, password: str) -> None:
    rpc = authenticated(guarded, level, user, password)
    with pytest.raises(DCERPCException, match="rpc_s_access_denied"):
        echo(rpc, 3)
    assert guarded.identities == []
    rpc.disconnect()


def test_a_provider_that_is_not_there_is_refused(it: Counter) -> None:
    with pytest.raises(DCERPCException, match="uthentication"):
        authenticated(it, RPC_C_AUTHN_LEVEL_PKT_PRIVACY)


def test_altering_the_context_with_a_second_authentication(guarded: Counter) -> None:
    rpc = authenticated(guarded, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY)
    echo(rpc, 10)
    second = rpc.alter_ctx(uuidtup_to_bin((str(PARCELS.uuid), "1.0")))
    echo(second, 10)
    rpc.disconnect()


# Management, [C706] Appendix Q


@pytest.fixture
def manager(it: Counter) -> Iterator[Any]:
    rpc = connected(it)
    rpc.bind(mgmt.MSRPC_UUID_MGMT)
    yield rpc
    rpc.disconnect()


def test_the_server_names_its_interfaces(manager: Any) -> None:
    found = mgmt.hinq_if_ids(manager)["if_id_vector"]
    uuids = {bin_to_string(each["Data"]["Uuid"]).lower() for each in found["if_id"]}
    assert found["count"] == len(uuids)
    assert uuids == {str(PARCELS.uuid), str(MGMT.uuid)}


def test_the_server_counts_its_calls(manager: Any) -> None:
    first = mgmt.hinq_stats(manager)["statistics"]
    second = mgmt.hinq_stats(manager, 2)["statistics"]
    assert len(first) == 4
    assert [int(each) for each in second] == [int(first[0]) + 1, 0]
    assert int(mgmt.hinq_stats(manager)["statistics"][2]) == int(first[2]) + 2


def test_the_server_listens_whatever_a_caller_wants(manager: Any) -> None:
    assert mgmt.his_server_listening(manager)["status"] == 0
    with pytest.raises(DCERPCException) as refused:
        mgmt.hstop_server_listening(manager)
    assert refused.value.get_error_code() == 5
    assert mgmt.his_server_listening(manager)["status"] == 0


def test_no_principal_has_a_name(manager: Any) -> None:
    manager.call(INQ_PRINC_NAME.opnum, INQ_PRINC_NAME.request.encode(PrincipalName(16, 100), Format.NDR))
    assert INQ_PRINC_NAME.reply.decode(manager.recv(), Format.NDR) == PrincipalNameReply("", UNKNOWN_AUTHN_SERVICE)
