"""Where a message went: everything that a manager has of it is found, put in order, and described in words."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import IllegalIdentifier
from postroad.manager import trace as manager_trace
from postroad.manager.outlook import Outlook
from postroad.manager.trace import Search
from postroad.message import Message
from postroad.names import MessageId
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.queue import PositionState
from postroad.reports.trace import Finding, Trace
from postroad.security.relay import RelayRule
from postroad.wire.constants import MessageClass
from tests.unit.binary.network import ACKS, DEADLETTER, LEDGER, ORDERS, Network, Station

REPORTS = UUID("0f0f0f0f-0000-0000-0000-000000000001")
NOWHERE = r"DIRECT=TCP:10.0.0.99\private$\q"


def trace(station: Station, message_id: str) -> Trace:
    found = Search(Outlook(station.core, station.network.now), message_id)
    for _ in found.pages():
        pass
    return found.trace()


def name(sender: Station, ordinal: int) -> str:
    return str(MessageId(sender.identifier, ordinal))


def story(station: Station, message_id: str) -> list[tuple[str, str]]:
    return [(each.kind, each.sentence) for each in trace(station, message_id).findings]


def kinds(station: Station, message_id: str) -> list[str]:
    return [each.kind for each in trace(station, message_id).findings]


def only(station: Station, message_id: str, kind: str) -> Finding:
    (found,) = [each for each in trace(station, message_id).findings if each.kind == kind]
    return found


def test_a_message_in_a_local_queue(alpha: Station) -> None:
    (ordinal,) = alpha.send(ORDERS, Message(b"", label="hello"))
    alpha.send(ORDERS, "another")
    assert story(alpha, name(alpha, ordinal)) == [
        ("sent", r"sent by alpha, this queue manager: 'hello', express, to DIRECT=OS:alpha\private$\orders"),
        ("queued", r"in private$\orders, not received yet"),
    ]
    queued = only(alpha, name(alpha, ordinal), "queued")
    record = alpha.records(ORDERS)[0]
    assert (queued.queue, queued.lookup_id, queued.at) == (ORDERS, record.lookup_id, "2023-11-14T22:13:20.000000Z")
    alpha.queue(ORDERS).positions[record.lookup_id] = PositionState.LOCKED
    assert only(alpha, name(alpha, ordinal), "queued").sentence.endswith("held by a reader or a transaction")


def test_a_message_that_left_and_was_not_kept_is_not_found(alpha: Station) -> None:
    (ordinal,) = alpha.send(ORDERS, Message(b""))
    alpha.receive(ORDERS)
    found = trace(alpha, name(alpha, ordinal))
    assert (found.findings, found.cut_off) == ((), ())
    (ordinal,) = alpha.send(ORDERS, "recoverable")
    alpha.commits = False
    alpha.receive(ORDERS)
    assert only(alpha, name(alpha, ordinal), "queued").sentence == r"in private$\orders, about to leave it"
    alpha.commit()
    assert kinds(alpha, name(alpha, ordinal)) == []


def test_journal_and_dead_letter(network: Network, alpha: Station) -> None:
    alpha.create(r"private$\kept", journal=True)
    (ordinal,) = alpha.send(r"private$\kept", "a")
    network.wait(1)
    alpha.receive(r"private$\kept")
    assert story(alpha, name(alpha, ordinal))[1:] == [
        ("journal", r"received from private$\kept: a copy is in its journal")
    ]
    (ordinal,) = alpha.send(ORDERS, Message(b"", dead_letter=True, time_to_be_received=2))
    network.wait(5)
    dead = only(alpha, name(alpha, ordinal), "dead-letter")
    assert dead.sentence == "died: it was not received in time; a copy is in ;deadletter"
    assert (dead.queue, dead.class_name) == (DEADLETTER, "nack-receive-timeout")


def test_a_dead_letter_in_the_queue_that_it_names(network: Network, alpha: Station) -> None:
    alpha.create(r"private$\dead")
    (ordinal,) = alpha.send(ORDERS, Message(b"", dead_letter_queue=r"private$\dead", time_to_be_received=2))
    network.wait(5)
    dead = only(alpha, name(alpha, ordinal), "dead-letter")
    assert dead.sentence == r"died: it was not received in time; a copy is in private$\dead"


def test_a_message_that_waits_to_leave_says_why(network: Network, alpha: Station) -> None:
    (ordinal,) = alpha.send(NOWHERE, "a")
    outgoing = only(alpha, name(alpha, ordinal), "outgoing")
    assert outgoing.sentence == rf"in the outgoing queue to {NOWHERE}, not sent"
    assert outgoing.why == "cannot connect to 10.0.0.99; next try in 1.0 s"


def test_a_message_in_flight(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "first")
    network.wait(1)
    network.hold(beta, alpha)
    (ordinal,) = alpha.send(there, "a")
    network.wait(2)
    assert only(alpha, name(alpha, ordinal), "outgoing").sentence == (
        f"in the outgoing queue to {there}, sent 2.0 s ago; the next hop has not acknowledged it"
    )


def test_both_ends_of_a_transactional_message(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    (ordinal,) = alpha.send_transactional(there, Message(b"", journal=True))
    assert only(alpha, name(alpha, ordinal), "outgoing").why is not None
    network.wait(0.4)
    assert only(alpha, name(alpha, ordinal), "outgoing").sentence.startswith(f"in the outgoing queue to {there}, sent")
    network.wait(2)
    assert kinds(alpha, name(alpha, ordinal)) == ["sent", "awaiting-final-ack"]
    assert story(beta, name(alpha, ordinal)) == [
        ("sent", f"sent by {alpha.identifier}: transactional, to {there}"),
        ("queued", r"in private$\ledger, not received yet"),
    ]
    network.hold(beta, alpha)
    beta.receive(LEDGER)
    assert story(beta, name(alpha, ordinal)) == [
        ("acknowledgment", "it was received; the final acknowledgment is on its way to its source")
    ]
    network.release()
    network.wait(1)
    assert kinds(alpha, name(alpha, ordinal)) == ["sent", "journal"]


def test_acknowledgments_show_how_a_message_ended(network: Network, alpha: Station, beta: Station) -> None:
    message = Message(b"", recoverable=True, ack="reach-queue,receive", admin_queue=alpha.direct(ACKS))
    (ordinal,) = alpha.send(beta.direct(ORDERS), message)
    network.wait(1)
    beta.receive(ORDERS)
    network.wait(1)
    found = trace(alpha, name(alpha, ordinal)).findings
    first, second = found
    assert first.sentence == f"acknowledged by {beta.identifier}: it reached its queue"
    assert second.sentence == f"acknowledged by {beta.identifier}: it was received"
    assert (first.class_name, second.class_name, first.queue) == ("ack-reach-queue", "ack-receive", ACKS)
    assert first.manager == str(beta.identifier)


def test_an_acknowledgment_that_cannot_leave_is_found_where_it_waits(
    network: Network, alpha: Station, beta: Station
) -> None:
    beta.use(relay=(RelayRule.parse("10.0.0.98"),))
    message = Message(b"", recoverable=True, ack="reach-queue", admin_queue=r"DIRECT=TCP:10.0.0.98\private$\acks")
    (ordinal,) = alpha.send(beta.direct(ORDERS), message)
    network.wait(1)
    assert only(beta, name(alpha, ordinal), "acknowledgment").sentence == (
        "acknowledged by beta, this queue manager: it reached its queue; "
        r"on its way in the outgoing queue to DIRECT=TCP:10.0.0.98\private$\acks"
    )


def test_an_answer_is_not_an_acknowledgment(alpha: Station) -> None:
    (ordinal,) = alpha.send(ORDERS, "question")
    (answer,) = alpha.send(ACKS, Message(b"", correlation_id=name(alpha, ordinal)))
    assert only(alpha, name(alpha, ordinal), "answer").sentence == (
        f"answered by alpha, this queue manager with message {answer}"
    )
    assert kinds(alpha, name(alpha, answer)) == ["sent", "queued"]


def test_a_message_that_only_passed_is_remembered(network: Network, alpha: Station, beta: Station) -> None:
    (ordinal,) = alpha.send(beta.direct(ORDERS), "a")
    network.wait(1)
    beta.receive(ORDERS)
    assert story(beta, name(alpha, ordinal)) == [("passed", "came in by a session from another queue manager")]


def test_reports_of_every_manager_on_the_way(network: Network, alpha: Station, beta: Station, gamma: Station) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    network.public[REPORTS] = alpha
    alpha.create(r"alpha\reports", identifier=REPORTS)
    target = gamma.private(ORDERS)
    (ordinal,) = alpha.send(target, Message(b"", recoverable=True, trace=REPORTS))
    alpha.send(target, Message(b"", recoverable=True, trace=REPORTS))
    network.wait(70)
    reports = [finding for finding in trace(alpha, name(alpha, ordinal)).findings if finding.kind == "report"]
    assert {(each.manager, each.sentence.partition(" by ")[0]) for each in reports} == {
        (str(alpha.identifier), f"reported as sent on to {beta.address}"),
        (str(beta.identifier), "reported as come in"),
        (str(beta.identifier), f"reported as sent on to {gamma.address}"),
        (str(gamma.identifier), "reported as come in"),
    }
    assert all(each.sentence.endswith(f"bound for {target}") for each in reports)
    assert reports[-1].sentence.startswith(f"reported as come in by {gamma.identifier}, after 1 hop, ")


def test_what_only_looks_like_a_final_acknowledgment_is_passed_over(alpha: Station) -> None:
    (ordinal,) = alpha.send(ORDERS, Message(b""))
    identifier = MessageId(alpha.identifier, ordinal).to_bytes()
    disguised = Message(identifier, label="QM Ordering Ack", message_class=MessageClass.ACK_RECEIVE)
    alpha.send(r"DIRECT=TCP:10.0.0.99\PRIVATE$\order_queue$", disguised)
    alpha.send(ACKS, Message(identifier))
    assert kinds(alpha, name(alpha, ordinal)) == ["sent", "queued"]


def test_of_a_long_queue_both_ends_are_looked_at(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_trace, "LOOK_LIMIT", 6)
    ordinals = alpha.send(ORDERS, *(Message(b"") for _ in range(10)))
    found = trace(alpha, name(alpha, ordinals[0]))
    assert (found.limit_per_queue, found.looked_at, found.cut_off) == (6, 6, (ORDERS,))
    seen = [bool(trace(alpha, name(alpha, ordinal)).findings) for ordinal in ordinals]
    assert seen == [True] * 3 + [False] * 4 + [True] * 3


def test_others_have_their_turn_between_two_pages(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_trace, "PAGE", 4)
    first, *_ = alpha.send(ORDERS, *(Message(b"") for _ in range(10)))
    found = Search(Outlook(alpha.core, alpha.network.now), name(alpha, first))
    assert list(found.pages()) == [4, 8]
    assert found.looked_at == 10


def test_what_is_found_nowhere_is_looked_for_once_more(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have moved to a queue that was already searched."""
    monkeypatch.setattr(manager_trace, "PAGE", 4)
    *_, last = alpha.send(ACKS, *(Message(b"") for _ in range(4)))
    found = Search(Outlook(alpha.core, alpha.network.now), name(alpha, last + 1))
    pages = found.pages()
    assert next(pages) == 4
    alpha.send(ORDERS, Message(b""))  # the fifth message, in the queue before
    assert list(pages) == [4]
    assert ([each.kind for each in found.trace().findings], found.looked_at) == (["sent", "queued"], 5)


