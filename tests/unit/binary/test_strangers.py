"""Whom to believe: a claim to an acknowledgment, a GUID or a sequence proves nothing, [MS-MQQB] 3.1.5.6 and 3.1.5.7."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings
from postroad.message import Message
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TransactionHeader, TxSequenceId
from postroad.wire.view import MessageView
from tests.unit.binary.network import ACKS, DEADXACT, JOURNAL, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

JOURNALED = Message(b"body", label="a", journal=True, dead_letter=True)
FINAL_CLASSES = [MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_PURGED]


def sent(station: Station, name: str) -> MessageView:
    (record,) = station.queue(name).everything()
    return MessageView(record.packet)


def place(view: MessageView) -> TransactionHeader:
    header = view.transaction_header
    assert header is not None
    return header


# Ordering acknowledgments


@pytest.mark.parametrize("by", ["direct", "private"])
@pytest.mark.parametrize("claims", [False, True])
def test_an_order_ack_of_a_stranger_releases_nothing(
    network: Network, alpha: Station, beta: Station, stranger: Stranger, by: str, claims: bool
) -> None:
    there = beta.direct(LEDGER) if by == "direct" else beta.private(LEDGER)
    alpha.send(beta.direct(ORDERS) if by == "direct" else beta.private(ORDERS), "opens the session")
    network.hold(beta, alpha)
    alpha.send_transactional(there, "a")
    if claims:
        stranger.identifier = beta.identifier
    session = stranger.call(alpha)
    stranger.send(session, stranger.order_ack(alpha, 1, place(sent(alpha, there)).sequence_id))
    network.wait(1)
    assert alpha.waiting(there) == ["a"]
    assert (alpha.service.sender.refused_acks, session.closed) == (1, False)
    network.release()
    network.wait(1)
    assert alpha.waiting(there) == []


@pytest.mark.parametrize("by", ["direct", "private"])
@pytest.mark.parametrize("claims", [False, True])
@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("final_class", FINAL_CLASSES)
def test_a_final_ack_of_a_stranger_settles_nothing(
    network: Network,
    alpha: Station,
    beta: Station,
    stranger: Stranger,
    by: str,
    claims: bool,
    arrived: bool,
    final_class: int,
) -> None:
    there = beta.direct(LEDGER) if by == "direct" else beta.private(LEDGER)
    alpha.send(beta.direct(ORDERS) if by == "direct" else beta.private(ORDERS), "opens the session")
    if not arrived:
        network.hold(beta, alpha)
    alpha.send_transactional(there, JOURNALED)
    network.wait(1)
    waits = AWAITING_FINAL_ACK if arrived else there
    if claims:
        stranger.identifier = beta.identifier
    session = stranger.call(alpha)
    stranger.send(session, stranger.final_ack(alpha, sent(alpha, waits), final_class))
    assert (alpha.waiting(waits), alpha.labels(JOURNAL), alpha.labels(DEADXACT)) == (["a"], [], [])
    assert (alpha.service.sender.refused_acks, session.closed) == (1, False)
    network.release()
    network.wait(1)
    beta.receive(LEDGER)
    assert (alpha.waiting(AWAITING_FINAL_ACK), alpha.labels(JOURNAL)) == ([], ["a"])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_final_ack_of_a_stranger_settles_nothing_after_a_restart(
    network: Network, alpha: Station, beta: Station, stranger: Stranger, restarted: bool
) -> None:
    there = beta.direct(LEDGER)
    network.refused.add(beta.address)
    alpha.send_transactional(there, JOURNALED)
    if restarted:
        alpha.restart()
    stranger.send(stranger.call(alpha), stranger.final_ack(alpha, sent(alpha, there), MessageClass.ACK_RECEIVE))
    assert (alpha.waiting(there), alpha.labels(JOURNAL)) == (["a"], [])


def test_an_order_ack_beyond_what_was_sent_is_ignored(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a")
    (session,) = stranger.sessions
    for number in (2, 1000, 0xFFFFFFFF):
        stranger.send(session, stranger.order_ack(alpha, number))
    network.wait(1)
    assert alpha.waiting(there) == ["a"]
    stranger.send(session, stranger.order_ack(alpha, 1))
    network.wait(1)
    assert alpha.waiting(there) == []
    alpha.send_transactional(there, "b")
    assert (stranger.place.sequence_number, stranger.place.previous_sequence_number) == (1, 0)


@pytest.mark.parametrize("wrong", ["number", "sequence", "message", "source"])
@pytest.mark.parametrize("arrived", [False, True])
def test_a_final_ack_is_of_the_message_that_it_describes(
    network: Network, alpha: Station, stranger: Stranger, wrong: str, arrived: bool
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, JOURNALED)
    (session,) = stranger.sessions
    if arrived:
        stranger.send(session, stranger.order_ack(alpha, 1))
        network.wait(1)
    view = stranger.messages[-1]
    header = place(view)
    odd = {
        "number": (header.sequence_id, 2, view.message_id),
        "sequence": (TxSequenceId(header.sequence_id.ordinal + 1, header.sequence_id.time_stamp), 1, view.message_id),
        "message": (header.sequence_id, 1, view.message_id + 1),
        "source": (header.sequence_id, 1, view.message_id),
    }[wrong]
    composed = MessageView(
        stranger.compose(there, "x", (odd[0], odd[1], odd[1] - 1), message_id=odd[2], source=alpha.identifier)
    )
    source = stranger.identifier if wrong == "source" else alpha.identifier
    stranger.send(session, stranger.final_ack(alpha, composed, MessageClass.ACK_RECEIVE, source))
    waits = AWAITING_FINAL_ACK if arrived else there
    assert (alpha.waiting(waits), alpha.labels(JOURNAL)) == (["a"], [])
    stranger.send(session, stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE))
    assert (alpha.waiting(waits), alpha.labels(JOURNAL)) == ([], ["a"])


@pytest.mark.parametrize("dialled_before", [True, False])
def test_the_addresses_of_a_host_name_are_known_after_a_restart(
    network: Network, alpha: Station, beta: Station, dialled_before: bool
) -> None:
    """The acknowledgment comes by a call of the destination's own, from the address that our call had found."""
    network.listed = False
    network.names["beta"] = beta.address
    there = f"DIRECT=OS:beta\\{LEDGER}"
    alpha.send_transactional(there, JOURNALED)
    network.wait(1)
    assert alpha.waiting(AWAITING_FINAL_ACK) == ["a"]
    alpha.restart()
    if not dialled_before:
        alpha.service.neighbours._reached.clear()
    beta.receive(LEDGER)
    network.wait(5)
    assert alpha.labels(JOURNAL) == (["a"] if dialled_before else [])


