"""What a stranger cannot do by HTTP: acknowledge for others, make us call others, or cost them their place."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from postroad.message import Message
from postroad.names import parse_format_name
from postroad.security.relay import ANY_HOST, RelayRule
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceiptRequest,
    Envelope,
    Services,
    StreamId,
    StreamReceipt,
)
from postroad.soap.sender import OUTGOING_STATE
from postroad.soap.streams import FORGET_S, INCOMING_STATE
from postroad.wire.constants import MessageClass
from postroad.wire.patch import brought_by
from tests.unit.soap.network import (
    DEADXACT,
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
ORDER_QUEUE = "http://10.0.0.1/msmq/private$/order_queue$"
ELSEWHERE = "http://10.0.0.50/msmq/private$/order_queue$"
FAR = "http://far-away:8080/msmq/private$/order_queue$"


def receipt(stream_id: StreamId, last_ordinal: int, number: int = 1) -> Envelope:
    envelope = stranger_message(ORDER_QUEUE, number, label="QM Ordering Ack", message_class=MessageClass.ORDER_ACK)
    return replace(envelope, stream_receipt=StreamReceipt(stream_id, last_ordinal))


def final(stream_id: StreamId, ordinal: int, original: str) -> Envelope:
    envelope = stranger_message(ORDER_QUEUE, 9, label="QM Ordering Ack", message_class=MessageClass.NACK_Q_PURGED)
    return replace(
        envelope,
        stream_receipt=StreamReceipt(stream_id, ordinal),
        commitment_receipt=CommitmentReceipt(1_700_000_000, Decision.NEGATIVE, original),
    )


# Receipts for our own messages


def test_a_receipt_counts_from_whom_the_messages_went_to_and_for_what_was_sent(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.answers[beta.address] = 200
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="one", dead_letter=True), "two")
    stream_id = network.user_posts("alpha")[0].stream.stream_id
    path_id = network.user_posts("alpha")[0].envelope.path.id
    assert alpha.ask(receipt(stream_id, 2), address="10.0.0.66") == 200
    assert alpha.ask(final(stream_id, 1, path_id), address="10.0.0.66") == 200
    assert alpha.service.receiver.receipts_ignored == 2
    for other in (
        replace(stream_id, guid=STRANGER),
        replace(stream_id, sequence=replace(stream_id.sequence, ordinal=9)),
    ):
        assert alpha.ask(receipt(other, 2), address=beta.address) == 200
    assert alpha.ask(receipt(stream_id, 3), address=beta.address) == 200  # there is no third one
    assert alpha.waiting(there) == ["one", "two"]
    assert alpha.labels(DEADXACT) == []
    assert alpha.ask(receipt(stream_id, 2, 5), address=beta.address) == 200
    assert alpha.waiting(there) == ["one"]
    assert alpha.ask(final(stream_id, 1, path_id), address=beta.address) == 200
    assert (alpha.waiting(there), alpha.labels(DEADXACT)) == ([], ["one"])


def test_a_receipt_may_come_from_an_address_that_the_configuration_trusts(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.answers[beta.address] = 200
    alpha.use(relay=(RelayRule.parse("10.7.0.0/16"),))
    alpha.network.peers.add("10.0.0.77")
    for number, address in enumerate(("10.7.1.1", "10.0.0.77")):
        alpha.send_transactional(beta.direct(LEDGER), "one")
        alpha.core.delivery.relay.name("10.0.0.66")  # that an application sends to somebody makes nobody a receiver
        stream_id = network.user_posts("alpha")[-1].stream.stream_id
        alpha.ask(receipt(stream_id, 1, 10 + number), address="10.0.0.66")
        assert alpha.waiting(beta.direct(LEDGER)) == ["one"]
        alpha.ask(receipt(stream_id, 1, 20 + number), address=address)
        assert alpha.waiting(beta.direct(LEDGER)) == []


def test_a_receipt_for_more_than_was_sent_since_a_restart_counts(
    network: Network, alpha: Station, beta: Station
) -> None:
    """Otherwise the first would be sent for ever. The others, which have arrived too, are gone here."""
    network.answers["10.0.0.1"] = 503
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "one", "two", "three")
    network.wait(1)
    network.answers[beta.address] = 503
    alpha.restart()
    alpha.use(relay=())
    for record in alpha.records(there)[1:]:
        alpha.core.delivery.expire(alpha.queue(there), record, network.now)
    network.answers.clear()
    network.wait(100)
    assert alpha.waiting(there) == []
    assert beta.labels(LEDGER) == ["one", "two", "three"]


def test_through_a_redirection_both_its_ends_may_acknowledge(network: Network, beta: Station) -> None:
    gate = Redirections(outbound=(Redirection("http://10.0.0.2*", "http://10.0.0.40/"),))
    sender = network.station("sender", 5, redirections=gate)
    sender.use(relay=())
    network.answers["10.0.0.40"] = 200
    for number, (address, taken) in enumerate({"10.0.0.66": False, "10.0.0.40": True, "10.0.0.2": True}.items()):
        name = beta.direct(rf"private$\q{number}")
        sender.send_transactional(name, "one")
        stream_id = network.user_posts("sender")[-1].stream.stream_id
        to = "http://10.0.0.5/msmq/private$/order_queue$"
        envelope = receipt(stream_id, 1, 10 + number)
        sender.ask(replace(envelope, path=replace(envelope.path, to=to)), address=address)
        assert sender.waiting(name) == ([] if taken else ["one"])


def test_where_nobody_knows_the_address_a_final_receipt_has_to_name_its_message(
    network: Network, alpha: Station
) -> None:
    """No name service finds `there`. Only somebody who has the message knows its ids."""
    network.answers["there"] = 200
    name = "DIRECT=HTTP://there/msmq/private$/ledger"
    alpha.send_transactional(name, Message(label="one", dead_letter=True))
    first = network.user_posts("alpha")[0]
    alpha.ask(receipt(first.stream.stream_id, 1), address="10.3.3.3")
    alpha.ask(final(first.stream.stream_id, 1, f"uuid:4711@{alpha.identifier}"), address="10.3.3.3")
    assert alpha.waiting(name) == ["one"]
    alpha.ask(final(first.stream.stream_id, 1, first.envelope.path.id), address="10.3.3.3")
    assert alpha.waiting(name) == []


# Receipts that strangers want


def asking(url: str) -> Services:
    return Services(True, DeliveryReceiptRequest(url), CommitmentReceiptRequest(url, True, True))


def ask_for_receipts(beta: Station, url: str, address: str, number: int = 1) -> None:
    """One of each kind: for delivery, for commitment, for a stream, and for the end of one of its messages."""
    source = UUID(int=number)
    beta.ask(replace(stranger_message(URL, number, source=source), services=asking(url)), address=address)
    beta.receive(ORDERS)
    beta.ask(stream_message(TX_URL, 1, start=url, dead_letter=True, source=source), address=address)
    beta.receive(LEDGER)
    beta.network.wait(2)


def test_receipts_do_not_make_us_call_a_third_party(network: Network, beta: Station) -> None:
    ask_for_receipts(beta, ELSEWHERE, "10.0.0.66")
    assert network.exchanges == []
    assert beta.service.receiver.receipts_dropped == 4
    assert not beta.core.queues.outgoing


def test_receipts_go_to_the_address_itself_and_to_what_is_allowed(network: Network, beta: Station) -> None:
    network.answers["10.0.0.50"] = 200
    ask_for_receipts(beta, ELSEWHERE, "10.0.0.50")
    assert len(network.exchanges) == 4
    beta.use(relay=(RelayRule.parse("10.0.0.50"),))
    ask_for_receipts(beta, ELSEWHERE, "10.0.0.66", 2)
    assert len(network.exchanges) == 8
    beta.restart(redirections=Redirections(outbound=(Redirection("http://10.0.0.51*", "http://10.0.0.50/"),)))
    beta.use(relay=())
    ask_for_receipts(beta, ELSEWHERE.replace(".50", ".51"), "10.0.0.66", 3)
    assert len(network.exchanges) == 12
    assert {each.address.host for each in network.exchanges} == {"10.0.0.50"}
    assert beta.service.receiver.receipts_dropped == 0


def test_receipts_for_a_name_go_where_the_message_came_from_and_other_mail_does_not(
    network: Network, beta: Station
) -> None:
    """Also after a restart: each message and each stream keeps its own."""
    network.answers.update({"10.0.0.66": 200, "10.0.0.67": 200})
    for number, address in enumerate(("10.0.0.66", "10.0.0.67"), 1):
        source = UUID(int=number)
        beta.ask(replace(stranger_message(URL, 1, source=source), services=asking(FAR)), address=address)
        beta.ask(stream_message(TX_URL, 1, start=FAR, dead_letter=True, source=source), address=address)
    beta.restart()
    beta.use(relay=())
    beta.receive(ORDERS, 2)
    beta.receive(LEDGER, 2)
    network.wait(2)
    hosts = [each.address.host for each in network.posts("beta")]
    assert (hosts.count("10.0.0.66"), hosts.count("10.0.0.67"), len(hosts)) == (4, 4, 8)
    assert {each.address.port for each in network.posts("beta")} == {8080}
    assert {each.envelope.path.to for each in network.posts("beta")} == {FAR}
    network.exchanges.clear()
    beta.send(f"DIRECT={FAR}", "mail")
    assert [each.address.host for each in network.posts("beta")] == ["far-away"]


def test_store_and_forward_goes_to_allowed_hosts_alone(network: Network, beta: Station) -> None:
    gate = network.station("gate", 7, redirections=Redirections(store_and_forward=True))
    gate.use(relay=(RelayRule.parse("10.0.0.2"),))
    assert gate.ask(stranger_message("http://10.0.0.50/msmq/private$/q")) == 400
    assert "[relay] allow" in str(gate.fault)
    assert not gate.core.queues.outgoing
    assert gate.ask(stranger_message(URL)) == 200
    assert beta.labels(ORDERS) == ["note"]


def test_who_brought_a_message_stays_with_it(beta: Station) -> None:
    for number, address in enumerate(("10.1.2.3", "fd00::17", "")):
        beta.ask(stranger_message(URL, number), address=address)
    assert [brought_by(view.data) for view in beta.messages(ORDERS)] == ["10.1.2.3", "fd00::17", ""]


def test_one_host_has_so_many_requests_to_answer_whatever_its_ports(network: Network, beta: Station) -> None:
    """Its ports take turns, and each of them gets its receipt in the end."""
    network.answers["10.0.0.66"] = None  # takes requests, and says nothing
    for port in range(1, 41):
        url = f"http://10.0.0.66:{port}/msmq/private$/order_queue$"
        beta.ask(stream_message(TX_URL, 1, start=url, source=UUID(int=port)), address="10.0.0.66")
    network.wait(1)
    assert len(network.exchanges) == beta.settings.posts_per_host == 8
    network.answers["10.0.0.66"] = 200
    for peer in list(beta.service.peers.values()):
        for post in list(peer.posts):
            beta.service.answered(post, 200, network.now)
    network.run()
    assert len({each.address.port for each in network.exchanges}) == 40


def test_a_message_that_claims_to_be_ours_is_in_no_stream_of_ours(network: Network, beta: Station) -> None:
    gate = network.station("gate", 7, redirections=Redirections(store_and_forward=True))
    gate.use(relay=(RelayRule.parse(beta.address),))
    claimed = stream_message(TX_URL, 1, source=gate.identifier, start=FAR)
    gate.ask(claimed)
    gate.send_transactional(beta.direct(LEDGER), "own")
    network.wait(2)
    assert beta.labels(LEDGER) == ["1.1", "own"]
    assert gate.waiting(beta.direct(LEDGER)) == []


# Streams and ids of others


def test_nobody_ends_a_stream_or_uses_up_an_id_by_claiming_to_be_its_sender(beta: Station) -> None:
    honest, claimed = "10.0.0.99", "10.0.0.66"
    beta.ask(stream_message(TX_URL, 1), address=honest)
    assert beta.ask(stream_message(TX_URL, 1, sequence=5, label="claimed"), address=claimed) == 200
    for number in (7, 1002):  # 1002 is the id of the next message in the stream
        assert beta.ask(stranger_message(URL, number, label="claimed"), address=claimed) == 200
    beta.ask(stream_message(TX_URL, 2), address=honest)
    beta.ask(stranger_message(URL, 7, label="own"), address=honest)
    beta.ask(stranger_message(URL, 7, label="again"), address=honest)
    assert beta.labels(ORDERS) == ["claimed", "claimed", "own"]
    beta.restart()
    beta.ask(stream_message(TX_URL, 3), address=honest)
    assert [each for each in beta.labels(LEDGER) if each != "claimed"] == ["1.1", "1.2", "1.3"]


def test_a_stream_goes_on_from_another_address(beta: Station) -> None:
    for current in range(1, 4):
        message = stream_message(TX_URL, current)
        beta.ask(message, address=f"10.0.1.{current}")
        beta.ask(message, address=f"10.0.2.{current}")
    assert beta.labels(LEDGER) == ["1.1", "1.2", "1.3"]
    assert len(beta.service.receiver.incoming) == 1


def begin(station: Station, source: int, address: str, path: str = "ledger", current: int = 1) -> None:
    to = f"http://{station.address}/msmq/private$/{path}"
    assert station.ask(stream_message(to, current, source=UUID(int=source), start=FAR), address=address) == 200


def test_streams_are_capped_and_one_address_pays_for_its_own(network: Network) -> None:
    """16 addresses have streams, and one of them begins a hundred more."""
    gamma = network.station("gamma", 6, remote_managers=32)
    gamma.use(relay=())
    for number in range(16):
        begin(gamma, 1000 + number, f"10.4.0.{number}")
        network.wait(1)
    for number in range(100):
        begin(gamma, number, "10.0.0.66")
    assert len(gamma.service.receiver.incoming) == 32
    assert len(gamma.store.state(INCOMING_STATE)) == 32
    for number in range(16):
        begin(gamma, 1000 + number, f"10.4.0.{number}", current=2)
    sources = [view.source_queue_manager.int for view in gamma.messages(LEDGER)]
    assert [sources.count(1000 + number) for number in range(16)] == [2] * 16
    gamma.restart()
    assert len(gamma.service.receiver.incoming) == 32


def test_a_stream_that_has_brought_nothing_gives_its_place_first(network: Network) -> None:
    gamma = network.station("gamma", 6, remote_managers=4)
    gamma.use(relay=())
    gamma.create(r"private$\full", transactional=True, quota_kb=0)
    begin(gamma, 1, "10.4.0.1")
    for number in range(10, 30):
        begin(gamma, number, f"10.5.0.{number}", path="full")
    begin(gamma, 1, "10.4.0.1", current=2)
    assert gamma.labels(LEDGER) == ["1.1", "1.2"]


def test_a_finished_stream_is_forgotten_when_it_is_old(network: Network, beta: Station) -> None:
    network.answers["10.0.0.99"] = 200
    beta.ask(stream_message(TX_URL, 1))
    network.wait(60)
    assert len(beta.store.state(INCOMING_STATE)) == 1
    network.now += FORGET_S + 60
    network.wait(60)
    assert len(beta.service.receiver.incoming) == 0
    assert beta.store.state(INCOMING_STATE) == {}


# Outgoing queues that go


def test_what_is_known_of_an_outgoing_queue_goes_with_it(network: Network, alpha: Station, beta: Station) -> None:
    network.answers[beta.address] = 200
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "one", "two")
    stream_id = network.user_posts("alpha")[0].stream.stream_id
    alpha.ask(receipt(stream_id, 1), address=beta.address)
    assert alpha.store.state(OUTGOING_STATE)
    queue = alpha.queue(there)
    network.answers[beta.address] = None  # a request stays without an answer
    alpha.send(beta.direct(ORDERS), "three")
    (peer,) = alpha.service.peers.values()
    (post,) = peer.posts
    for each in (queue, alpha.queue(beta.direct(ORDERS))):
        alpha.core.delete_queue(each, network.now)
        alpha.service.forget(each)
    network.run()
    alpha.service.answered(post, 200, network.now)
    network.wait(100)
    assert alpha.service.sender.transfers == {}
    assert alpha.store.state(OUTGOING_STATE) == {}
    assert (peer.queues, peer.ready) == ({}, {})
    alpha.ask(receipt(stream_id, 2, 7), address=beta.address)
    network.answers.clear()
    alpha.send_transactional(there, "anew")
    network.wait(5)
    assert beta.labels(LEDGER) == ["anew"]


# Acknowledgments to names that are no URLs


def test_an_acknowledgment_leaves_for_a_name_that_is_no_url_only_where_its_host_is_allowed(beta: Station) -> None:
    assert beta.ask(stranger_message(URL)) == 200
    (view,) = beta.messages(ORDERS)
    name = parse_format_name(r"DIRECT=OS:gamma\private$\acks")
    assert beta.service.receiver.way_of_acknowledgment(view, name) is None
    beta.use(relay=(ANY_HOST,))
    assert beta.service.receiver.way_of_acknowledgment(view, name) == name
