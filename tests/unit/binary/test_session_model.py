"""Any interleaving of sends, commits, reads of any size, timers, pauses and a cut: what always holds for two
sessions."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.binary.session import BinarySettings
from tests.unit.binary.link import End, Link

Step = Callable[["Run"], None]


class Run:
    """A link, and a simple model of it."""

    def __init__(self, windows: tuple[int, int]) -> None:
        left, right = (BinarySettings(window_size=window, ack_timeout_ms=20_000) for window in windows)
        self.link = Link(left, right).open()
        self.recoverable: dict[End, list[bool]] = {end: [] for end in self.link.ends}
        self.stored: dict[End, int] = dict.fromkeys(self.link.ends, 0)
        self.windows = dict(zip(self.link.ends, windows, strict=True))

    def send(self, end: End, recoverable: bool) -> None:
        if end.session.free:
            end.send(self.link.now, recoverable=recoverable)
            self.recoverable[end].append(recoverable)
        self.link.collect()

    def store(self, end: End, number: int) -> None:
        number = min(number, end.last_number)
        self.stored[end] = max(self.stored[end], number)
        self.link.store(end, number)

    def check(self) -> None:
        for end in self.link.ends:
            session, other = end.session, self.link.other(end)
            acknowledged = end.acknowledged
            assert len(acknowledged) == len(set(acknowledged)), "acknowledged twice"
            everything = sorted([*map(_place, acknowledged), *map(_place, session.sent.in_flight)])
            assert everything == list(range(1, end.sent + 1)), "lost, or in flight and acknowledged"
            assert session.sent.unacknowledged <= min(self.windows.values()), "more in flight than the window"
            places = [place for place, recoverable in enumerate(self.recoverable[end], 1) if recoverable]
            durable = set(places[: self.stored[other]])
            assert {place for place in places if place in acknowledged} <= durable, "acknowledged before it was stored"
            assert len(other.received) <= end.sent
            if session.closed:
                assert session.deadline is None

    def quiet(self) -> None:
        """Everything arrives, everything is stored, and every timer has had its time."""
        for _ in range(3):
            self.link.roundtrip()
            for end in self.link.ends:
                self.store(end, end.last_number)
            self.link.roundtrip()
            self.link.advance(10.0)
            self.check()


def _place(token: object) -> int:
    assert isinstance(token, int)
    return token


def _steps() -> st.SearchStrategy[Step]:
    side = st.sampled_from([0, 1])
    sends = st.builds(lambda at, recoverable: lambda run: run.send(run.link.ends[at], recoverable), side, st.booleans())
    stores = st.builds(lambda at, number: lambda run: run.store(run.link.ends[at], number), side, st.integers(0, 80))
    reads = st.builds(
        lambda at, size: lambda run: run.link.deliver(run.link.ends[at], size), side, st.integers(1, 2000)
    )
    waits = st.builds(lambda seconds: lambda run: run.link.advance(seconds), st.sampled_from([0.1, 0.4, 2.0, 9.0]))
    pauses = st.builds(lambda at: lambda run: run.link.ends[at].session.announce_pause(), side)
    bursts = st.builds(
        lambda at, count, recoverable: lambda run: [run.send(run.link.ends[at], recoverable) for _ in range(count)],
        side,
        st.integers(2, 70),
        st.booleans(),
    )
    return st.one_of(sends, sends, bursts, stores, reads, reads, waits, pauses)


windows = st.tuples(st.sampled_from([1, 2, 7, 64]), st.sampled_from([1, 3, 64, 100]))


@given(windows, st.lists(_steps(), max_size=60))
def test_every_message_is_acknowledged_exactly_once(widths: tuple[int, int], steps: list[Step]) -> None:
    run = Run(widths)
    for step in steps:
        step(run)
        run.check()
    run.quiet()
    if any(end.session.closed for end in run.link.ends):  # a reader that stood still for too long
        return
    for end in run.link.ends:
        sent, received = end.session.sent, run.link.other(end).session.received
        assert sorted(map(_place, end.acknowledged)) == list(range(1, end.sent + 1))
        assert end.session.sent.in_flight == []
        assert (sent.count, sent.recoverable_count) == (received.count, received.recoverable_count)
        assert received.unacked == 0
        assert end.session.free == end.session.window


@settings(max_examples=50)
@given(windows, st.lists(_steps(), max_size=30), st.lists(_steps(), max_size=10))
def test_a_cut_loses_nothing(widths: tuple[int, int], before: list[Step], after: list[Step]) -> None:
    """Whatever is not acknowledged is still in flight, to be sent again in another session."""
    run = Run(widths)
    for step in before:
        step(run)
    run.link.cut()
    acknowledged = [list(end.acknowledged) for end in run.link.ends]
    for step in after:
        step(run)
        run.check()
    assert [end.acknowledged for end in run.link.ends] == acknowledged