# Sessions


def test_a_caller_that_claims_anothers_guid_gets_none_of_its_messages(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.private(ORDERS), "a")
    stranger.identifier = beta.identifier
    stranger.call(alpha)
    alpha.send(beta.private(ORDERS), "b")
    network.wait(5)
    assert stranger.messages == []
    network.refused.clear()
    network.wait(2)
    assert beta.labels(ORDERS) == ["a", "b"]


def test_a_direct_name_uses_a_callers_session_by_its_address(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    network.refused.add(stranger.address)
    alpha.send(stranger.direct(ORDERS), "a")
    assert stranger.messages == []
    stranger.call(alpha)
    network.wait(2)
    assert [view.label for view in stranger.messages] == ["a"]


# Without a directory


ASKING = Message(b"body", label="a", recoverable=True, ack="full", admin_queue=ACKS)


@pytest.mark.parametrize("who", ["nobody", "sender", "receiver", "both"])
def test_without_a_directory_everybody_is_answered_after_restarts_too(
    network: Network, alpha: Station, beta: Station, who: str
) -> None:
    network.listed = False
    alpha.send(beta.direct(ORDERS), ASKING)
    alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
    network.wait(1)
    for station, names in ((alpha, ("sender", "both")), (beta, ("receiver", "both"))):
        if who in names:
            station.restart()
    beta.receive(ORDERS)
    beta.receive(LEDGER)
    network.wait(5)
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    assert (alpha.labels(JOURNAL), alpha.waiting(AWAITING_FINAL_ACK)) == (["a"], [])


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_who_claims_the_guid_of_a_live_manager_gets_nothing_of_it(
    network: Network, alpha: Station, beta: Station, stranger: Stranger, restarted: bool, down: bool
) -> None:
    """Beta answers alpha by its GUID alone. `down` means that no session of alpha is open when the stranger calls."""
    network.listed = False
    alpha.send(beta.direct(ORDERS), ASKING)
    alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
    network.wait(1)
    if restarted:
        beta.restart()
    if down:
        network.cut(alpha, beta)
    stranger.identifier = alpha.identifier
    for number in (1, 2, 3):
        session = stranger.call(beta)
        place = (TxSequenceId(0xFFFFFFF0, 0xFFFFFFF0), number, number - 1)
        for packet in (stranger.compose(beta.direct(ORDERS), "x"), stranger.compose(beta.direct(LEDGER), "x", place)):
            if not session.closed:
                stranger.send(session, packet)
        network.wait(2)
    assert beta.service.receiver.claims
    beta.receive(ORDERS)
    beta.receive(LEDGER)
    network.wait(5)
    assert stranger.taken == []
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    assert alpha.labels(JOURNAL) == ["a"]
    alpha.send_transactional(beta.direct(LEDGER), "b")
    network.wait(40)
    assert beta.labels(LEDGER) == ["b"]


def test_a_manager_that_has_moved_is_believed_when_nobody_is_at_its_old_address(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    network.listed = False
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(1)
    alpha.stop()
    stranger.identifier = alpha.identifier  # it is alpha, at another address
    stranger.next_id = 100
    packet = stranger.compose(beta.direct(ORDERS), "b")
    session = stranger.call(beta)
    stranger.send(session, packet)
    assert session.closed
    assert stranger.acknowledged == []
    network.wait(2)
    session = stranger.call(beta)
    stranger.send(session, packet)
    assert (beta.labels(ORDERS), session.closed) == (["a", "b"], False)


@pytest.mark.parametrize("full", [False, True])
def test_a_manager_that_has_no_room_for_our_question_is_there(
    network: Network, alpha: Station, stranger: Stranger, full: bool
) -> None:
    network.listed = False
    beta = network.station("beta", 2)
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(1)
    network.cut(alpha, beta)
    if full:
        alpha.service.settings = BinarySettings(max_sessions=0)
    stranger.identifier = alpha.identifier
    for number in range(100, 105):
        session = stranger.call(beta)
        stranger.send(session, stranger.compose(beta.direct(ORDERS), "x", message_id=number))
        assert session.closed
        network.wait(2)
    assert beta.labels(ORDERS) == ["a"]


def test_what_a_stranger_passes_on_moves_no_sequence(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    network.listed = False
    place = (TxSequenceId(0xFFFFFFF0, 0xFFFFFFF0), 1, 0)
    forged = stranger.compose(beta.direct(LEDGER), "x", place, source=alpha.identifier)
    session = stranger.call(beta)
    stranger.send(session, forged)
    assert (beta.labels(LEDGER), session.closed, list(beta.service.receiver.incoming)) == ([], False, [])
    ((event, facts),) = beta.suspicions  # its owner hears that it is put off, and what to do if it should not be
    assert event.startswith("transactional message put off")
    assert (facts["manager"], facts["from"]) == (str(alpha.identifier), stranger.address)
    assert "add the router to the directory" in str(facts["advice"])
    alpha.send_transactional(beta.direct(LEDGER), "a")
    assert beta.labels(LEDGER) == ["a"]


def test_the_log_says_why_a_peer_that_sends_what_cannot_be_read_was_cut_off(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    network.listed = False
    session = stranger.call(beta)
    broken = bytearray(stranger.compose(beta.direct(ORDERS), "x"))
    broken[4] ^= 0xFF  # BaseHeader.Signature
    session.output.append(bytes(broken))
    stranger.flush(session)
    network.run()
    assert beta.labels(ORDERS) == []
    ((event, facts),) = beta.suspicions
    assert event == "session closed: a packet cannot be read"
    assert (facts["peer"], facts["manager"]) == (stranger.address, str(stranger.identifier))
    assert "at byte 4: signature must be" in str(facts["reason"])
    network.cut(beta, stranger)
    assert len(beta.suspicions) == 1  # a session that ends as it may is none


def test_nobody_else_sends_in_our_name(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(ORDERS), "x", source=beta.identifier))
    assert (beta.labels(ORDERS), session.closed) == ([], True)


@pytest.mark.parametrize("claims", [False, True])
def test_a_manager_of_the_directory_speaks_from_its_own_address_alone_from_the_first_message_on(
    network: Network, alpha: Station, beta: Station, stranger: Stranger, claims: bool
) -> None:
    """The stranger comes first, and knows the ids and the sequence that alpha's messages will have."""
    following = alpha.core.counters.next_message_id() + 1
    if claims:
        stranger.identifier = alpha.identifier
    for place in (None, (TxSequenceId(0xFFFFFFF0, 0xFFFFFFF0), 1, 0)):
        session = stranger.call(beta)
        name = beta.direct(ORDERS if place is None else LEDGER)
        stranger.send(session, stranger.compose(name, "x", place, message_id=following, source=alpha.identifier))
        assert session.closed
    alpha.send(beta.direct(ORDERS), "a")
    alpha.send_transactional(beta.direct(LEDGER), "b")
    network.wait(2)
    assert (beta.labels(ORDERS), beta.labels(LEDGER)) == (["a"], ["b"])


def test_a_message_that_a_stranger_passes_on_makes_no_other_a_duplicate(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    """Nobody knows yet where alpha is, so the stranger's message is accepted, once. Alpha's own is a different one."""
    network.listed = False
    following = alpha.core.counters.next_message_id() + 1
    forged = stranger.compose(beta.direct(ORDERS), "x", message_id=following, source=alpha.identifier)
    session = stranger.call(beta)
    stranger.send(session, forged)
    stranger.send(session, forged)
    alpha.send(beta.direct(ORDERS), "a")
    network.wait(2)
    assert beta.labels(ORDERS) == ["x", "a"]


def test_an_order_ack_of_what_left_before_a_restart_counts(network: Network, alpha: Station, beta: Station) -> None:
    """The last message was sent and has expired since. Only beta knows of it, and will mention it for ever."""
    there = beta.direct(LEDGER)
    alpha.send(beta.direct(ORDERS), "opens the session")
    network.hold(beta, alpha)
    alpha.send_transactional(there, "a")
    alpha.send_transactional(there, Message(b"body", label="b", time_to_reach_queue=5))
    network.cut(alpha, beta)
    alpha.stop()
    network.release()
    network.wait(10)
    alpha.restart()
    network.wait(100)
    assert (beta.labels(LEDGER), alpha.waiting(there)) == (["a", "b"], [])
