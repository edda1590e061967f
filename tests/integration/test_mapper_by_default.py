"""The endpoint mapper of a server whose configuration does not name it: on at 135, or not there."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from impacket.dcerpc.v5 import epm as impacket_epm
from impacket.dcerpc.v5 import transport
from impacket.uuid import uuidtup_to_bin

import postroad as client
from postroad.errors import RpcFault, RpcUnavailable
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM
from postroad.remote_read.qmmgmt import QMMGMT
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.rpc.client import connect
from postroad.rpc.epm import Registration, offer
from postroad.rpc.epm_interface import EPMAPPER, EPT_INSERT, Insert
from postroad.rpc.gss import initiator
from tests.commands import ServerProcess
from tests.domain import PASSWORD, Controller

HOST, OTHER = "127.0.76.1", "127.0.76.2"
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = false
ping = false
http = false
rpc = 0
api = 0
console = false
{listen}
"""


def may_listen() -> bool:
    try:
        with socket.create_server((HOST, 135)):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not may_listen(), reason="this user may not listen on port 135")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(folder: Path, stack: ExitStack, name: str, host: str = HOST, listen: str = "") -> ServerProcess:
    file = folder / f"{name}.toml"
    file.write_text(CONFIGURATION.format(name=name, host=host, listen=listen), encoding="utf-8")
    server = ServerProcess(file)
    stack.callback(server.close)
    return server


def mapped(interface: Any, host: str = HOST) -> str:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[135]").get_dce_rpc()
    rpc.connect()
    try:
        wanted = uuidtup_to_bin((str(interface.uuid), "{}.{}".format(*interface.version)))
        return str(impacket_epm.hept_map(host, wanted, protocol="ncacn_ip_tcp", dce=rpc))
    finally:
        rpc.disconnect()


def lines(server: ServerProcess) -> list[str]:
    return [line for line in server.log.splitlines() if "listener=epm" in line]


def test_it_is_on_and_knows_every_interface(tmp_path: Path, stack: ExitStack) -> None:
    server = start(tmp_path, stack, "alpha")
    assert server.ready["listen"]["epm"] == f"{HOST}:135"
    port = server.ready["listen"]["rpc"].rpartition(":")[2]
    for interface in (QMCOMM, QM2QM, REMOTE_READ, QMMGMT):
        assert mapped(interface) == f"ncacn_ip_tcp:{HOST}[{port}]"
    with client.remote(HOST, endpoint_mapper=135) as manager:
        assert manager.info()["CONNECTED"] == "CONNECTED"


def test_managers_have_one_for_each_address_and_share_that_of_one(tmp_path: Path, stack: ExitStack) -> None:
    first, elsewhere = start(tmp_path, stack, "alpha"), start(tmp_path, stack, "beta", OTHER)
    assert elsewhere.ready["listen"]["epm"] == f"{OTHER}:135"
    second = start(tmp_path, stack, "gamma")
    assert second.ready["listen"]["epm"] == f"{HOST}:135"
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[135]").get_dce_rpc()
    rpc.connect()
    entries = impacket_epm.hept_lookup(HOST, dce=rpc)
    rpc.disconnect()
    assert len(entries) == 2 * 4
    second.end()
    first.end()


def test_a_server_starts_without_it(tmp_path: Path, stack: ExitStack) -> None:
    stack.enter_context(socket.create_server((HOST, 135)))  # takes connections and never answers
    server = start(tmp_path, stack, "alpha")
    assert "epm" not in server.ready["listen"]
    (line,) = lines(server)
    assert " info not listening " in line
    with pytest.raises(AssertionError, match=r"listen\.epm"):
        start(tmp_path, stack, "beta", listen="epm = 135")


def test_it_can_be_off(tmp_path: Path, stack: ExitStack) -> None:
    server = start(tmp_path, stack, "alpha", listen="epm = false")
    assert "epm" not in server.ready["listen"]
    assert lines(server) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HOST, 135))


def test_a_server_starts_beside_samba_whose_mapper_takes_no_registration(
    tmp_path: Path, stack: ExitStack, new_controller: Callable[[], Controller]
) -> None:
    """Samba has ept_insert for its own processes alone: over TCP the method does not exist, whoever calls."""
    samba = new_controller()
    samba.set_option("server services", "rpc, ldap, cldap, kdc")
    samba.start()
    while not accepts(samba.address):
        time.sleep(0.1)
    for credentials in (None, initiator("Administrator", PASSWORD, host=samba.address)):
        with pytest.raises(RpcUnavailable, match="0x1C010002") if credentials is None else pytest.raises(RpcFault):
            asyncio.run(register_with(samba.address, credentials))
    server = start(tmp_path, stack, "alpha", samba.address)
    assert "epm" not in server.ready["listen"]
    (line,) = lines(server)
    assert "refuses the registration" in line


def accepts(host: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, 135)) == 0


async def register_with(host: str, credentials: Any) -> None:
    registration = Registration.of(QMMGMT, host, 4711, "management")
    if credentials is None:
        await offer([registration], host, 135)
        return
    mapper = await connect(host, 135, EPMAPPER, security=credentials)
    try:
        await mapper.call(EPT_INSERT, Insert(1, (registration.entry("0.0.0.0"),), 0))
    finally:
        await mapper.close()
