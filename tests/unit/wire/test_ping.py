"""The Ping packet, [MS-MQQB] 2.2.7: 24 bytes by UDP, the same for question and answer."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import RemoteProtocolError
from postroad.wire import Ping
from tests.frames import FRAME_1, FRAME_2

INITIATOR = UUID(bytes_le=FRAME_1[8:])
ACCEPTOR = UUID(bytes_le=FRAME_2[8:])


@pytest.mark.spec("QB-2.2.7-01", "QB-2.2.7-02", "QB-2.2.7-08")
def test_layout() -> None:
    request, response = Ping.decode(FRAME_1), Ping.decode(FRAME_2)
    assert request == Ping(4, INITIATOR, 0x7D01)
    assert response == Ping(4, ACCEPTOR, 0xB295)
    for ping in (request, response):
        assert ping.independent_client
        assert not ping.refused
    assert Ping(0x01020304, INITIATOR, 0xFFFD).encode() == bytes.fromhex("fdff485504030201") + INITIATOR.bytes_le


@pytest.mark.spec("QB-2.2.7-02")
@pytest.mark.parametrize("flags", range(4))
def test_flag_bits(flags: int) -> None:
    ping = Ping.decode(Ping(1, INITIATOR, flags).encode())
    assert (ping.independent_client, ping.refused) == (bool(flags & 1), bool(flags & 2))


@pytest.mark.spec("QB-2.2.7-09", "QB-6-09")
@pytest.mark.parametrize("flags", range(4))
def test_unused_bits_change_nothing(flags: int) -> None:
    plain, noisy = Ping(1, INITIATOR, flags), Ping.decode(Ping(1, INITIATOR, flags | 0xFFFC).encode())
    assert (noisy.cookie, noisy.queue_manager) == (plain.cookie, plain.queue_manager)
    assert (noisy.independent_client, noisy.refused) == (plain.independent_client, plain.refused)
    assert noisy.response(ACCEPTOR, refused=False) == plain.response(ACCEPTOR, refused=False)


@pytest.mark.spec("QB-2.2.7-10")
def test_signature() -> None:
    assert Ping(4, INITIATOR).encode()[2:4] == bytes.fromhex("4855")
    with pytest.raises(RemoteProtocolError, match="this is not a Ping") as caught:
        Ping.decode(FRAME_1[:2] + bytes.fromhex("5548") + FRAME_1[4:])
    assert caught.value.offset == 2


@pytest.mark.spec("QB-2.1.2-07", "QB-2.2.7-15")
def test_an_answer_has_the_layout_of_its_question_and_the_acceptors_guid() -> None:
    request = Ping(0xC00C1E, INITIATOR, 1)
    response = request.response(ACCEPTOR, refused=True)
    assert request.encode()[8:] == INITIATOR.bytes_le
    assert response.encode()[8:] == ACCEPTOR.bytes_le
    assert len(request.encode()) == len(response.encode()) == 24
    assert Ping.decode(response.encode()) == response
    assert (response.cookie, response.independent_client, response.refused) == (0xC00C1E, True, True)
    assert not request.response(ACCEPTOR, refused=False).refused


@pytest.mark.parametrize("data", [b"", FRAME_1[:23], FRAME_1 + b"\0"])
def test_any_other_size_is_no_ping(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=f"a Ping must have 24 bytes, got {len(data)}"):
        Ping.decode(data)
