"""PGM over links that lose, delay and repeat. Everything arrives, in order and once, or its loss is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.pgm.packet import Spm, Tsi, encode
from tests.unit.pgm.link import FAST, GSI, PORT, Link, source


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05, 0.20])
def test_everything_arrives_in_order_and_once(loss: float) -> None:
    link = Link(3, loss=loss, duplicate=0.02, jitter_s=0.02)
    listeners = [link.listen(address=f"10.9.0.{10 + number}") for number in range(3)]
    each = source()
    link.sources.append(each)
    link.run(0.1)
    sent = [bytes([number % 256]) * (60_000 if number % 20 == 0 else 1024) for number in range(300)]
    for number, apdu in enumerate(sent):
        each.send(apdu, number)
    link.run(60)
    assert link.sent == list(range(300))
    for listener in listeners:
        assert listener.apdus == sent
        assert listener.lost == 0
        assert bool(listener.receiver.counts.repaired) == (loss > 0)
    assert bool(link.dropped) == (loss > 0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.floats(0, 0.3),
    st.floats(0, 0.2),
    st.floats(0, 0.1),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=60),
    st.integers(0, 0xFFFFFFFF),
)
def test_any_link(seed: int, loss: float, duplicate: float, jitter_s: float, sizes: list[int], first: int) -> None:
    link = Link(seed, loss=0.0)
    listener = link.listen()
    each = source(first=first)
    link.sources.append(each)
    link.run(0.1)  # the first path messages get through
    link.loss, link.duplicate, link.jitter_s = loss, duplicate, jitter_s
    sent = [number.to_bytes(2) * size for number, size in enumerate(sizes)]
    for number, apdu in enumerate(sent):
        each.send(apdu, number)
    each.close()
    link.run(5)
    link.loss = 0.0
    link.run(120)
    assert listener.lost == 0
    assert listener.apdus == sent
    assert each.closed


def test_two_sources_on_one_group() -> None:
    link = Link(5, loss=0.05, jitter_s=0.01)
    listener = link.listen()
    for number in (1, 2):
        each = source(address=f"10.9.0.{number}")
        link.sources.append(each)
    link.run(0.1)
    for number in range(200):
        for each in link.sources:
            each.send(f"{each.nla} {number}".encode(), number)
    link.run(30)
    for each in link.sources:
        mine = [apdu for apdu in listener.apdus if apdu.startswith(f"{each.nla} ".encode())]
        assert mine == [f"{each.nla} {number}".encode() for number in range(200)]


def test_a_late_joiner_begins_where_it_joins() -> None:
    link = Link(5, loss=0.02)
    early = link.listen()
    each = source()
    link.sources.append(each)
    for number in range(100):
        each.send(b"%d" % number, number)
    link.run(10)
    late = link.listen(address="10.9.0.20")
    link.run(12)
    for number in range(100, 200):
        each.send(b"%d" % number, number)
    link.run(30)
    assert early.apdus[-100:] == [b"%d" % number for number in range(100, 200)]
    assert late.apdus == early.apdus[-len(late.apdus) :]
    assert len(late.apdus) >= 90
    assert late.lost == 0


def test_what_is_lost_past_the_window_is_counted_and_told() -> None:
    """The listener is away for longer than the window. It learns of the loss, and the rest continues in order."""
    link = Link(5)
    short = replace(FAST, txw_secs=10.0)
    listener = link.listen()
    each = source(short)
    link.sources.append(each)
    for number in range(50):
        each.send(b"%d" % number, number)
    link.run(1)
    link.loss = 1.0
    for number in range(50, 80):
        each.send(b"%d" % number, number)
    link.run(20)
    link.loss = 0.0
    for number in range(80, 100):
        each.send(b"%d" % number, number)
    link.run(40)
    assert listener.apdus == [b"%d" % number for number in (*range(50), *range(80, 100))]
    assert listener.lost == listener.receiver.counts.lost == 30


def test_a_source_that_dies_is_given_up() -> None:
    link = Link(5)
    listener = link.listen()
    each = source()
    link.sources.append(each)
    each.send(b"one", 1)
    link.run(1)
    link.loss = 1.0
    each.send(b"two", 2)
    link.run(1.1)
    link.loss = 0.0
    each.send(b"three", 3)
    link.run(1.102)
    link.sources.clear()
    link.run(30)
    assert listener.apdus == [b"one", b"three"]
    assert listener.lost == 1
    link.run(400)
    assert not listener.receiver.sessions


def test_forged_sources_beside_a_real_one_cost_bounded_memory() -> None:
    link = Link(5, loss=0.02)
    bounds = replace(FAST, sources=8, source_bytes=100_000, all_bytes=300_000)
    listener = link.listen(bounds)
    each = source()
    link.sources.append(each)
    link.run(0.1)
    each.send(b"first", "")
    link.run(1)
    for number in range(300):
        forged = source(address=f"10.9.1.{number % 200 + 2}")
        link.multicast(far_ahead(number), forged.nla)
        forged.send(b"z" * 60_000, "")
        for out in forged.poll(0.0)[-1:]:
            link.multicast(out.data, forged.nla)
        each.send(b"%d" % number, number)
        link.run(link.now + 0.02)
    link.run(60)
    real = [apdu for apdu in listener.apdus if len(apdu) < 10]
    assert real == [b"first", *(b"%d" % number for number in range(300))]
    assert len(listener.receiver.sessions) <= 8
    assert listener.largest_held <= 300_000


def far_ahead(number: int) -> bytes:
    return encode(Spm(Tsi(GSI, number), PORT, 0, 1, 50_000, "10.9.1.1"))
