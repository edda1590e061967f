"""Where remote readers find the server: the standard ports, the next ones if those are taken, and the ports it
reports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from postroad.config import load_configuration
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.values import Ports, PortType
from postroad.rpc.client import connect
from postroad.rpc.interface import Nothing
from postroad.server.server import Server
from tests.remote.calls import calling, port_of
from tests.remote.station import Station, station

HOST = "127.0.70.5"  # nobody else's, so that the standard ports are free


@contextmanager
def taken(*ports: int) -> Iterator[None]:
    """Ports that are in use."""
    with ExitStack() as stack:
        for port in ports:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
            listener.listen()
        yield


def reported(running: Station, at: int) -> tuple[list[int], list[int]]:
    """What qm2qm and qmcomm at this port report about the ports of qmcomm and qm2qm."""

    async def ask() -> tuple[list[int], list[int]]:
        connection = await connect(HOST, at, qm2qm.QM2QM, qmcomm.QMCOMM)
        kinds = (PortType.IP_HANDSHAKE, PortType.IP_READ)
        ours = [(await connection.call(qm2qm.GET_SERVER_PORT, structures.GetPortIn(kind))).result for kind in kinds]
        theirs = [
            (await connection.call(qmcomm.GET_SERVER_PORT, qmcomm.GetServerPortIn(kind))).result for kind in kinds
        ]
        assert (await connection.call(qm2qm.GET_VERSION, Nothing())).major == 6
        await connection.close()
        return ours, theirs

    return asyncio.run(ask())


@pytest.mark.spec("QP-3.1.4.8-03", "QP-2.1-04")
def test_the_standard_ports() -> None:
    with station(host=HOST, port=2103, read_port=2105) as running:
        for port in (2103, 2105):
            assert reported(running, port) == ([2103, 2105], [2103, 2105])


@pytest.mark.spec("RR-3.1.4.1-02", "RR-3.1.4.1-03", "RR-2.1-03")
def test_remote_read_tells_of_the_first_of_the_standard_ports() -> None:
    with station(host=HOST, port=2103, read_port=2105) as running, calling(running) as caller:
        assert port_of(caller) == 2103
    with taken(2103), station(host=HOST, port=2103, read_port=2105) as running, calling(running) as caller:
        assert port_of(caller) == 2114
        running.server.service.listen_on(Ports(0, 0))
        assert port_of(caller) == 0  # nothing listens


@pytest.mark.spec("QP-3.1.4.8-09")
def test_standard_ports_that_are_taken_are_passed_over_in_steps_of_11() -> None:
    with taken(2103, 2105, 2116), station(host=HOST, port=2103, read_port=2105) as running:
        assert reported(running, 2114) == ([2114, 2127], [2114, 2127])
        assert reported(running, 2127) == ([2114, 2127], [2114, 2127])


def test_any_other_port_is_a_wish_that_is_refused() -> None:
    with taken(12103), pytest.raises(OSError, match="in use"), station(host=HOST, port=12103):
        pass


def test_one_port_can_serve_both_interfaces() -> None:
    with station(host=HOST) as running:
        port = running.address[1]
        assert reported(running, port) == ([port, port], [port, port])


@pytest.mark.spec("QP-3.1.4.8-04")
def test_a_server_without_settings_reads_at_2105(tmp_path: Path) -> None:
    settings = ["[manager]", 'name = "alpha"', "[listen]", f'host = "{HOST}"']
    settings += [f"{name} = false" for name in ("binary", "ping", "http", "api")]
    (tmp_path / "alpha.toml").write_text("\n".join(settings))
    server = Server(load_configuration(tmp_path / "alpha.toml"))

    async def ask() -> int:
        await server.start()
        try:
            connection = await connect(HOST, 2105, qm2qm.QM2QM)
            found = (await connection.call(qm2qm.GET_SERVER_PORT, structures.GetPortIn(PortType.IP_READ))).result
            await connection.close()
            return int(found)
        finally:
            await server.stop()

    assert asyncio.run(ask()) == 2105
