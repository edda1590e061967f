"""A PGM source: window, rate, path messages and repairs, with the values of [MC-MQSRM] 2.1.3.1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.errors import LocalProtocolError
from postroad.pgm.packet import Data, Kind, Nak, Packet, Spm, Tsi, after, decode
from postroad.pgm.settings import PgmSettings
from postroad.pgm.source import Source
from tests.unit.pgm.link import FAST, GROUP, GSI, PORT, source

DEFAULTS = PgmSettings(opening_s=0.0)
Sent = list[tuple[float, Packet]]


def run(each: Source, until: float) -> Sent:
    """Everything that the source sends up to a time, each packet with its time."""
    out: Sent = []
    while (deadline := each.deadline) is not None and deadline <= until:
        now = max(deadline, each.now)
        for sent in each.poll(now):
            packet = decode(sent.data)
            assert packet is not None
            out.append((now, packet))
    each.now = until
    return out


def of(sent: Sent, kind: Kind) -> list[tuple[float, Data]]:
    return [(at, each) for at, each in sent if isinstance(each, Data) and each.kind is kind]


def spms(sent: Sent) -> list[tuple[float, Spm]]:
    return [(at, each) for at, each in sent if isinstance(each, Spm)]


def nak(each: Source, *sequences: int) -> Nak:
    return Nak(Kind.NAK, each.tsi, PORT, sequences, each.nla, GROUP)


@pytest.mark.spec("SRM-2.1.3.1-02", "SRM-2.1.3.1-03", "SRM-2.1.3.1-04")
def test_default_window() -> None:
    assert (DEFAULTS.txw_secs, DEFAULTS.txw_adv_secs, DEFAULTS.txw_adv_ivl) == (300, 45, 45)


@pytest.mark.spec("SRM-2.1.3.1-01", "SRM-2.1.3.1-11")
def test_the_rate_is_kept_and_a_burst_is_40_ms_long() -> None:
    each = source(DEFAULTS)
    for number in range(2000):
        each.send(b"x" * 1300, number)
    sent = of(run(each, 20.0), Kind.ODATA)
    size = 20 + 24 + 1300
    assert len(sent) * size == pytest.approx(70_000 * 20, rel=0.01)
    burst = [at for at, _ in sent if at == 0]
    assert len(burst) == 70_000 * 0.040 // size
    for window in (1.0, 5.0):
        most = max(sum(start <= at < start + window for at, _ in sent) for start, _ in sent)
        assert most * size <= 70_000 * (window + 0.041) + size


@pytest.mark.spec("SRM-6-10")
def test_rate_and_window_can_be_set() -> None:
    each = source(replace(DEFAULTS, txw_max_rte=700_000, txw_secs=10))
    for number in range(2000):
        each.send(b"x" * 1300, number)
    sent = run(each, 2.0)
    assert len(of(sent, Kind.ODATA)) * 1344 == pytest.approx(1_400_000, rel=0.03)
    run(each, 12.1)
    assert each.trail > 100
    first = each.trail
    each.receive(nak(each, first - 1), 12.1)
    assert not of(run(each, 12.2), Kind.RDATA)


def test_path_messages_come_before_the_first_data() -> None:
    each = source(PgmSettings())
    each.send(b"data", "")
    sent = run(each, 0.4)
    assert [(at, type(packet)) for at, packet in sent] == [(0.0, Spm), (0.05, Spm), (0.1, Spm), (0.1, Data)]
    assert {(packet.trail, packet.lead) for _, packet in spms(sent)} == {(100, 99)}


def test_an_apdu_takes_as_many_packets_as_it_needs() -> None:
    each = source()
    apdu = bytes(range(256)) * 20
    each.send(apdu, "long")
    each.send(b"short", "short")
    sent = [packet for _, packet in of(run(each, 1.0), Kind.ODATA)]
    assert [packet.sequence for packet in sent] == [100, 101, 102, 103, 104]
    assert b"".join(packet.payload for packet in sent[:4]) == apdu
    offset = 0
    for packet in sent[:4]:
        assert packet.fragment == (100, offset, len(apdu))
        offset += len(packet.payload)
    assert sent[4].fragment is None
    assert each.take_sent() == ["long", "short"]
    assert each.take_sent() == []
    assert each.backlog == 0


def test_numbers_go_over_the_end() -> None:
    each = source(first=0xFFFFFFFE)
    each.send(b"y" * 5000, "")
    sent = [packet for _, packet in of(run(each, 1.0), Kind.ODATA)]
    assert [packet.sequence for packet in sent] == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    assert {packet.fragment.first for packet in sent if packet.fragment} == {0xFFFFFFFE}


@pytest.mark.spec("SRM-2.1.3.1-17")
def test_an_apdu_is_at_most_64_kib() -> None:
    each = source()
    each.send(b"x" * 65_536, "")
    for size in (0, 65_537):
        with pytest.raises(LocalProtocolError, match="1 to 65536 bytes"):
            each.send(b"x" * size, "")


@pytest.mark.spec("SRM-2.1.3.1-05", "SRM-2.1.3.1-06")
def test_heartbeats_begin_after_a_second_and_grow_to_fifteen() -> None:
    each = source()
    run(each, 0.4)
    each.send(b"data", "")
    sent = run(each, 100)
    ((last, _),) = of(sent, Kind.ODATA)
    beats = [at - last for at, _ in spms(sent) if at - last > 0.6]
    assert beats[:6] == pytest.approx([1, 3, 7, 15, 30, 45])
    numbers = [packet.sequence for _, packet in spms(sent)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.spec("SRM-2.1.3.1-13")
def test_ambient_path_messages_by_count_and_by_time() -> None:
    each = source()
    for number in range(200):
        each.send(b"x" * 100, number)
    kinds = [packet for _, packet in run(each, 0.45)][3:]  # behind the first three
    places = [place for place, packet in enumerate(kinds) if isinstance(packet, Spm)]
    assert places == [50, 101, 152, 203]
    slow = source()
    sent: Sent = []
    for step in range(20):
        slow.send(b"x", step)
        sent += run(slow, step * 0.3)
    times = [at for at, _ in spms(sent)][3:]
    assert times == pytest.approx([0.5 * each for each in range(1, 12)])


def test_ambient_path_messages_count_repairs_too() -> None:
    each = source()
    each.send(b"x" * 60_000, "")
    run(each, 10)
    for _ in range(2):
        each.receive(nak(each, *range(100, 130)), each.now)
        sent = run(each, each.now + 0.2)
    assert sum(isinstance(packet, Spm) for _, packet in sent) == 1


@pytest.mark.spec("SRM-6-05", "SRM-2.1.3.1-14")
def test_every_nak_gets_its_confirmation_and_the_repair_after_a_delay() -> None:
    each = source()
    for number in range(100):
        each.send(b"x" * 10, number)
    run(each, 5.0)
    for _ in range(5):  # a storm is answered as a single one is
        each.receive(nak(each, 100, 150, 199), 5.0)
    sent = run(each, 5.5)
    confirmations = [(at, packet) for at, packet in sent if isinstance(packet, Nak)]
    assert [at for at, _ in confirmations] == [5.0] * 5
    assert {packet.sequences for _, packet in confirmations} == {(100, 150, 199)}
    repairs = [(packet.sequence, at - 5.0) for at, packet in of(sent, Kind.RDATA)]
    assert repairs == [
        (100, 0.0),
        (150, pytest.approx(50 * 0.060 / 100)),
        (199, pytest.approx(99 * 0.060 / 100)),
    ]
    each.receive(nak(each, 150), 6.0)
    assert len(of(run(each, 6.5), Kind.RDATA)) == 1  # and the next one too


@pytest.mark.spec("SRM-2.1.3.1-02", "SRM-2.1.3.1-15", "SRM-6-04")
def test_the_window_advances_by_time_every_45_seconds_whatever_naks_are_heard() -> None:
    each = source(DEFAULTS)
    trails = []
    for second in range(700):
        run(each, float(second))
        each.send(b"x", second)
        run(each, float(second))
        if second % 10 == 5:
            each.receive(nak(each, after(each.lead, -1)), float(second))  # repaired soon
        trails.append((second, each.trail))
    steps = [second for (second, trail), (_, before) in zip(trails[1:], trails, strict=False) if trail != before]
    assert steps == [315, 360, 405, 450, 495, 540, 585, 630, 675]
    assert each.trail == 100 + 675 - 300
    now = each.now
    each.receive(nak(each, each.trail - 1), now)
    assert not [packet for _, packet in run(each, now + 0.2) if isinstance(packet, Nak)]
    oldest_wanted = 100 + 699 - 300  # not yet 300 seconds old
    each.receive(nak(each, oldest_wanted), now)
    assert [packet.sequence for _, packet in of(run(each, now + 0.2), Kind.RDATA)] == [oldest_wanted]


@pytest.mark.spec("SRM-2.1.3.1-16")
def test_the_window_stops_at_a_pending_nak() -> None:
    each = source(DEFAULTS)
    for number in range(10):
        each.send(b"x" * 1000, number)
    run(each, 359.95)
    assert each.trail == 110  # all of it is old enough at 315 s
    each = source(DEFAULTS)
    for number in range(10):
        each.send(b"x" * 1000, number)
    run(each, 314.99)
    each.receive(nak(each, 105), 314.99)  # its repair is due in 30 ms, behind the advance at 315 s
    run(each, 315.0)
    assert each.trail == 105
    sent = run(each, 315.1)
    assert [packet.sequence for _, packet in of(sent, Kind.RDATA)] == [105]
    run(each, 361)
    assert each.trail == 110


def test_the_window_is_bounded_in_bytes() -> None:
    each = source(replace(FAST, txw_bytes=10_000))
    for number in range(20):
        each.send(b"x" * 1000, number)
    run(each, 1.0)
    assert (each.window_bytes, each.counts.forced, each.trail) == (10_000, 10, 110)


def test_repairs_and_data_take_turns() -> None:
    """A flood of NAKs cannot stop new data, and a backlog cannot stop repairs. Both count against the rate."""
    each = source(DEFAULTS)
    for number in range(40):
        each.send(b"x" * 1300, number)
    run(each, 2.0)
    for number in range(40):
        each.send(b"x" * 1300, number)
    each.receive(nak(each, *range(100, 140)), 2.0)
    sent = run(each, 2.5)
    repaired, new = len(of(sent, Kind.RDATA)), len(of(sent, Kind.ODATA))
    assert repaired > 5
    assert abs(repaired - new) <= 5
    assert (repaired + new) * 1344 <= 70_000 * 0.541 + 1344


def test_naks_for_others_are_ignored() -> None:
    each = source()
    each.send(b"x", "")
    run(each, 1.0)
    good = nak(each, 100)
    for wrong in (
        good._replace(tsi=Tsi(GSI, 1)),
        good._replace(group="239.9.9.9"),
        good._replace(port=1),
        good._replace(sequences=(99, 101)),
    ):
        each.receive(wrong, 1.0)
    assert not of(run(each, 1.2), Kind.RDATA)
    assert each.counts.naks == 0


@pytest.mark.spec("SRM-6-08")
def test_join_and_syn_are_never_sent_and_fin_ends_the_session() -> None:
    each = source()
    each.send(b"x" * 3000, "")
    each.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        each.send(b"more", "")
    sent = run(each, 5.0)
    each.receive(nak(each, 101), 5.0)
    sent += run(each, 60.0)
    assert all(packet.join is None and not packet.syn for _, packet in sent if not isinstance(packet, Nak))
    finished = [at for at, packet in spms(sent) if packet.fin]
    assert len(finished) >= 3
    assert finished[0] >= of(sent, Kind.ODATA)[-1][0]
    assert [packet.sequence for _, packet in of(sent, Kind.RDATA)] == [101]  # it repairs while it lingers
    assert each.closed
    assert each.deadline is None
    assert sent[-1][0] <= 10.1


@pytest.mark.spec("SRM-6-09")
def test_cancelled_sends_end_in_a_reset_and_naks_are_ignored() -> None:
    each = source(DEFAULTS)
    for number in range(100):
        each.send(b"x" * 1000, number)
    before = run(each, 0.5)
    assert not any(packet.rst for _, packet in before if not isinstance(packet, Nak))
    each.receive(nak(each, 100), 0.5)
    each.abort()
    each.receive(nak(each, 101), 0.5)
    ((_, packet),) = [(at, each) for at, each in run(each, 60.0) if not isinstance(each, Nak)]
    assert isinstance(packet, Spm)
    assert packet.rst
    assert each.closed
