"""Pings, [MS-MQQB] 2.1.2, 2.2.7 and 3.1.7.6 to 3.1.7.9: a question, an answer, a second to wait."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.binary.ping import PING_RESPONSE_S, Pinger, PingResult, answer, ping_cookies
from postroad.wire import Ping
from postroad.wire.internal import SessionAck, SessionHeader

INITIATOR = UUID("11111111-2222-3333-4444-555555555555")
ACCEPTOR = UUID("66666666-7777-8888-9999-aaaaaaaaaaaa")
NOW = 1000.0
RC, RF = 0x0001, 0x0002


def asked(pinger: Pinger, now: float = NOW) -> Ping:
    return Ping.decode(pinger.request(now))


def answered(request: Ping, *, refused: bool = False) -> bytes:
    response = answer(request.encode(), ACCEPTOR, refused=refused)
    assert response is not None
    return response


# Asking


@pytest.mark.spec("QB-2.2.7-04", "QB-2.2.7-07", "QB-2.2.7-15", "QB-3.1.7.6-02")
def test_a_server_asks_in_its_own_name_with_no_flag_set() -> None:
    request = asked(Pinger(INITIATOR))
    assert (request.queue_manager, request.flags) == (INITIATOR, 0)


@pytest.mark.spec("QB-2.2.7-03", "QB-2.2.7-07")
def test_any_other_computer_says_that_it_is_a_client() -> None:
    request = asked(Pinger(INITIATOR, server=False))
    assert request.flags & RC
    assert not request.flags & RF


@pytest.mark.spec("QB-2.2.7-12", "QB-3.1.1.3-13", "QB-3.1.3.2-21", "QB-3.1.7.6-01", "QB-6-14")
def test_cookies_count_from_1() -> None:
    pinger = Pinger(INITIATOR)
    assert pinger.ping_cookie == 0
    assert [asked(pinger).cookie for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.spec("QB-3.1.1.3-13", "QB-3.1.7.6-01")
def test_requests_of_one_computer_share_their_cookies() -> None:
    cookies = ping_cookies()
    one, other = Pinger(INITIATOR, cookies), Pinger(INITIATOR, cookies)
    assert [asked(each).cookie for each in (one, other, one, other)] == [1, 2, 3, 4]
    assert one.receive(answered(Ping(3, INITIATOR)), NOW) is not None
    assert other.receive(answered(Ping(4, INITIATOR)), NOW) is not None


@pytest.mark.spec("QB-2.2.7-12")
def test_cookies_have_32_bits() -> None:
    pinger = Pinger(INITIATOR, iter([0xFFFFFFFF, 0]))
    assert [asked(pinger).cookie for _ in range(2)] == [0xFFFFFFFF, 0]


# The answer


@pytest.mark.spec("QB-2.2.7-06", "QB-3.1.7.6-03")
@pytest.mark.parametrize("refused", [False, True])
def test_the_result_is_what_rf_says(refused: bool) -> None:
    pinger = Pinger(INITIATOR)
    response = answered(asked(pinger), refused=refused)
    assert bool(Ping.decode(response).flags & RF) is refused
    assert pinger.receive(response, NOW + 0.25) == PingResult(not refused, ACCEPTOR, 0.25)
    assert (pinger.deadline, pinger.on_timer(NOW + 10)) == (None, None)  # the timer was stopped


@pytest.mark.spec("QB-3.1.2.9-01", "QB-3.1.6.8-01")
def test_after_one_second_without_an_answer_the_ping_has_failed() -> None:
    pinger = Pinger(INITIATOR)
    asked(pinger)
    assert pinger.deadline == NOW + 1
    assert pinger.on_timer(NOW + 0.999) is None
    assert pinger.on_timer(NOW + 1) == PingResult(False, None, 1.0)


@pytest.mark.spec("QB-3.1.2.9-01")
def test_each_request_has_a_second_of_its_own() -> None:
    pinger = Pinger(INITIATOR)
    asked(pinger)
    asked(pinger, NOW + 0.75)
    assert pinger.on_timer(NOW + 1) is None
    assert pinger.deadline == NOW + 0.75 + PING_RESPONSE_S
    assert pinger.on_timer(NOW + 1.75) is not None


@pytest.mark.spec("QB-2.2.7-14")
def test_an_answer_to_an_older_request_counts_for_nothing() -> None:
    pinger = Pinger(INITIATOR)
    late = answered(asked(pinger))
    newest = asked(pinger)
    assert pinger.receive(late, NOW) is None
    assert pinger.ignored == "cookie 1 is not 2, which was asked with"
    assert pinger.receive(answered(newest), NOW) is not None


@pytest.mark.spec("QB-3.1.7.8-01")
def test_an_answer_counts_only_while_somebody_waits_for_it() -> None:
    pinger = Pinger(INITIATOR)
    response = answered(asked(pinger))
    pinger.on_timer(NOW + 1)
    assert pinger.receive(response, NOW + 1) is None
    again = answered(asked(pinger, NOW + 2))
    assert pinger.receive(again, NOW + 2) is not None
    assert pinger.receive(again, NOW + 2) is None  # nobody waits for a second one


@pytest.mark.spec("QB-2.2.7-11")
@pytest.mark.parametrize("garbage", [b"", b"x" * 24, b"pong", Ping(1, ACCEPTOR).encode() + b"\0"])
def test_packets_other_than_pings_count_for_nothing(garbage: bytes) -> None:
    pinger = Pinger(INITIATOR)
    request = asked(pinger)
    assert pinger.receive(garbage, NOW) is None
    assert pinger.ignored is not None
    assert pinger.receive(answered(request), NOW) is not None


# Answering


@pytest.mark.spec("QB-2.2.7-05", "QB-2.2.7-13", "QB-2.2.7-15", "QB-3.1.7.7-01")
@pytest.mark.parametrize("flags", [0, RC])
def test_an_answer_repeats_cookie_and_rc_and_says_who_answers(flags: int) -> None:
    response = Ping.decode(answered(Ping(0xC00C1E, INITIATOR, flags)))
    assert (response.cookie, response.flags, response.queue_manager) == (0xC00C1E, flags, ACCEPTOR)


@pytest.mark.spec("QB-2.2.7-11", "QB-3.1.5.1.1-06")
@pytest.mark.parametrize(
    "datagram",
    [b"", b"\0" * 24, Ping(1, INITIATOR).encode()[:23], SessionAck(SessionHeader(1, 0, 0, 1, 0, 64)).encode()],
    ids=["nothing", "no signature", "cut off", "a packet of a session"],
)
def test_nothing_else_is_answered(datagram: bytes) -> None:
    assert answer(datagram, ACCEPTOR, refused=False) is None