def test_an_id_may_be_written_without_braces(alpha: Station) -> None:
    (ordinal,) = alpha.send(ORDERS, Message(b""))
    assert kinds(alpha, f"{alpha.identifier}\\{ordinal}") == ["sent", "queued"]
    with pytest.raises(IllegalIdentifier):
        trace(alpha, "hello")


# The managers on its way, and what is known of it at each


def states(station: Station, message_id: str) -> list[tuple[str, str]]:
    found = trace(station, message_id)
    known = [hop.state for hop in found.hops if hop.state != "unknown"]
    assert found.state == (known[-1] if known else "unknown")
    return [(hop.name, hop.state) for hop in found.hops]


def test_a_local_message_arrives_and_is_received_or_dies(network: Network, alpha: Station) -> None:
    alpha.core.watch(Watcher(removed=alpha.core.departures.removed))
    (ordinal,) = alpha.send(ORDERS, "a")
    assert states(alpha, name(alpha, ordinal)) == [("alpha", "arrived")]
    alpha.receive(ORDERS)
    assert states(alpha, name(alpha, ordinal)) == [("alpha", "received")]
    (ordinal,) = alpha.send(ORDERS, Message(b"", dead_letter=True, time_to_be_received=2))
    network.wait(5)
    assert states(alpha, name(alpha, ordinal)) == [("alpha", "died")]
    assert trace(alpha, name(alpha, ordinal)).reason == "nack-receive-timeout"
    alpha.receive(DEADLETTER)
    assert states(alpha, name(alpha, ordinal)) == [("alpha", "died")]  # whoever reads a dead letter does not revive it


