"""Who may register with the endpoint mapper, and towers."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import RemoteProtocolError
from postroad.rpc import epm_interface as ept
from postroad.rpc.calls import Associations, Call, Caller, Endpoint
from postroad.rpc.epm import MAX_ENTRIES, EndpointMapper, Registration, is_local
from postroad.rpc.epm_interface import Tower
from postroad.rpc.ndr import Format
from postroad.rpc.pdu import SyntaxId
from postroad.rpc.server_connection import ServerConnection

IFACE = SyntaxId(UUID("1088a980-eae5-11d0-8d9b-00a02453c337"), 1)


def call(address: str, local: str) -> Call:
    numbers = itertools.count(1)
    associations = Associations(lambda: next(numbers), lambda: UUID(int=next(numbers)).bytes_le, 9)
    connection = ServerConnection(Endpoint(associations), address, 0.0, (local, 135))
    connection.association = associations.join(0, address, connection)
    return Call(connection, 1, 0, ept.EPT_INSERT, None, Format.NDR, None, Caller(address))


@pytest.mark.parametrize(
    ("address", "local", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.2", "10.0.0.1", False),
        ("fe80::2", "fe80::1", False),
    ],
)
def test_only_processes_of_this_machine_register(address: str, local: str, expected: bool) -> None:
    caller = call(address, local)
    assert is_local(caller) is expected
    mapper = EndpointMapper()
    entry = Registration(IFACE, 2105, "10.0.0.1").entry(local)
    reply = mapper._insert(caller, ept.Insert(1, (entry,), 0))
    assert reply.status == (0 if expected else ept.CANNOT_PERFORM)
    assert len(mapper.registrations) == expected
    caller.connection.disconnected()
    assert mapper.registrations == []


def test_registrations_are_bounded() -> None:
    caller = call("127.0.0.1", "127.0.0.1")
    mapper = EndpointMapper()
    for start in range(0, MAX_ENTRIES + 100, 100):
        entries = tuple(Registration(IFACE, start + n).entry("127.0.0.1") for n in range(100))
        mapper._insert(caller, ept.Insert(100, entries, 0))
    assert len(mapper.registrations) <= MAX_ENTRIES


def test_a_tower_as_windows_writes_it() -> None:
    octets = Tower(IFACE, 2105, "10.0.0.1").encode()
    assert octets.hex() == (
        "0500"
        "1300" "0d80a98810e5ead0118d9b00a02453c3370100" "0200" "0000"
        "1300" "0d045d888aeb1cc9119fe808002b1048600200" "0200" "0000"
        "0100" "0b" "0200" "0000"
        "0100" "07" "0200" "0839"
        "0100" "09" "0400" "0a000001"
    )  # fmt: skip
    assert Tower.decode(octets) == Tower(IFACE, 2105, "10.0.0.1")


def test_an_address_that_is_none_of_ipv4_is_left_open() -> None:
    assert Tower.decode(Tower(IFACE, 1, "fe80::1").encode()) == Tower(IFACE, 1, "0.0.0.0")


def test_towers_of_other_protocols_are_none_of_ours() -> None:
    udp = Tower(IFACE, 1).encode().replace(b"\1\0\x07", b"\1\0\x08")
    assert Tower.decode(udp) is None
    with pytest.raises(RemoteProtocolError, match="floors in a tower: 7"):
        Tower.decode(b"\7\0" + bytes(28))


@given(st.binary(max_size=120))
def test_any_octets_are_a_tower_or_the_protocol_error(octets: bytes) -> None:
    try:
        tower = Tower.decode(octets)
    except RemoteProtocolError:
        return
    assert tower is None or Tower.decode(tower.encode()) == tower
