"""Peers by AMQP that send what the standard forbids, too much of it, or nothing: each gets the right error, what it
held goes back, nothing is logged as a bug, and others go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from postroad.amqp.codec import described, listed, text, uint
from postroad.amqp.engine import EngineSettings
from postroad.amqp.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    SASL_HEADER,
    STATE_ACCEPTED,
    TRANSFER,
    frame,
)
from tests.amqp_door import ORDERS, AmqpDoor, amqp_door
from tests.amqp_peer import (
    LOGIN,
    RawPeer,
    attach_receiver,
    attach_sender,
    begin,
    data,
    detach,
    disposition,
    flow,
    opening,
    source,
    target,
    transfer,
)

SETTINGS = EngineSettings("alpha", frame_size=8192, sessions=4, links=8, idle_s=60.0)


@pytest.fixture(name="door")
def _door(caplog: pytest.LogCaptureFixture) -> Iterator[AmqpDoor]:
    with amqp_door(settings=SETTINGS) as door:
        yield door
        door.send(b"after")
        with RawPeer(door.dial()) as honest:  # the door still works
            honest.write(attach_receiver(source(ORDERS)) + flow(1))
            honest.until(TRANSFER)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def nested(depth: int) -> bytes:
    value = b"\x40"
    for _ in range(depth):
        value = listed(value)
    return value


@pytest.mark.parametrize(
    ("sent", "condition"),
    [
        (b"\0\0\0\x04\2\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\0\2\0\0\0", "amqp:connection:framing-error"),
        (b"\xff\xff\xff\xff\2\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\x20\x01\2\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x08\1\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x08\x03\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x09\2\0\0\0\x01", "amqp:decode-error"),
        (b"\0\0\0\x0b\2\0\0\0\0\x53\x10", "amqp:decode-error"),
        (frame(0, b"\0\x53\x99\x45"), "amqp:illegal-state"),
        (frame(0, described(OPEN, listed(text("again")))), "amqp:illegal-state"),
        (frame(7, described(FLOW, listed())), "amqp:illegal-state"),
        (frame(0, described(BEGIN, listed(uint(1)))), "amqp:decode-error"),
        (frame(0, described(ATTACH, listed(text("x"), text("y"), text("z")))), "amqp:decode-error"),
        (frame(0, described(FLOW, b"\xc0\xff\x01\x40")), "amqp:decode-error"),
        (frame(0, described(FLOW, b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff")), "amqp:decode-error"),
        (frame(0, described(ATTACH, listed(b"\xa1\x02\xff\xff"))), "amqp:decode-error"),
        (frame(0, described(ATTACH, listed(nested(20)))), "amqp:decode-error"),
        (frame(0, b"\0" * 4000), "amqp:decode-error"),
        (frame(0, described(FLOW, listed(b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40"))), "amqp:decode-error"),
        (frame(0, described(CLOSE, b"\x45") + b"more"), "amqp:decode-error"),
        (frame(0, described(OPEN, listed(text("x"))), 1), "amqp:connection:framing-error"),
        (begin(0), "amqp:illegal-state"),
        (begin(4), "amqp:connection:framing-error"),
        (attach_sender(target(ORDERS), handle=8), "amqp:connection:framing-error"),
    ],
)
def test_bytes_that_no_peer_may_send_end_the_connection(door: AmqpDoor, sent: bytes, condition: str) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(sent)
        assert peer.closed_with() == condition


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\xa5\1\0\0\xa1", b"AMQP\2\1\0\0", b"AMQP\0\0\x09\x01", b"X"]
)
def test_another_protocol_gets_the_header_of_ours(door: AmqpDoor, sent: bytes) -> None:
    with door.dial() as connection:
        connection.sendall(sent)
        assert connection.recv(100) == SASL_HEADER
        assert connection.recv(100) == b""


@pytest.mark.parametrize("size", [1, 7, 8, 9, 40])
def test_bytes_may_come_in_any_pieces(door: AmqpDoor, size: int) -> None:
    whole = (
        LOGIN + opening() + begin() + attach_sender(target(ORDERS)) + transfer(data(b"cut")) + transfer(data(b"2"), 1)
    )
    with RawPeer(door.dial(), login=False) as peer:
        for start in range(0, len(whole), size):
            peer.write(whole[start : start + size])
        while peer.until(DISPOSITION)[2] != 1 and door.count() < 2:
            pass
    assert door.bodies() == [b"cut", b"2"]


def test_faults_of_a_session_end_the_session_alone(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        for sent, condition in (
            (flow(1, handle=5), "amqp:session:unattached-handle"),
            (transfer(data(b"x"), handle=5), "amqp:session:unattached-handle"),
            (attach_receiver(source(ORDERS)) + transfer(data(b"x")), "amqp:session:errant-link"),
            (attach_sender(target(ORDERS)) + attach_sender(target(ORDERS), name="b"), "amqp:session:handle-in-use"),
        ):
            peer.write(sent)
            assert peer.until(END)[0].value[0] == condition
            peer.write(frame(0, described(END, b"\x45")) + begin())
            peer.until(BEGIN)


def test_a_message_without_credit_detaches_the_link(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(attach_sender(target(ORDERS)))
        credit = peer.until(FLOW)[6]
        peer.write(b"".join(transfer(data(b"x"), number, settled=True) for number in range(credit + 1)))
        assert peer.until(DETACH)[2].value[0] == "amqp:link:transfer-limit-exceeded"
    assert door.count() == credit


def test_links_beyond_the_limit_are_refused(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(begin(1))
        for handle in range(8):
            peer.write(attach_sender(target(ORDERS), handle=handle, name=f"link {handle}"))
            assert peer.until(ATTACH)[6] is not None
        peer.write(attach_sender(target(ORDERS), handle=0, name="one more", channel=1))
        assert peer.until(DETACH)[2].value[0] == "amqp:resource-limit-exceeded"


def test_ten_thousand_attaches_leave_nothing(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        attach = attach_receiver(source("private$/none")) + detach()
        for _ in range(100):
            peer.write(attach * 100)
        peer.write(attach_sender(target(ORDERS), name="last"))
        while peer.until(ATTACH)[0] != "last":
            pass
        peer.write(detach())
        peer.until(DETACH)
        [guest] = door.listener.service.guests
        assert guest.engine.links == []


def test_the_parts_of_a_message_count_as_unfinished_input(door: AmqpDoor) -> None:
    limits = door.manager.limits
    with RawPeer(door.dial()) as peer:
        peer.write(attach_sender(target(ORDERS)) + transfer(b"x" * 4000, more=True))
        peer.until(FLOW)
        peer.write(transfer(b"y" * 4000, more=True, first=False) + flow(0))
        while limits.unfinished_input.current < 8000:
            time.sleep(0.01)
    while limits.unfinished_input.current:
        time.sleep(0.01)


def test_a_message_that_never_ends_is_not_kept(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(attach_sender(target(ORDERS)) + transfer(b"x" * 8000, more=True))
        part = transfer(b"y" * 8000, more=True, first=False)
        for _ in range(900):  # 7 MB
            peer.write(part)
        peer.write(transfer(b"z", first=False))
        assert peer.until(DISPOSITION)[4].value[0].value[0] == "amqp:link:message-size-exceeded"
        assert door.manager.limits.unfinished_input.current < 10_000
    assert door.count() == 0


def test_an_aborted_message_is_as_if_it_was_never_sent(door: AmqpDoor) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(attach_sender(target(ORDERS)) + transfer(data(b"x"), more=True))
        peer.write(transfer(b"", first=False, aborted=True) + transfer(data(b"whole"), 1))
        assert peer.until(DISPOSITION)[1] == 1
    assert door.bodies() == [b"whole"]


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"\0", b"\0\x53\x75", b"\0\x53\x75\xa0\xff", b"\0\x53\x75\xb0\xff\xff\xff\xff", b"\0\x53\x70\xc0\1"],
)
def test_a_message_that_is_none_is_rejected_and_the_link_stays(door: AmqpDoor, payload: bytes) -> None:
    with RawPeer(door.dial()) as peer:
        peer.write(attach_sender(target(ORDERS)) + transfer(payload) + transfer(data(b"good"), 1))
        first = peer.until(DISPOSITION)
        if payload:  # without sections it is an empty message
            assert (first[1], first[4].descriptor) == (0, 0x25)
            peer.until(DISPOSITION)
    assert door.bodies()[-1] == b"good"


def test_a_reader_that_reads_nothing_gets_little(door: AmqpDoor) -> None:
    """Its window is a million messages. What waits for it is bounded, and another reader gets the rest."""
    door.send(*(b"x" * 60_000 for _ in range(300)))
    with RawPeer(door.dial()) as slow:
        slow.write(attach_receiver(source(ORDERS)) + flow(1_000_000))
        slow.until(TRANSFER)
        [guest] = door.listener.service.guests
        before = -1
        while guest.engine.sent_messages != before:
            before = guest.engine.sent_messages
            time.sleep(0.2)
        assert before < 200
        with RawPeer(door.dial()) as quick:
            quick.write(attach_receiver(source(ORDERS)) + flow(1))
            quick.until(TRANSFER)
    while door.count() and len(door.messages()) < 300:
        time.sleep(0.05)


def test_a_connection_that_dies_gives_back_what_it_held(door: AmqpDoor) -> None:
    door.send(b"one", b"two")
    with RawPeer(door.dial()) as peer:
        peer.write(attach_receiver(source(ORDERS)) + flow(10))
        peer.until(TRANSFER)
        peer.until(TRANSFER)
        assert door.bodies() == []
    while len(door.bodies()) < 2:
        time.sleep(0.01)
    assert door.bodies() == [b"one", b"two"]
    assert [each.aborts for each in door.messages()] == [0, 0]


def test_a_half_open_connection_ends(caplog: pytest.LogCaptureFixture) -> None:
    with amqp_door(settings=EngineSettings("alpha", idle_s=1.0)) as door:
        door.send(b"one")
        with RawPeer(door.dial()) as peer:
            peer.write(attach_receiver(source(ORDERS)) + flow(10))
            peer.until(TRANSFER)
            assert peer.closed_with() == "amqp:resource-limit-exceeded"
        assert door.bodies() == [b"one"]


def test_heartbeats_come_to_a_peer_that_asks_for_them(door: AmqpDoor) -> None:
    with RawPeer(door.dial(), login=False) as peer:
        peer.write(LOGIN + opening(idle_ms=2000))
        peer.until(OPEN)
        assert peer.connection.recv(8) == b"\0\0\0\x08\2\0\0\0"


def test_nothing_happens_before_the_login(door: AmqpDoor) -> None:
    with door.dial() as connection:
        connection.sendall(SASL_HEADER + opening() + begin() + HEADER)
        while connection.recv(1000):
            pass


def test_a_peer_that_asks_without_end_and_reads_nothing_is_not_read(door: AmqpDoor) -> None:
    """Every flow with echo has an answer. Those that wait for the peer have a bound."""
    with RawPeer(door.dial()) as peer:
        peer.connection.settimeout(1.0)
        asking = frame(0, described(FLOW, listed(uint(0), uint(9), uint(0), uint(9), *[b"\x40"] * 5, b"\x41"))) * 5000
        with pytest.raises(TimeoutError):
            peer.write(asking * 400)  # 50 MB
        [connection] = door.listener.listener.connections
        assert connection.transport.get_write_buffer_size() < 6 << 20


def test_dispositions_of_nothing_end_the_session(door: AmqpDoor) -> None:
    door.send(*(b"x" for _ in range(2000)))
    with RawPeer(door.dial()) as peer:
        peer.write(attach_receiver(source(ORDERS)) + flow(2000))
        for _ in range(2000):
            peer.until(TRANSFER)
        nothing = disposition(100_000, 0x7FFFFFFF, STATE_ACCEPTED)
        peer.write(nothing * 5000)
        assert peer.until(END)[0].value[0] == "amqp:resource-limit-exceeded"
    while len(door.messages()) < 1000:
        time.sleep(0.01)
