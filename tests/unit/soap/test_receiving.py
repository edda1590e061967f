"""Requests of others, [MC-MQSRM] 3.1.5.1: what is accepted, what is ignored, and how each is answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from postroad.message import Message
from postroad.security.refusals import Reason
from postroad.security.relay import ANY_HOST, RelayRule
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.elements import (
    Attachments,
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    Envelope,
    Services,
    StreamId,
    StreamReceipt,
)
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.packets import MessageType, identify
from postroad.soap.receiver import Incoming
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from tests.unit.soap.network import (
    ACKS,
    DEADLETTER,
    LEDGER,
    ORDERS,
    STRANGER,
    Network,
    Station,
    stranger_message,
    stream_message,
)

URL = "http://10.0.0.2/msmq/private$/orders"
TX_URL = "http://10.0.0.2/msmq/private$/ledger"
STREAM_RECEIPT = StreamReceipt(StreamId(STRANGER, TxSequenceId(1, 1)), 1)
ID = f"uuid:1@{STRANGER}"


def durable(envelope: Envelope) -> Envelope:
    return replace(envelope, services=Services(durable=True))


@pytest.mark.spec("SRM-3.1.5.1.12-05", "SRM-3.1.5.1.1-03")
def test_a_message_is_put_into_its_queue_with_the_time_it_came(network: Network, beta: Station) -> None:
    network.now += 1000
    assert beta.ask(stranger_message(URL, label="hello"), Attachments(b"text", b"more")) == 200
    (record,) = beta.records(ORDERS)
    (view,) = beta.messages(ORDERS)
    assert (view.label, view.body, view.extension, view.arrived_by_http) == ("hello", b"text", b"more", True)
    assert record.arrived_ms == int(network.now * 1000)


@pytest.mark.spec("SRM-3.1.5.1.12-01", "SRM-3.1.5.1.12-02", "SRM-3.1.5.1.12-04")
@pytest.mark.parametrize(
    ("who", "taken"), [("WD", True), ("AU", False), ("BA", False), ("S-1-5-21-1-2-3-1001", False), (None, True)]
)
def test_a_sender_by_http_is_everyone_to_the_access_list_of_a_queue(
    network: Network, beta: Station, who: str | None, taken: bool
) -> None:
    queue = beta.core.queues.get(ORDERS)
    beta.core.change_queue(queue, network.now, acl=None if who is None else f"O:BAD:(A;;0x4;;;{who})")
    beta.ask(stranger_message(URL, label="note"))
    assert beta.labels(ORDERS) == (["note"] if taken else [])


@pytest.mark.parametrize(
    "url",
    [
        "http://beta/msmq/private$/orders",
        "http://BETA/MSMQ/Private$/Orders",
        "http://10.0.0.2/msmq/private$/orders",
        "http://10.0.0.2:8080/msmq/private$/orders",
        "http://localhost/msmq/private$/orders",
        "https://beta/msmq/private$/orders",
        "http://beta/msmq\\private$\\orders",
    ],
)
def test_the_hosts_that_mean_this_manager(beta: Station, url: str) -> None:
    assert beta.ask(stranger_message(url)) == 200
    assert beta.labels(ORDERS) == ["note"]


def test_an_address_that_a_request_came_to_is_ours_whatever_we_listen_on(beta: Station) -> None:
    kind, pieces = join_entity(
        write_envelope(stranger_message("http://192.168.7.7/msmq/private$/orders")), Attachments(), STRANGER, 1
    )
    body = b"".join(pieces)
    assert beta.service.received(Incoming(kind, body, "10.0.0.9"), beta.network.now).status == 400
    assert beta.service.received(Incoming(kind, body, "10.0.0.9", "192.168.7.7"), beta.network.now).status == 200


@pytest.mark.spec("SRM-3.1.5.1.2-01", "SRM-3.1.5.1.2-02")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/xml", b""),
        ("text/xml", b"<se:Envelope"),
        ("text/xml", b"<a/>"),
        ("text/xml", b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'),
        ("application/json", b"{}"),
        ("", b"x"),
        ("multipart/related; boundary=x", b"no boundary at all"),
    ],
)
def test_what_is_malformed_is_answered_400_and_changes_nothing(
    network: Network, beta: Station, content_type: str, body: bytes
) -> None:
    before = [(queue.properties.path, queue.count) for queue in beta.core.queues]
    assert beta.ask_raw(content_type, body) == 400
    assert not beta.core.tick
    assert [(queue.properties.path, queue.count) for queue in beta.core.queues] == before
    network.wait(5)
    assert network.exchanges == []


@pytest.mark.spec("SRM-3.1.5.1.2-01")
def test_a_malformed_stream_message_does_not_move_its_stream(network: Network, beta: Station) -> None:
    beta.ask(stream_message(TX_URL, 1))
    broken = stream_message(TX_URL, 2)
    assert beta.ask(replace(broken, path=replace(broken.path, id="uuid:x@y"))) == 400
    assert beta.ask(stream_message(TX_URL, 2, label="good")) == 200
    assert beta.labels(LEDGER) == ["1.1", "good"]


@pytest.mark.spec("SRM-3.1.5.1.3-08", "SRM-3.1.5.1.3-11")
@pytest.mark.parametrize("queue", ["nothing", "private$/nothing", "private$/orders;journal", "system$;deadletter"])
def test_a_queue_that_is_not_there_is_answered_400(beta: Station, queue: str) -> None:
    assert beta.ask(stranger_message(f"http://beta/msmq/{queue}")) == 400


@pytest.mark.parametrize("queue", ["admin_queue$", "order_queue$", "notify_queue$", "final_ack_queue$"])
def test_the_managers_own_queues_are_nobodys(beta: Station, queue: str) -> None:
    assert beta.ask(stranger_message(f"http://beta/msmq/private$/{queue}")) == 400
    assert beta.queue(rf"private$\{queue}").count == 0


@pytest.mark.spec("SRM-3.1.5.1.3-09", "SRM-3.1.5.1.3-10", "SRM-3.1.5.1.3-11", "SRM-1.3.6-01")
def test_each_kind_of_queue_takes_its_kind_of_message(beta: Station) -> None:
    assert beta.ask(stream_message(URL, 1)) == 400
    assert beta.ask(stranger_message(TX_URL, 2)) == 400
    assert beta.ask(durable(stranger_message(TX_URL, 3))) == 400
    assert beta.ask(stranger_message(URL, 4)) == 200
    assert beta.ask(durable(stranger_message(URL, 5))) == 200
    assert beta.ask(stream_message(TX_URL, 1, number=6)) == 200
    assert [view.message_id for view in beta.messages(ORDERS)] == [4, 5]
    assert [view.message_id for view in beta.messages(LEDGER)] == [6]


@pytest.mark.spec("SRM-3.1.5.1.3-02", "SRM-3.1.1.1.7-01", "SRM-3.1.5.1.3-11")
def test_a_message_for_another_host_is_answered_400(network: Network, alpha: Station, beta: Station) -> None:
    assert beta.ask(stranger_message(alpha.url(ORDERS))) == 400
    assert network.exchanges == []


@pytest.mark.spec("SRM-3.1.5.1.3-01", "SRM-3.1.5.1.3-11")
def test_a_multicast_address_that_nobody_here_is_subscribed_to_is_answered_400(beta: Station) -> None:
    assert beta.ask(stranger_message("MSMQ:MULTICAST=234.1.1.1:8001")) == 400


@pytest.mark.spec("SRM-3.1.5.1.3-03", "SRM-1.3.8-01", "SRM-3.1.1.1.7-02", "SRM-3.1.1.1.10.1-01", "SRM-3.1.1.1.7-01")
def test_a_store_and_forward_server_passes_messages_on_and_sends_no_receipts(network: Network) -> None:
    """Alpha reaches gamma through the gate. Receipts come only from gamma, and directly."""
    outbound = Redirections(outbound=(Redirection("http://10.0.0.3/*", "http://gate/"),))
    alpha = network.station("alpha", 1, redirections=outbound)
    gate = network.station("gate", 2, redirections=Redirections(store_and_forward=True))
    gamma = network.station("gamma", 3)
    gate.restart()
    gate.use(relay=(RelayRule.parse(gamma.address),))
    network.peers |= {alpha.name, alpha.address}
    ask = Message(b"x", label="one", recoverable=True, ack="full", admin_queue=alpha.direct(ACKS))
    alpha.send(gamma.direct(ORDERS), ask)
    alpha.send_transactional(gamma.direct(LEDGER), "a", Message(b"y", label="b", dead_letter=True))
    network.wait(2)
    gamma.receive(ORDERS)
    gamma.receive(LEDGER, 2)
    network.wait(2)
    assert {each.address.host for each in network.posts("alpha")} == {"gate"}
    assert {each.address.host for each in network.posts("gate")} == {gamma.address}
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    assert {view.source_queue_manager for view in alpha.messages(ACKS)} == {gamma.identifier}
    assert alpha.waiting(gamma.direct(LEDGER)) == []
    assert len(network.stream_receipts("gamma")) == 1
    assert len(network.final_receipts("gamma")) == 1
    for before, after in zip(network.posts("alpha"), network.posts("gate"), strict=True):
        assert after.envelope == before.envelope
        assert after.attachments == before.attachments


def test_a_stream_message_that_comes_again_is_passed_on_again(network: Network) -> None:
    gate = network.station("gate", 2, redirections=Redirections(store_and_forward=True))
    gate.use(relay=(RelayRule.parse("10.0.0.3"),))
    network.answers["10.0.0.3"] = 200
    message = stream_message("http://10.0.0.3/msmq/private$/q", 1)
    plain = durable(stranger_message("http://10.0.0.3/msmq/private$/p", 50))
    for envelope in (message, message, plain, plain):
        assert gate.ask(envelope) == 200
    assert [each.label for each in network.posts("gate")] == ["1.1", "1.1", "note"]


@pytest.mark.spec("SRM-3.1.5.1.3-04")
def test_what_cannot_be_passed_on_is_answered_400(network: Network) -> None:
    gate = network.station("gate", 2, redirections=Redirections(store_and_forward=True))
    assert gate.ask(stranger_message("http://gamma/msmq/private$/q;journal")) == 400
    assert network.exchanges == []


@pytest.mark.spec("SRM-3.1.5.1.3-05", "SRM-3.1.1.1.10.2-01", "SRM-3.1.1.1.10-02")
def test_an_inbound_redirection_leads_to_another_queue_here(network: Network) -> None:
    there = Redirection("http://beta/msmq/private$/old*", "http://beta/msmq/private$/orders")
    beta = network.station("beta", 2, redirections=Redirections(inbound=(there,)))
    beta.restart()
    assert beta.ask(stranger_message("http://beta/msmq/private$/oldest")) == 200
    assert beta.labels(ORDERS) == ["note"]


@pytest.mark.spec("SRM-3.1.5.1.3-06")
def test_an_inbound_redirection_to_another_host_needs_no_store_and_forward(network: Network, alpha: Station) -> None:
    away = Redirection("http://beta/msmq/private$/moved", alpha.url(ORDERS))
    beta = network.station("beta", 2, redirections=Redirections(inbound=(away,)))
    assert beta.ask(durable(stranger_message("http://beta/msmq/private$/moved"))) == 200
    assert alpha.labels(ORDERS) == ["note"]
    (post,) = network.posts("beta")
    assert post.envelope.path.to == alpha.url(ORDERS)


@pytest.mark.spec("SRM-3.1.5.1.3-07")
def test_a_message_for_another_host_is_not_redirected(network: Network) -> None:
    trap = Redirection("http://gamma/*", "http://beta/msmq/private$/orders")
    beta = network.station("beta", 2, redirections=Redirections(inbound=(trap,)))
    assert beta.ask(stranger_message("http://gamma/msmq/private$/orders")) == 400
    assert beta.labels(ORDERS) == []


# Types, 3.1.5.1.5


def typed(message_class: int, action: str = "MSMQ:x", **blocks: Any) -> Envelope:
    envelope = stranger_message(URL, message_class=message_class)
    envelope = replace(envelope, path=replace(envelope.path, action=action))
    return replace(envelope, **blocks)


DELIVERY: dict[str, Any] = {"delivery_receipt": DeliveryReceipt(1, ID)}
STREAM: dict[str, Any] = {"stream_receipt": STREAM_RECEIPT}
YES: dict[str, Any] = {"commitment_receipt": CommitmentReceipt(1, Decision.POSITIVE, ID)}
NO: dict[str, Any] = {"commitment_receipt": CommitmentReceipt(1, Decision.NEGATIVE, ID)}
ORDERING = "MSMQ:QM Ordering Ack"


@pytest.mark.spec(
    "SRM-3.1.5.1.5-01",
    "SRM-3.1.5.1.5-02",
    "SRM-3.1.5.1.5-03",
    "SRM-3.1.5.1.5-04",
    "SRM-3.1.5.1.5-05",
    "SRM-3.1.5.1.5-06",
)
@pytest.mark.parametrize(
    ("envelope", "kind"),
    [
        (typed(0), MessageType.USER),
        (replace(typed(0), msmq=None), MessageType.USER),
        (typed(1), None),
        (typed(0, **DELIVERY), None),
        (typed(0, **STREAM), None),
        (typed(0, **YES), None),
        (typed(2, **DELIVERY), MessageType.DELIVERY_RECEIPT),
        (typed(2), None),
        (typed(2, **DELIVERY, **YES), None),
        (typed(255, ORDERING, **STREAM), MessageType.STREAM_RECEIPT),
        (typed(255, "MSMQ:other", **STREAM), None),
        (typed(254, ORDERING, **STREAM), None),
        (typed(255, ORDERING, **STREAM, **DELIVERY), None),
        (typed(16384, ORDERING, **STREAM, **YES), MessageType.FINAL_STREAM_RECEIPT),
        (typed(16384, "MSMQ:other", **STREAM, **YES), None),
        (typed(16384, ORDERING, **STREAM, **NO), None),
        *[(typed(each, ORDERING, **STREAM, **NO), MessageType.FINAL_STREAM_RECEIPT) for each in (32769, 49152)],
        *[(typed(each, ORDERING, **STREAM, **NO), MessageType.FINAL_STREAM_RECEIPT) for each in (49153, 49154)],
        (typed(49156, ORDERING, **STREAM, **NO), None),
        (typed(49153, ORDERING, **STREAM, **YES), None),
        (typed(16384, **YES), MessageType.COMMITMENT_RECEIPT),
        (typed(16384, **NO), None),
        *[(typed(each, **NO), MessageType.COMMITMENT_RECEIPT) for each in (32769, 49152, 49153, 49154)],
        *[(typed(each, **YES), None) for each in (32769, 49152, 49153, 49154)],
        (typed(49156, **NO), None),
    ],
)
def test_the_type_of_a_message(envelope: Envelope, kind: MessageType | None) -> None:
    assert identify(envelope) is kind


@pytest.mark.spec("SRM-3.1.5.1.5-07")
def test_a_message_of_no_type_is_ignored(beta: Station) -> None:
    for envelope in (typed(1), typed(0, **DELIVERY), typed(255, **STREAM)):
        assert beta.ask(envelope) == 200
    assert beta.labels(ORDERS) == []


@pytest.mark.spec("SRM-3.1.5.1.7-01", "SRM-3.1.5.1.10-01", "SRM-3.1.1.3.4-03", "SRM-3.1.1.3.1-02")
@pytest.mark.parametrize("envelope", [typed(2, **DELIVERY), typed(16384, **YES), typed(49153, **NO)])
def test_a_receipt_of_an_unknown_message_is_put_into_its_queue_once(beta: Station, envelope: Envelope) -> None:
    for _ in range(2):
        assert beta.ask(envelope, Attachments()) == 200
    assert envelope.msmq is not None
    assert beta.classes(ORDERS) == [envelope.msmq.message_class]


# Duplicates, 3.1.5.1.11


@pytest.mark.spec("SRM-3.1.1.1.5-04", "SRM-3.1.5.1.11-02")
def test_a_known_id_is_not_taken_again_whatever_is_in_the_message(beta: Station) -> None:
    assert beta.ask(stranger_message(URL, 7, label="first")) == 200
    assert beta.ask(stranger_message(URL, 7, label="second")) == 200
    assert beta.ask(stranger_message(URL, 7, label="of another", source=UUID(int=5))) == 200
    assert beta.labels(ORDERS) == ["first", "of another"]


@pytest.mark.spec("SRM-3.1.1.1.5-05", "SRM-3.1.3.1-01")
def test_ids_are_remembered_over_a_restart(beta: Station) -> None:
    assert len(beta.service.receiver.history) == 0
    beta.ask(durable(stranger_message(URL, 7)))
    beta.restart()
    assert beta.ask(durable(stranger_message(URL, 7))) == 200
    assert beta.labels(ORDERS) == ["note"]


@pytest.mark.spec("SRM-3.1.5.1.11-01", "SRM-6-17")
def test_messages_without_an_msmq_element_are_never_duplicates(beta: Station) -> None:
    envelope = replace(stranger_message(URL), msmq=None)
    for _ in range(2):
        assert beta.ask(envelope) == 200
    assert [(view.priority, view.message_class) for view in beta.messages(ORDERS)] == [(3, 0), (3, 0)]
    assert {view.source_queue_manager for view in beta.messages(ORDERS)} == {UUID(int=0)}


@pytest.mark.spec("SRM-6-19")
def test_the_last_10000_ids_are_kept_for_half_an_hour(network: Network, beta: Station) -> None:
    settings = beta.service.receiver.history
    assert (settings.size, settings.lifetime_s) == (10_000, 1800)
    beta.ask(stranger_message(URL, 7, lifetime_s=100_000))
    network.wait(1799)
    network.wait(1)
    beta.ask(stranger_message(URL, 7, lifetime_s=100_000))
    assert len(beta.labels(ORDERS)) == 1
    network.wait(1802)
    beta.ask(stranger_message(URL, 7, lifetime_s=100_000))
    assert len(beta.labels(ORDERS)) == 2


def test_of_more_ids_than_are_kept_the_oldest_go(network: Network) -> None:
    beta = network.station("beta", 2, duplicates=3)
    for number in (1, 2, 3, 4, 1, 4):
        beta.ask(stranger_message(URL, number))
    assert [view.message_id for view in beta.messages(ORDERS)] == [1, 2, 3, 4, 1]


@pytest.mark.spec("SRM-6-13")
def test_where_the_guids_differ_source_qm_guid_counts(beta: Station) -> None:
    envelope = stranger_message(URL, 7)
    other = replace(envelope, path=replace(envelope.path, id=f"uuid:7@{UUID(int=3)}"))
    beta.ask(other)
    beta.ask(envelope)
    (view,) = beta.messages(ORDERS)
    assert view.source_queue_manager == STRANGER


@pytest.mark.spec("SRM-3.1.5.1-01")
def test_a_message_that_is_misaddressed_and_known_is_misaddressed(beta: Station) -> None:
    beta.ask(stranger_message(URL, 7))
    assert beta.ask(stranger_message("http://beta/msmq/private$/nothing", 7)) == 400


# Limits


@pytest.mark.spec("SRM-3.1.5.1.12-06")
def test_a_full_queue_is_answered_200_so_that_nobody_tries_for_ever(network: Network, beta: Station) -> None:
    beta.create(r"private$\small", quota_kb=1)
    url = "http://beta/msmq/private$/small"
    for number in range(10):
        assert beta.ask(stranger_message(url, number), Attachments(bytes(900))) == 200
    assert len(beta.labels(r"private$\small")) < 10
    assert len(beta.labels(r"private$\small")) <= 1


def test_a_stream_goes_on_past_a_message_that_found_its_queue_full(network: Network, beta: Station) -> None:
    network.answers["stranger"] = 200
    beta.create(r"private$\small", quota_kb=3, transactional=True)
    url = "http://beta/msmq/private$/small"
    beta.ask(stream_message(url, 1))
    beta.ask(stream_message(url, 2, dead_letter=True), Attachments(bytes(5000)))
    beta.ask(stream_message(url, 3, previous=2))
    assert beta.labels(r"private$\small") == ["1.1"] or beta.labels(r"private$\small") == ["1.1", "1.3"]
    network.wait(1)
    (final,) = network.final_receipts("beta")
    assert final.envelope.commitment_receipt is not None
    assert final.envelope.commitment_receipt.decision is Decision.NEGATIVE
    assert final.envelope.stream_receipt is not None
    assert final.envelope.stream_receipt.last_ordinal == 2


@pytest.mark.spec("SRM-3.1.5.1.12-07")
def test_a_full_manager_is_answered_500_until_there_is_room(network: Network, alpha: Station, beta: Station) -> None:
    beta.use(quota_kb=0)
    alpha.send(beta.direct(ORDERS), "one")
    alpha.send_transactional(beta.direct(LEDGER), "two")
    assert {each.status for each in network.exchanges} == {500}
    beta.use(quota_kb=None)
    network.wait(30)
    assert (beta.labels(ORDERS), beta.labels(LEDGER)) == (["one"], ["two"])


@pytest.mark.parametrize("path", [r"private$\small", r"private$\sealed"])
def test_a_full_manager_refuses_no_message_whose_dead_letter_has_no_room(
    network: Network, alpha: Station, beta: Station, path: str
) -> None:
    beta.use(relay=(ANY_HOST,))
    beta.create(r"private$\small", quota_kb=0)
    beta.create(r"private$\sealed", privacy=QueuePrivacy.BODY)
    beta.core.throttle(on=True)
    alpha.send(beta.direct(path), Message(label="one", dead_letter=True, recoverable=True))
    assert {each.status for each in network.exchanges} == {500}
    beta.core.throttle(on=False)
    network.wait(30)
    assert beta.labels(DEADLETTER) == ["one"]


@pytest.mark.spec("SRM-2.2.4-01")
def test_a_request_without_a_path_in_its_header_is_answered_with_400(beta: Station) -> None:
    text = write_envelope(stranger_message(URL)).decode()
    start, end = text.index("<path "), text.index("</path>") + len("</path>")
    path, rest = text[start:end], text[:start] + text[end:]
    in_body = rest.replace("<se:Body></se:Body>", f"<se:Body>{path}</se:Body>")
    deeper = rest.replace("</properties>", f"{path}</properties>")
    assert len({text, rest, in_body, deeper}) == 4
    statuses = []
    for each in (text, rest, in_body, deeper):
        kind, pieces = join_entity(each.encode(), Attachments(b"body"), UUID(int=1), 1)
        statuses.append(beta.ask_raw(kind, b"".join(pieces)))
    assert statuses == [200, 400, 400, 400]
    assert beta.labels(ORDERS) == ["note"]
    assert "path" in str(beta.fault)


@pytest.mark.spec("SRM-2.2.6.17-03", "SRM-3.1.5.1.4-01")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("tolerance_s", [0, 300])
def test_what_is_too_late_is_dropped_and_told(network: Network, beta: Station, late: bool, tolerance_s: int) -> None:
    """TTrq counts, not expiresAt. Clocks may differ by the tolerance."""
    beta.restart(clock_tolerance_s=tolerance_s)
    network.answers["stranger"] = 200
    request = CommitmentReceiptRequest("http://stranger/msmq/private$/acks", negative_only=True)
    envelope = stranger_message(URL, lifetime_s=60)
    envelope = replace(
        envelope,
        properties=replace(envelope.properties, expires_at=int(network.now)),
        services=Services(durable=True, commitment_receipt_request=request),
    )
    network.now += tolerance_s + (61 if late else 60)
    assert beta.ask(envelope) == 200
    assert beta.labels(ORDERS) == ([] if late else ["note"])
    assert beta.core.delivery.tally.refused[Reason.EXPIRED] == int(late)
    late_s = [facts["late_s"] for event, facts in beta.suspicions if event == "SOAP message too late"]
    assert late_s == ([tolerance_s + 1] if late else [])
    receipts = [each.envelope.commitment_receipt for each in network.receipts("beta")]
    assert [each.decision for each in receipts if each is not None] == ([Decision.NEGATIVE] if late else [])


@pytest.mark.spec("SRM-2.2.5.1.1-03")
@pytest.mark.parametrize(("waited_s", "taken"), [(360, True), (361, False)])
def test_without_an_msmq_element_expires_at_counts(network: Network, beta: Station, waited_s: int, taken: bool) -> None:
    envelope = replace(stranger_message(URL, lifetime_s=60), msmq=None)
    network.now += waited_s
    assert beta.ask(envelope) == 200
    assert beta.labels(ORDERS) == (["note"] if taken else [])


def test_a_stream_goes_on_past_a_message_that_is_too_late(network: Network, beta: Station) -> None:
    network.peers.add("stranger")
    network.answers["stranger"] = 200
    beta.ask(stream_message(TX_URL, 1, lifetime_s=0, dead_letter=True, now=network.now - 310))
    beta.ask(stream_message(TX_URL, 2))
    assert beta.labels(LEDGER) == ["1.2"]
    network.wait(1)
    (final,) = network.final_receipts("beta")
    assert final.address.host == "stranger"


@pytest.mark.parametrize("properties", [{"authenticate": True}, {"privacy": QueuePrivacy.BODY}])
def test_a_queue_that_asks_for_more_than_soap_can_prove_takes_nothing(
    beta: Station, properties: dict[str, object]
) -> None:
    beta.create(r"private$\strict", **properties)
    assert beta.ask(stranger_message("http://beta/msmq/private$/strict")) == 200
    assert beta.labels(r"private$\strict") == []
    assert beta.labels(DEADLETTER) == []


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"authenticate": True}, MessageClass.NACK_BAD_SIGNATURE),
        ({"privacy": QueuePrivacy.BODY}, MessageClass.NACK_BAD_ENCRYPTION),
    ],
)
def test_what_such_a_queue_refuses_is_a_dead_letter_here_if_it_asked_for_one(
    network: Network, beta: Station, properties: dict[str, object], reason: MessageClass
) -> None:
    """Its sender has handed it over, because the answer was 200."""
    network.peers.add("10.0.0.99")
    beta.create(r"private$\strict", **properties)
    assert beta.ask(stranger_message("http://beta/msmq/private$/strict", dead_letter=True)) == 200
    assert beta.labels(r"private$\strict") == []
    assert beta.classes(DEADLETTER) == [reason]


@pytest.mark.spec("SRM-3.1.5.1.6.2-01")
@pytest.mark.parametrize("is_durable", [False, True])
def test_a_durable_message_survives_a_crash_after_its_200_and_a_regular_one_does_not(
    beta: Station, is_durable: bool
) -> None:
    envelope = stranger_message(URL)
    assert beta.ask(durable(envelope) if is_durable else envelope) == 200
    beta.restart()
    assert beta.labels(ORDERS) == (["note"] if is_durable else [])


# What leaves a queue


@pytest.mark.spec("SRM-3.1.7.3.2-01", "SRM-3.1.5.2.1.1-01")
@pytest.mark.parametrize(
    "reason", [MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_DELETED, MessageClass.NACK_Q_PURGED]
)
def test_a_message_that_nobody_read_is_a_dead_letter_here_if_asked(beta: Station, reason: MessageClass) -> None:
    beta.ask(durable(stranger_message(URL, 1, label="kept", dead_letter=True)))
    beta.ask(durable(stranger_message(URL, 2, label="gone")))
    queue = beta.queue(ORDERS)
    for record in beta.records(ORDERS):
        beta.core.delivery.take(queue, record, reason, beta.network.now)
    beta.network.run()
    assert beta.labels(DEADLETTER) == ["kept"]
    assert beta.classes(DEADLETTER) == [reason]


def test_a_message_that_was_read_is_no_dead_letter(beta: Station) -> None:
    beta.ask(durable(stranger_message(URL, dead_letter=True)))
    beta.receive(ORDERS)
    assert beta.labels(DEADLETTER) == []