def test_a_session_acknowledgment_only_says_that_the_next_manager_has_it(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    for station in (alpha, beta):
        station.core.watch(Watcher(removed=station.core.departures.removed))
    network.routes[alpha, gamma.identifier] = [beta]
    gamma.stop()
    message = Message(b"", recoverable=True, time_to_reach_queue=20)
    (ordinal,) = alpha.send(gamma.private(ORDERS), message)
    identifier = name(alpha, ordinal)
    network.wait(1)
    assert states(alpha, identifier) == [
        ("alpha", "handed over"),
        (beta.address, "unknown"),
        (str(gamma.identifier), "unknown"),
    ]
    assert states(beta, identifier) == [
        (str(alpha.identifier), "handed over"),
        ("beta", "waiting"),
        (str(gamma.identifier), "unknown"),
    ]
    hop = trace(alpha, identifier).hops[1]
    assert (hop.manager, hop.address) == (str(beta.identifier), beta.address)
    network.wait(30)
    assert trace(alpha, identifier).state == "handed over"
    assert states(beta, identifier) == [
        (str(alpha.identifier), "handed over"),
        ("beta", "died"),
        (str(gamma.identifier), "unknown"),
    ]
    assert trace(beta, identifier).reason == "nack-reach-queue-timeout"


def test_acknowledgments_say_what_became_of_it_elsewhere(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    there = gamma.private(ORDERS)
    message = Message(b"", recoverable=True, time_to_reach_queue=20, ack="full", admin_queue=alpha.direct(ACKS))
    (ordinal,) = alpha.send(there, message)
    network.wait(70)
    identifier = name(alpha, ordinal)
    assert [state for _, state in states(alpha, identifier)] == ["handed over", "handed over", "arrived"]
    gamma.receive(ORDERS)
    network.wait(1)
    assert [state for _, state in states(alpha, identifier)] == ["handed over", "handed over", "received"]
    gamma.stop()
    (ordinal,) = alpha.send(there, message)
    network.wait(70)
    identifier = name(alpha, ordinal)
    assert [state for _, state in states(alpha, identifier)] == ["handed over", "died", "unknown"]
    assert trace(alpha, identifier).reason == "nack-reach-queue-timeout"


def test_a_message_that_its_destination_refuses_has_not_arrived(
    network: Network, alpha: Station, beta: Station
) -> None:
    (ordinal,) = alpha.send(beta.direct(r"private$\mistyped"), Message(b"", recoverable=True))
    network.wait(1)
    assert states(alpha, name(alpha, ordinal)) == [("alpha", "handed over"), (beta.address, "unknown")]


def test_an_order_acknowledgment_says_that_it_arrived(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    (kept,) = alpha.send_transactional(there, Message(b"", journal=True))
    (plain,) = alpha.send_transactional(there, "x")
    (refused,) = alpha.send_transactional(beta.direct(ORDERS), "x")
    assert states(alpha, name(alpha, kept)) == [("alpha", "waiting"), (beta.address, "unknown")]
    network.wait(5)
    for ordinal in (kept, plain):
        assert states(alpha, name(alpha, ordinal)) == [("alpha", "handed over"), (beta.address, "arrived")]
    assert states(alpha, name(alpha, refused)) == [("alpha", "handed over"), (beta.address, "died")]
    assert trace(alpha, name(alpha, refused)).reason == "nack-not-transactional-q"
    beta.receive(LEDGER, 2)
    network.wait(5)
    assert states(alpha, name(alpha, kept)) == [("alpha", "handed over"), (beta.address, "received")]


def test_a_message_that_was_put_aside_has_not_arrived(alpha: Station) -> None:
    (ordinal,) = alpha.send(NOWHERE, "a")
    identifier = name(alpha, ordinal)
    assert states(alpha, identifier) == [("alpha", "waiting"), ("10.0.0.99", "unknown")]
    alpha.create(r"private$\parked")
    record = next(alpha.queue(NOWHERE).everything())
    alpha.core.delivery.add(alpha.queue(r"private$\parked"), record.packet, 3, 0, alpha.network.now)
    alpha.core.delivery.discard(alpha.queue(NOWHERE), record)
    alpha.commit()
    assert states(alpha, identifier) == [("alpha", "waiting"), ("10.0.0.99", "unknown")]


def test_trace_reports_show_every_manager(network: Network, alpha: Station, beta: Station, gamma: Station) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    network.public[REPORTS] = alpha
    alpha.create(r"alpha\reports", identifier=REPORTS)
    (ordinal,) = alpha.send(gamma.private(ORDERS), Message(b"", recoverable=True, trace=REPORTS))
    network.wait(70)
    assert [state for _, state in states(alpha, name(alpha, ordinal))] == ["handed over", "handed over", "arrived"]
