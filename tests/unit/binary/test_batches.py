"""Messages that a session sends together: counted, acknowledged and given back like single ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.binary.session import SentMessages
from postroad.errors import LocalProtocolError
from postroad.message import Message
from postroad.wire.internal import SessionHeader
from tests.unit.binary.link import EXPRESS, RECOVERABLE, START, accepted, ack
from tests.unit.binary.network import LEDGER, ORDERS, Network, Station

ACK_S = 0.5  # RecoverableAckTimeout of a link without delay


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=8), st.booleans())
def test_a_run_is_written_like_its_messages(runs: list[tuple[bool, int]], piggy_back: bool) -> None:
    together, one_by_one = accepted(), accepted()
    for session in (together, one_by_one):
        if piggy_back:
            session.receive_data(EXPRESS, START)
            session.events()
        number = 0
        for recoverable, count in runs:
            packets = [RECOVERABLE if recoverable else EXPRESS] * count
            tokens = range(number, number + count)
            number += count
            if session is together:
                session.send_all(packets, tokens, START + 9.0, recoverable=recoverable)
            else:
                for packet, token in zip(packets, tokens, strict=True):
                    session.send(packet, token, START + 9.0, recoverable=recoverable)
    assert together.sent.in_flight == one_by_one.sent.in_flight == list(range(sum(count for _, count in runs)))
    assert together.deadline == one_by_one.deadline
    assert together.data_to_send() == one_by_one.data_to_send()
    header = ack(3, 1, 0b101, sent=int(piggy_back))
    for session in (together, one_by_one):
        session.receive_data(header, START + 10.0)
    assert together.events() == one_by_one.events()
    assert together.sent.in_flight == one_by_one.sent.in_flight


def test_a_run_that_is_wider_than_the_window_is_refused() -> None:
    session = accepted(window=2)
    with pytest.raises(LocalProtocolError):
        session.send_all([EXPRESS] * 3, [1, 2, 3], START, recoverable=False)
    assert (session.sent.count, session.sent.in_flight, session.data_to_send()) == (0, [], b"")
    session.send_all([EXPRESS] * 2, [1, 2], START, recoverable=False)
    assert session.free == 0


@given(st.integers(0, 40), st.integers(0, (1 << 32) - 1))
def test_acknowledged_are_those_up_to_the_number_and_those_that_the_bits_name(number: int, flags: int) -> None:
    sent = SentMessages()
    sent.add(range(1, 41), recoverable=True)
    named = {number + bit for bit in range(32) if flags >> bit & 1}
    expected = [each for each in range(1, 41) if each <= number or each in named] if number or flags else []
    assert sent.acknowledge(SessionHeader(0, number, flags)) == expected
    rest = [each for each in range(1, 41) if each not in expected]
    assert sent.in_flight == rest
    assert sent.acknowledge(SessionHeader(0, 40, 1)) == rest


def test_acknowledgments_that_come_together_are_one_event() -> None:
    session = accepted()
    session.send_all([RECOVERABLE] * 4, [1, 2, 3, 4], START, recoverable=True)
    session.receive_data(ack(2, 1, 0b11) + ack(4, 3, 0b11), START)
    assert [event.tokens for event in session.events()] == [(1, 2, 3, 4)]  # type: ignore[union-attr]


@pytest.mark.parametrize("arrived", [0, 1])
def test_a_session_that_ends_within_a_window_gives_all_of_it_back_in_order(
    network: Network, alpha: Station, beta: Station, arrived: int
) -> None:
    there, ledger = beta.direct(ORDERS), beta.direct(LEDGER)
    wanted = [str(number) for number in range(100)]
    alpha.send(there, "first")
    network.wait(ACK_S)
    network.hold(*((beta, alpha) if arrived else (alpha, beta)))
    alpha.send(there, *(Message(b"", label=each, recoverable=int(each) % 3 > 0) for each in wanted))
    alpha.send_transactional(ledger, *wanted)
    assert 0 < len(alpha.queue(there).positions) < 100  # a window of them
    network.cut(alpha, beta)
    assert not alpha.queue(there).positions
    network.release()
    network.wait(60)
    express, recoverable = wanted[::3], [each for each in wanted if int(each) % 3]
    found = beta.labels(ORDERS)
    assert [each for each in found if each not in express] == ["first", *recoverable]
    assert list(dict.fromkeys(each for each in found if each in express)) == express  # some may come twice
    assert beta.labels(LEDGER) == wanted
    assert (alpha.waiting(there), alpha.waiting(ledger)) == ([], [])
