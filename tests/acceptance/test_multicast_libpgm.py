"""PGM with libpgm, OpenPGM's library, as an independent peer: in network namespaces, if it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.namespaces import Namespace, Segment, unavailable
from tests.pgm_peer import apdu, hash_of
from tests.pgm_peers import LARGEST_OF_LIBPGM, OURS, PeerProcess, compile_libpgm_peer, libpgm_missing

GROUP, PORT = "239.50.1.1", 8001
RATE = 2_000_000
COUNT = 200


class Place:
    """Two namespaces, and a command for libpgm."""

    def __init__(self, directory: Path, stack: ExitStack, loss: float) -> None:
        self.libpgm = compile_libpgm_peer(directory)
        segment = Segment(stack)
        self.members = [segment.join(), segment.join()]
        segment.start_relay(loss)
        self._stack = stack

    def peer(self, command: tuple[str, ...], kind: str, number: int, count: int, size: int) -> PeerProcess:
        namespace: Namespace
        namespace, address = self.members[number]
        peer = PeerProcess(command, namespace, kind, address, GROUP, PORT, RATE, count, size)
        self._stack.callback(peer.close)
        return peer


@pytest.fixture(params=[0.0, 0.03], ids=["no loss", "loss"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    why = libpgm_missing() or unavailable()
    if why is not None:
        pytest.skip(why)
    with ExitStack() as stack:
        yield Place(tmp_path, stack, request.param)


def expected(count: int, size: int) -> list[str]:
    return [f"{size} {hash_of(apdu(number, size)):016x}" for number in range(count)]


@pytest.mark.parametrize("size", [1000, LARGEST_OF_LIBPGM])
def test_libpgm_receives_what_we_send(place: Place, size: int) -> None:
    count = COUNT if size < 1400 else COUNT // 10
    receiver = place.peer(place.libpgm, "receive", 1, count, 0)
    sender = place.peer(OURS, "send", 0, count, size)
    sender.go()
    assert receiver.lines(count) == expected(count, size)


def test_we_receive_what_libpgm_sends(place: Place) -> None:
    """Only single packets, because larger messages crash libpgm."""
    receiver = place.peer(OURS, "receive", 1, COUNT, 0)
    sender = place.peer(place.libpgm, "send", 0, COUNT, 1000)
    sender.go()
    assert receiver.lines(COUNT) == expected(COUNT, 1000)
