"""The simulated TCP: what was written arrives in order; how connections end, and who learns of it."""

from __future__ import annotations

from random import Random

import pytest

from postroad.simulation.lines import CONNECT_TIMEOUT_S, End, Line, Network
from postroad.simulation.loop import Loop


class Recorder:
    """A host that keeps what it gets."""

    def __init__(self, net: Net, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.0.0.{number}"
        self.net = net
        self.ends: list[End] = []
        self.got = bytearray()
        self.pieces = 0
        self.lost = 0
        net.network.join(self)

    def accept(self, end: End) -> bool:
        self.ends.append(end)
        return True

    def data_arrived(self, end: End, data: bytes) -> None:
        self.got += data
        self.pieces += 1

    def connection_lost(self, end: End) -> None:
        self.lost += 1


class Net:
    """Two hosts, and time that passes on demand."""

    def __init__(self, seed: int = 1, line: Line | None = None) -> None:
        self.loop = Loop()
        self.network = Network(self.loop, Random(seed), lambda who, what: None)
        self.near, self.far = Recorder(self, "near", 1), Recorder(self, "far", 2)
        if line is not None:
            self.network.lines[frozenset(self.addresses)] = line
        self.answers: list[tuple[End | None, str]] = []

    @property
    def addresses(self) -> tuple[str, str]:
        return self.near.address, self.far.address

    def wait(self, seconds: float = 1000.0) -> None:
        self.loop.run(self.loop.now + seconds)

    def call(self) -> None:
        self.network.connect(self.near, "far", lambda end, why: self.answers.append((end, why)))

    def connect(self) -> End:
        self.call()
        self.wait(1)
        end, _ = self.answers[-1]
        assert end is not None
        return end


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_whole_and_in_order_whatever_is_lost_on_the_way(seed: int) -> None:
    net = Net(seed, Line(delay_s=0.1, jitter_s=0.5, loss=0.2, segment=100))
    end = net.connect()
    written = bytes(range(256)) * 8
    for start in range(0, len(written), 300):
        end.write(written[start : start + 300])
        net.wait(0.05)
    net.network.stall(*net.addresses, seconds=5)
    end.write(b"more")
    net.wait()
    assert bytes(net.far.got) == written + b"more"
    assert net.far.pieces > 20


def test_a_close_comes_behind_what_was_written() -> None:
    net = Net()
    end = net.connect()
    end.write(b"last words")
    end.close()
    net.wait()
    assert (bytes(net.far.got), net.far.lost, net.near.lost) == (b"last words", 1, 1)


def test_a_cut_loses_what_is_on_its_way_and_may_leave_half_of_it() -> None:
    arrived = set()
    for seed in range(30):
        net = Net(seed, Line(delay_s=0.1, jitter_s=0.5, segment=10))
        end = net.connect()
        end.write(b"x" * 100)
        net.wait(0.3)
        net.network.cut(end)
        net.wait()
        arrived.add(len(net.far.got))
        assert (net.near.lost, net.far.lost) == (1, 1)
    assert max(arrived) < 100
    assert len(arrived) > 3


def test_a_side_that_is_not_notified_finds_out_by_writing() -> None:
    net = Net()
    net.connect()
    (far,) = net.far.ends
    net.network.cut_all(*net.addresses, notify_other=False)
    net.wait()
    assert (net.near.lost, net.far.lost) == (1, 0)
    far.write(b"anybody?")
    net.wait(1)
    assert net.far.lost == 1


def test_a_machine_without_power_notifies_nobody_and_knows_nothing_afterwards() -> None:
    net = Net()
    end = net.connect()
    net.network.leave(net.far, silently=True)
    end.write(b"anybody?")
    net.wait(5)
    assert net.near.lost == 0
    net.network.join(net.far)
    net.wait(20)
    assert net.near.lost == 1
    assert net.far.got == b""


def test_a_process_that_ends_is_heard_of() -> None:
    net = Net()
    net.connect()
    net.network.leave(net.far, silently=False)
    net.wait(1)
    assert net.near.lost == 1


def test_a_partition_holds_bytes_back_and_lets_them_go() -> None:
    net = Net()
    end = net.connect()
    net.network.part(*net.addresses)
    end.write(b"later")
    net.wait(20)
    assert net.far.got == b""
    net.network.rejoin(*net.addresses)
    net.wait(1)
    assert net.far.got == b"later"


def test_a_partition_that_lasts_ends_connections_that_have_something_to_say() -> None:
    net = Net()
    end = net.connect()
    net.network.part(*net.addresses)
    end.write(b"never")
    net.wait()
    assert (net.near.lost, net.far.lost) == (1, 0)


def test_connecting_is_refused_or_times_out() -> None:
    net = Net()
    net.network.refuse(net.far.address, refusing=True)
    net.call()
    net.wait(1)
    assert net.answers.pop() == (None, "far refused the connection")
    net.network.refuse(net.far.address, refusing=False)
    net.network.part(*net.addresses)
    net.call()
    net.wait(CONNECT_TIMEOUT_S + 1)
    assert net.answers.pop() == (None, "far did not answer in time")
    net.call()
    net.wait(2)
    net.network.rejoin(*net.addresses)
    net.wait(CONNECT_TIMEOUT_S)
    assert net.answers.pop()[0] is not None
