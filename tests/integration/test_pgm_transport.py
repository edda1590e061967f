"""PGM's sockets on loopback: over UDP, and raw if this process may open raw sockets."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from postroad.pgm.packet import Data, Kind, Nak, Packet, Spm, Tsi, decode, encode
from postroad.pgm.receiver import OutgoingNak
from postroad.pgm.sockets import PgmTransport, TransportOptions
from postroad.pgm.source import Outgoing
from tests.multicast_relay import group_socket

GROUP = "239.50.2.1"
TSI = Tsi(b"gsigsi", 99)
UDP = 13155
SPM = Spm(TSI, 8001, 0, 1, 0, "127.0.61.1")
DATA = Data(Kind.ODATA, TSI, 8001, 1, 1, b"hello")
NAK = Nak(Kind.NAK, TSI, 8001, (1,), "127.0.61.1", GROUP)


def may_use_raw_sockets() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 113).close()
    except PermissionError:
        return False
    return True


class End:
    """A transport and what it got."""

    def __init__(self, number: int, udp_port: int | None, **options: object) -> None:
        self.got: list[tuple[Packet, str, str | None]] = []
        interfaces = (f"127.0.61.{number}",)
        self.transport = PgmTransport(
            TransportOptions(interfaces, udp_port, **options),  # type: ignore[arg-type]
            lambda *arguments: self.got.append(arguments),
        )
        assert self.transport.open(), self.transport.error


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.005)


KINDS = [pytest.param(UDP, id="udp")]
KINDS += [pytest.param(None, id="raw", marks=pytest.mark.skipif(not may_use_raw_sockets(), reason="needs NET_RAW"))]


@pytest.mark.parametrize("udp_port", KINDS)
def test_packets_reach_those_who_have_joined(udp_port: int | None) -> None:
    async def run() -> None:
        ends = alpha, beta, gamma = [End(number, udp_port) for number in (1, 2, 3)]
        assert beta.transport.join(GROUP) is None
        assert gamma.transport.join("239.50.2.2") is None
        for packet in (SPM, DATA):
            kind = Kind.SPM if packet is SPM else Kind.ODATA
            alpha.transport.send(GROUP, Outgoing(kind, encode(packet)))
        await settle()
        assert beta.got == [(SPM, "127.0.61.1", GROUP), (DATA, "127.0.61.1", GROUP)]
        assert gamma.got == alpha.got == []
        beta.transport.send_nak(GROUP, OutgoingNak("127.0.61.1", encode(NAK)))
        await settle()
        assert alpha.got == [(NAK, "127.0.61.2", None)]
        assert beta.got[2:] == [(NAK, "127.0.61.2", GROUP)]  # its own, by multicast
        beta.transport.leave(GROUP)
        alpha.transport.send(GROUP, Outgoing(Kind.ODATA, encode(DATA)))
        await settle()
        assert len(beta.got) == 3
        for end in ends:
            end.transport.close()

    asyncio.run(run())


@pytest.mark.spec("SRM-6-07")
def test_a_nak_is_multicast_with_a_ttl_of_1_besides_the_unicast_one() -> None:
    async def run() -> None:
        end = End(1, UDP, hops=7)
        watching = group_socket(GROUP, UDP, "127.0.61.1")
        watching.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
        watching.settimeout(5)
        other = End(2, UDP)
        end.transport.send(GROUP, Outgoing(Kind.ODATA, encode(DATA)))
        end.transport.send_nak(GROUP, OutgoingNak("127.0.61.2", encode(NAK)))
        end.transport.send(GROUP, Outgoing(Kind.ODATA, encode(DATA)))
        await settle()
        found = []
        for _ in range(3):
            data, ancillary, _, _ = watching.recvmsg(65_535, 100)
            found.append((decode(data), int.from_bytes(ancillary[0][2][:4], "little")))
        assert found == [(DATA, 7), (NAK, 1), (DATA, 7)]
        assert other.got == [(NAK, "127.0.61.1", None)]
        watching.close()
        end.transport.close()
        other.transport.close()

    asyncio.run(run())


def test_garbage_is_counted() -> None:
    async def run() -> None:
        end = End(1, UDP)
        assert end.transport.join(GROUP) is None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.61.9", 0))
            stranger.sendto(bytes(20), ("127.0.61.1", UDP))
            stranger.sendto(b"", ("127.0.61.1", UDP))
        await settle()
        assert (end.got, end.transport.malformed) == ([], 2)
        end.transport.close()

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")
def test_packets_that_find_a_full_buffer_are_counted_also_after_the_group_is_left() -> None:
    async def run() -> None:
        end = End(1, UDP)
        assert end.transport.join(GROUP) is None
        sender = End(2, UDP)
        sent, large = 0, Outgoing(Kind.ODATA, bytes(60_000))
        while not end.transport.overflowed and sent < 1000:  # nobody reads in between
            sender.transport.send(GROUP, large)
            sent += 1
        assert 0 < end.transport.overflowed < sent
        overflowed = end.transport.overflowed
        end.transport.leave(GROUP)
        assert end.transport.overflowed == overflowed
        assert end.transport.join(GROUP) is None
        assert end.transport.overflowed == overflowed
        end.transport.close()
        sender.transport.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("interface", "error"),
    [("nothing0", "there is no interface nothing0"), ("192.0.2.1", "there is no interface 192.0.2.1")],
)
def test_an_interface_that_is_not_there_is_named(interface: str, error: str) -> None:
    transport = PgmTransport(TransportOptions((interface,), UDP), lambda *arguments: None)
    assert not transport.open()
    assert transport.error is not None
    assert error in transport.error
    assert transport.address is None
    assert transport.join(GROUP) == transport.error


@pytest.mark.skipif(not may_use_raw_sockets(), reason="needs NET_RAW")
def test_path_messages_and_repairs_carry_the_router_alert() -> None:
    async def run() -> None:
        end = End(1, None)
        end.transport.join(GROUP)
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, 113) as watching:
            watching.settimeout(5)
            watching.bind(("127.0.61.1", 0))
            for kind in (Kind.SPM, Kind.ODATA, Kind.RDATA, Kind.NCF):
                end.transport.send("127.0.61.1", Outgoing(kind, encode(DATA)))
            lengths = [(watching.recv(65_535)[0] & 15) * 4 for _ in range(4)]
        assert lengths == [24, 20, 24, 24]
        end.transport.close()

    asyncio.run(run())
