"""The constants of [MS-MQQP] 2.2 and the versions of 3.1.4.9 and 3.2.4.2."""

from __future__ import annotations

import pytest

from postroad.errors import CUSTOMER_BIT, VendorStatus
from postroad.net import ports
from postroad.remote_read.service import RemoteReadService
from postroad.remote_read.values import (
    INFINITE_MS,
    OWN_VERSION,
    Ack,
    Action,
    Ports,
    PortType,
    Version,
    is_failure,
)
from tests.unit.remote_read.harness import Harness


@pytest.mark.spec("QP-2.2-03")
def test_a_failure_has_the_severity_bit() -> None:
    assert is_failure(0xC00E0006)
    assert not is_failure(0x400E03E9)
    assert not is_failure(0)


@pytest.mark.spec("QP-1.8-01")
def test_our_own_codes_have_the_customer_bit() -> None:
    assert all(status & CUSTOMER_BIT for status in VendorStatus)


@pytest.mark.spec("QP-2.2.1.3-01", "QP-2.2.2.1-06", "QP-2.2.2.1-07", "QP-2.2.2.1-08", "QP-2.2.2.1-09", "QP-2.2.2.1-10")
def test_the_numbers_on_the_wire() -> None:
    assert [Ack.RR_UNKNOWN, Ack.RR_NACK, Ack.RR_ACK] == [0, 1, 2]
    assert {action.name: int(action) for action in Action} == {
        "RECEIVE": 0x00000000,
        "PEEK_CURRENT": 0x80000000,
        "PEEK_NEXT": 0x80000001,
        "LOOKUP_PEEK_CURRENT": 0x40000010,
        "LOOKUP_PEEK_NEXT": 0x40000011,
        "LOOKUP_PEEK_PREV": 0x40000012,
        "LOOKUP_RECEIVE_CURRENT": 0x40000020,
        "LOOKUP_RECEIVE_NEXT": 0x40000021,
        "LOOKUP_RECEIVE_PREV": 0x40000022,
    }
    assert INFINITE_MS == 0xFFFFFFFF


@pytest.mark.spec("QP-3.1.4.8-05")
def test_port_types() -> None:
    assert [PortType.IP_HANDSHAKE, PortType.IP_READ, PortType.IPX_HANDSHAKE, PortType.IPX_READ] == [0, 1, 2, 3]
    assert (ports.RPC_HANDSHAKE, ports.RPC_READ) == (2103, 2105)


@pytest.mark.spec("QP-2.1-02", "QP-3.1.4.8-06", "QP-3.1.4.8-07", "QP-3.1.4.8-08")
def test_a_port_is_what_the_server_listens_on_and_spx_has_none(harness: Harness) -> None:
    harness.service.listen_on(Ports(2114, 2116))
    assert [harness.service.server_port(port_type) for port_type in range(5)] == [2114, 2116, 0, 0, 0]
    assert [harness.service.server_port(port_type) for port_type in range(5)] == [2114, 2116, 0, 0, 0]
    closed = RemoteReadService(harness.queues.manager)
    assert [closed.server_port(port_type) for port_type in range(2)] == [0, 0]


@pytest.mark.spec("QP-3.2.4.2-04", "QP-3.1.4.9-06", "QP-3.1.4.9-07")
@pytest.mark.parametrize(
    ("version", "old"),
    [
        (Version(4, 0, 0), True),
        (Version(5, 0, 645), True),  # Windows 2000
        (Version(5, 1, 950), True),
        (Version(5, 1, 951), False),
        (Version(5, 1, 1020), False),  # XP
        (Version(5, 2, 1716), False),  # Server 2003
        (Version(6, 0, 6000), False),
        (Version(6, 1, 6531), False),
        (OWN_VERSION, False),
    ],
)
def test_an_old_server_is_one_from_before_windows_xp(version: Version, old: bool) -> None:
    assert version.is_old is old


@pytest.mark.spec("QP-3.1.4.9-03", "QP-3.1.4.9-04", "QP-3.1.4.9-05")
def test_our_own_version_is_that_of_windows_7() -> None:
    assert (OWN_VERSION.major, OWN_VERSION.minor) == (6, 1)
    assert OWN_VERSION.build >= 6531
