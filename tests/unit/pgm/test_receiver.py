"""A PGM receiver: order, gaps, NAKs and their timers, the end of sessions, and limits on what strangers can cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from postroad.pgm.packet import Data, Fragment, Kind, Nak, Spm, Tsi, after, decode, encode
from postroad.pgm.receiver import Apdu, Lost, Receiver
from postroad.pgm.settings import PgmSettings
from tests.unit.pgm.link import GROUP, GSI, PORT

TSI = Tsi(GSI, 0x1234)
ADDRESS = "10.9.0.1"
DEFAULTS = PgmSettings()
Naks = list[tuple[float, Nak]]


def receiver(settings: PgmSettings = DEFAULTS, chances: Sequence[float] = (0.5,)) -> Receiver:
    left = list(chances)
    return Receiver(GROUP, PORT, settings, lambda: left.pop(0) if len(left) > 1 else left[0])


def odata(sequence: int, payload: bytes | None = None, trail: int = 100, tsi: Tsi = TSI) -> Data:
    return Data(Kind.ODATA, tsi, PORT, sequence, trail, str(sequence).encode() if payload is None else payload)


def decoded(packet: Data) -> Data:
    """The packet with objects of its own, like one that came from the network."""
    found = decode(encode(packet))
    assert isinstance(found, Data)
    return found


def rdata(sequence: int, trail: int = 100) -> Data:
    return odata(sequence, trail=trail)._replace(kind=Kind.RDATA)


def spm(number: int, lead: int, trail: int = 100, nla: str = ADDRESS, tsi: Tsi = TSI) -> Spm:
    return Spm(tsi, PORT, number, trail, lead, nla)


def ncf(*sequences: int) -> Nak:
    return Nak(Kind.NCF, TSI, PORT, sequences, ADDRESS, GROUP)


def take(each: Receiver, *packets: Data | Spm | Nak, now: float = 0.0, address: str = ADDRESS) -> None:
    for packet in packets:
        each.receive(packet, address, now)


def confirm(each: Receiver) -> None:
    for session in each.sessions.values():
        session.confirm()


def apdus(each: Receiver) -> list[bytes]:
    return [event.data for event in each.take_events() if isinstance(event, Apdu)]


def run(each: Receiver, until: float, start: float = 0.0) -> Naks:
    """The NAKs that are sent up to a time."""
    out: Naks = []
    now = start
    while (deadline := each.deadline) is not None and deadline <= until:
        now = max(now, deadline)
        for sent in each.poll(now):
            packet = decode(sent.data)
            assert isinstance(packet, Nak)
            assert packet.kind is Kind.NAK
            assert sent.nla == ADDRESS
            out.append((now, packet))
    return out


def times(naks: Naks) -> list[float]:
    return [at for at, _ in naks]


@pytest.mark.spec("SRM-6-06")
def test_data_is_delivered_in_the_order_sent() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(102), odata(101))
    assert apdus(each) == []
    take(each, odata(104), odata(100))
    assert apdus(each) == [b"100", b"101", b"102"]
    take(each, odata(103), odata(103), odata(104), odata(100))
    assert apdus(each) == [b"103", b"104"]
    assert (each.counts.packets, each.counts.duplicates, each.counts.repaired) == (5, 3, 0)


def test_nothing_before_the_first_packet_is_asked_for() -> None:
    for first in (spm(0, 499), odata(500)):
        each = receiver()
        take(each, first, spm(1, 500), odata(500), odata(501))
        assert apdus(each)[-2:] == [b"500", b"501"]
        assert run(each, 30) == []


def test_a_join_option_offers_what_was_before() -> None:
    each = receiver()
    take(each, spm(0, 499)._replace(join=498))
    ((_, nak),) = run(each, 0.1)
    assert nak.sequences == (498, 499)
    each = receiver()
    take(each, spm(0, 499)._replace(join=99))  # outside of the window
    assert run(each, 0.1) == []


def test_a_repair_for_others_begins_no_session() -> None:
    each = receiver()
    take(each, rdata(100), odata(200))
    assert apdus(each) == [b"200"]
    take(each, rdata(150))
    assert apdus(each) == []


def test_the_rest_of_an_apdu_without_its_beginning_is_passed_over() -> None:
    each = receiver()
    whole = b"abcdef"
    pieces = [
        odata(100 + at, whole[at * 2 : at * 2 + 2])._replace(fragment=Fragment(100, at * 2, 6)) for at in range(3)
    ]
    take(each, *pieces[1:], odata(103), *[piece._replace(sequence=104 + at) for at, piece in enumerate(pieces)])
    assert apdus(each) == [b"103"]  # the second one says that it began at 100
    again = [odata(107 + at, whole[at * 2 : at * 2 + 2])._replace(fragment=Fragment(107, at * 2, 6)) for at in range(3)]
    take(each, *again)
    assert apdus(each) == [whole]


@pytest.mark.parametrize(
    "wrong",
    [Fragment(100, 3, 6), Fragment(99, 2, 6), Fragment(100, 2, 7), Fragment(100, 2, 3)],
)
def test_fragments_that_contradict_each_other_make_no_apdu(wrong: Fragment) -> None:
    each = receiver()
    take(each, odata(100, b"ab")._replace(fragment=Fragment(100, 0, wrong.length if wrong.length == 3 else 6)))
    take(each, odata(101, b"cdef")._replace(fragment=wrong), odata(102))
    assert apdus(each) == [b"102"]
    assert each.counts.cut_short == 1


@pytest.mark.spec("SRM-2.1.3.1-17")
def test_an_apdu_over_64_kib_is_passed_over() -> None:
    each = receiver()
    for size, delivered in ((65_536, 1), (65_537, 0)):
        first = 100 if delivered else 200
        for place, offset in enumerate(range(0, size, 1000)):
            piece = odata(first + place, bytes(min(1000, size - offset)), trail=100)
            take(each, piece._replace(fragment=Fragment(first, offset, size)))
        assert len(apdus(each)) == delivered
        take(each, *[odata(sequence) for sequence in range(first + 66, 200)])
        each.take_events()
    assert each.counts.cut_short == 1


@pytest.mark.spec("SRM-2.1.3.1-12")
def test_the_first_nak_waits_10_to_50_ms() -> None:
    assert DEFAULTS.nak_rb_ivl_s == (0.010, 0.050)
    for chance, wait in ((0.0, 0.010), (0.5, 0.030), (1.0, 0.050)):
        each = receiver(chances=[chance])
        take(each, spm(0, 99), odata(101))
        naks = run(each, 0.2)
        assert times(naks) == pytest.approx([wait])
        assert naks[0][1] == Nak(Kind.NAK, TSI, PORT, (100,), ADDRESS, GROUP)


def test_no_nak_before_the_first_path_message() -> None:
    each = receiver()
    take(each, odata(100), odata(102))
    assert each.deadline == DEFAULTS.source_silence_s
    assert each.poll(5.0) == []
    take(each, spm(0, 102), now=5.0)
    assert [nak.sequences for _, nak in run(each, 5.1, 5.0)] == [(101,)]


@pytest.mark.spec("SRM-2.1.3.1-07", "SRM-2.1.3.1-09")
def test_without_confirmation_a_nak_is_repeated_ten_times() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101))
    naks = run(each, 60)
    assert times(naks) == pytest.approx([0.03 + place * 0.78 for place in range(11)])  # 0.75 s and the back-off
    assert each.take_events() == [Lost(next(iter(each.sessions.values())), 1), *_apdu(each, b"101")]


def _apdu(each: Receiver, data: bytes) -> list[Apdu]:
    return [Apdu(next(iter(each.sessions.values())), data)]


@pytest.mark.spec("SRM-2.1.3.1-08", "SRM-2.1.3.1-10")
def test_confirmed_but_without_data_a_nak_is_repeated_ten_times() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101))
    naks: Naks = []
    for _ in range(20):
        found = run(each, naks[-1][0] + 2.5 if naks else 0.1, naks[-1][0] if naks else 0.0)
        if not found:
            break
        naks += found
        assert len(found) == 1
        take(each, ncf(100), now=found[0][0])
    assert times(naks) == pytest.approx([0.03 + place * 2.03 for place in range(11)])  # 2 s and the back-off
    assert each.counts.unconfirmed == 1


def test_data_ends_the_naks() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101))
    assert len(run(each, 0.1)) == 1
    take(each, rdata(100), now=0.1)
    assert apdus(each) == [b"100", b"101"]
    assert run(each, 60, 0.1) == []
    assert (each.counts.repaired, each.counts.lost, each.counts.naks) == (1, 0, 1)


def test_a_confirmation_or_the_nak_of_another_suppresses_ours() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101))
    take(each, ncf(100), now=0.005)
    assert times(run(each, 2.5)) == pytest.approx([0.005 + 2 + 0.03])
    each = receiver()
    take(each, spm(0, 99), odata(101))
    take(each, ncf(100)._replace(kind=Kind.NAK), now=0.005, address="10.9.0.77")
    assert times(run(each, 1)) == pytest.approx([0.005 + 0.75 + 0.03])
    for stranger in (
        ncf(100)._replace(group="239.9.9.9"),
        ncf(100)._replace(tsi=Tsi(GSI, 1)),
        ncf(100)._replace(port=1),
    ):
        each = receiver()
        take(each, spm(0, 99), odata(101), stranger)
        assert times(run(each, 0.1)) == pytest.approx([0.03])


def test_naks_are_put_together() -> None:
    each = receiver(chances=[0.1, 0.9, 0.2, 0.8, 0.3])
    take(each, spm(0, 97, trail=98), odata(99, trail=98), rdata(98, trail=98), odata(200, trail=98))
    naks = run(each, 0.1)
    assert [len(nak.sequences) for _, nak in naks] == [63, 37]
    assert [sequence for _, nak in naks for sequence in nak.sequences] == list(range(100, 200))


def test_a_path_message_reveals_missing_data() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(100), spm(1, 102))
    assert [nak.sequences for _, nak in run(each, 0.1)] == [(101, 102)]


def test_an_older_path_message_is_ignored() -> None:
    each = receiver()
    take(each, spm(5, 99), odata(101), spm(4, 99, nla="10.9.0.66"), spm(5, 200))
    naks = run(each, 0.1)  # to the address of the newer one
    assert [nak.sequences for _, nak in naks] == [(100,)]


def test_naks_go_to_no_group() -> None:
    each = receiver()
    take(each, spm(0, 99, nla="239.1.1.1"), spm(1, 99, nla="0.0.0.0"), odata(101))
    assert each.poll(1.0) == []


def test_what_the_window_has_passed_is_lost() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(100), odata(102), odata(103), odata(105))
    assert apdus(each) == [b"100"]
    take(each, spm(1, 106, trail=104))
    session = next(iter(each.sessions.values()))
    assert each.take_events() == [Lost(session, 1), Apdu(session, b"102"), Apdu(session, b"103")]
    assert [nak.sequences for _, nak in run(each, 0.1)] == [(104, 106)]
    take(each, spm(2, 999, trail=1000), odata(1000, trail=1000))
    assert each.take_events() == [
        Lost(session, 1),
        Apdu(session, b"105"),
        Lost(session, 1000 - 106),
        Apdu(session, b"1000"),
    ]
    assert run(each, 60) == []
    assert each.counts.unconfirmed == 896


def test_a_gap_cuts_the_apdu_in_hand_short() -> None:
    each = receiver()
    take(each, odata(100, b"ab")._replace(fragment=Fragment(100, 0, 6)))
    take(each, odata(102, b"ef")._replace(fragment=Fragment(100, 4, 6)), odata(103), spm(0, 103, trail=103))
    assert apdus(each) == [b"103"]
    assert (each.counts.cut_short, each.counts.unconfirmed) == (1, 1)


@pytest.mark.spec("SRM-6-08")
def test_fin_ends_the_session_once_all_is_delivered() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101), spm(1, 101)._replace(fin=True))
    session = next(iter(each.sessions.values()))
    assert not session.ended
    take(each, rdata(100))
    assert apdus(each) == [b"100", b"101"]
    assert session.ended
    take(each, odata(102), rdata(100), spm(2, 102))  # repairs for others, and what should not come
    assert each.take_events() == []
    assert run(each, 60) == []


@pytest.mark.spec("SRM-6-09")
def test_rst_ends_the_session_without_recovery() -> None:
    for last in (spm(1, 102)._replace(rst=True), odata(103)._replace(rst=True)):
        each = receiver()
        take(each, spm(0, 99), odata(101), odata(102))
        run(each, 0.05)
        take(each, last, now=0.05)
        assert apdus(each) == []
        assert each.counts.unconfirmed >= 1
        take(each, rdata(100), now=0.06)
        assert apdus(each) == []
        assert run(each, 100, 0.06) == []


def test_numbers_go_over_the_end() -> None:
    each = receiver()
    start = 0xFFFFFFFE
    take(each, spm(0, after(start, -1), trail=start))
    take(each, *[odata(after(start, step), bytes([step]), trail=start) for step in (3, 1, 0, 2)])
    assert apdus(each) == [b"\0", b"\1", b"\2", b"\3"]


@pytest.mark.spec("SRM-2.1.2-03")
def test_other_ports_are_ignored() -> None:
    each = receiver()
    take(each, odata(100)._replace(port=8002), spm(0, 99)._replace(port=8002))
    assert not each.sessions


# Strangers


def test_sources_are_bounded_and_a_proved_one_stays() -> None:
    each = receiver(replace(DEFAULTS, sources=4))
    take(each, spm(0, 99), odata(100))
    confirm(each)
    for number in range(50):
        take(each, spm(0, 99, tsi=Tsi(GSI, number)), address="10.9.0.66", now=1.0)
    assert len(each.sessions) == 4
    assert (TSI, ADDRESS) in each.sessions
    for number in range(50):
        take(each, odata(1, trail=1, tsi=Tsi(GSI, number)), address="10.9.0.66", now=2.0)
    assert (TSI, ADDRESS) in each.sessions
    assert each.counts.sources_refused == 0
    confirm(each)
    for number in range(50, 97):
        take(each, odata(1, trail=1, tsi=Tsi(GSI, number)), address="10.9.0.66", now=2.0)
    assert len(each.sessions) == 4
    assert (TSI, ADDRESS) in each.sessions
    assert each.counts.sources_refused == 47
    take(each, spm(0, 99, tsi=Tsi(GSI, 77)), address="10.9.0.66", now=100.0)  # the others are silent for long
    assert (TSI, ADDRESS) in each.sessions  # the one with most gives up its own
    assert (Tsi(GSI, 77), "10.9.0.66") in each.sessions


def test_a_silent_source_is_forgotten() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(101))
    run(each, 299.9)
    assert each.sessions
    run(each, 300)
    assert not each.sessions
    assert each.deadline is None


def test_one_tsi_at_two_addresses_is_two_sources() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(100))
    take(each, spm(900, 5000, trail=5000), odata(5001, trail=5000), address="10.9.0.66")
    take(each, odata(101))
    assert apdus(each) == [b"100", b"5001", b"101"]


def test_bytes_of_one_source_are_bounded() -> None:
    each = receiver(replace(DEFAULTS, source_bytes=16_000))
    take(each, spm(0, 99))
    take(each, *[odata(sequence, b"x" * 1000) for sequence in range(101, 120)])
    session = next(iter(each.sessions.values()))
    assert session.held_bytes <= 16_000
    assert len(apdus(each)) >= 9
    assert each.counts.unconfirmed == 1
    take(each, odata(100), odata(120, b"x" * 1000))
    assert apdus(each)[-1] == b"x" * 1000


def test_bytes_of_all_sources_are_bounded() -> None:
    each = receiver(replace(DEFAULTS, all_bytes=16_000))
    for number in range(5):
        tsi = Tsi(GSI, number)
        take(each, spm(0, 99, tsi=tsi))
        take(each, *[odata(sequence, b"x" * 1000, tsi=tsi) for sequence in range(101, 105)])
    assert sum(session.held_bytes for session in each.sessions.values()) <= 16_000
    assert each.counts.unconfirmed == 3


def test_small_packets_count_by_the_memory_that_they_take() -> None:
    each = receiver(replace(DEFAULTS, source_bytes=100_000))
    take(each, spm(0, 99))
    tracemalloc.start()
    take(each, *[decoded(odata(sequence, b"")) for sequence in range(101, 261)])
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    session = next(iter(each.sessions.values()))
    assert 0.7 * taken < session.held_bytes < 2 * taken
    take(each, *[odata(sequence, b"") for sequence in range(261, 1000)])
    assert session.held_bytes <= 100_000


def test_a_full_source_frees_a_quarter_at_once() -> None:
    """Only every second packet comes, so each gap that is given up frees a single packet."""
    each = receiver(replace(DEFAULTS, source_bytes=600_000))
    take(each, spm(0, 99), *[odata(sequence, b"") for sequence in range(101, 2101, 2)])
    session = next(iter(each.sessions.values()))
    assert session.held_bytes == 600_000
    take(each, odata(2101, b""))
    assert 440_000 < session.held_bytes < 455_000
    assert 250 <= each.counts.unconfirmed <= 260


def test_sources_that_may_be_forged_give_up_before_others() -> None:
    each = receiver(replace(DEFAULTS, all_bytes=20_000))
    take(each, spm(0, 99), *[odata(sequence, b"x" * 1000) for sequence in range(101, 110)])
    confirm(each)
    for number in range(5):
        tsi = Tsi(GSI, number)
        take(each, spm(0, 99, tsi=tsi), *[odata(sequence, b"x" * 1000, tsi=tsi) for sequence in range(101, 105)])
    assert each.counts.lost == 0
    assert each.counts.unconfirmed
    take(each, rdata(100))
    assert len([apdu for apdu in apdus(each) if apdu == b"100"]) == 1


def test_what_a_source_claims_is_lost_only_once_it_is_confirmed() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(100), spm(1, 1999, trail=2000))
    assert (each.counts.lost, each.counts.unconfirmed) == (0, 1899)
    confirm(each)
    assert (each.counts.lost, each.counts.unconfirmed) == (1899, 0)
    confirm(each)
    take(each, spm(2, 2000, trail=2001))
    assert (each.counts.lost, each.counts.unconfirmed) == (1900, 0)


def test_a_lead_far_ahead_costs_little() -> None:
    each = receiver()
    take(each, spm(0, 99), spm(1, 99 + 60_000))
    assert [len(nak.sequences) for _, nak in run(each, 0.1)] == [63]  # of a source that has answered nothing yet
    take(each, *[rdata(sequence) for sequence in range(100, 163)], now=0.1)
    assert sum(len(nak.sequences) for _, nak in run(each, 0.2, 0.1)) == DEFAULTS.missing
    take(each, spm(2, 99 + 2_000_000), odata(100 + 2_000_000))
    assert next(iter(each.sessions.values())).held_bytes == 0


def test_a_source_that_answers_nothing_is_not_asked_for_long() -> None:
    each = receiver()
    take(each, spm(0, 99), spm(1, 99 + 60_000))
    assert len(run(each, 200)) == 11
    assert each.counts.unconfirmed == 60_000


def test_data_that_contradicts_itself_is_ignored() -> None:
    each = receiver()
    take(each, spm(0, 99), odata(100, trail=200), spm(1, 99, trail=300))
    assert each.take_events() == []
    take(each, odata(100))
    assert apdus(each) == [b"100"]
