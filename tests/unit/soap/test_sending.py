"""Regular and durable messages on their way, [MC-MQSRM] 3.1.7.2: the meaning of each HTTP answer."""

from __future__ import annotations

from itertools import pairwise

import pytest

from postroad.message import Message
from postroad.queues.outgoing_queues import OutgoingState
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.receiver import Incoming
from postroad.wire.constants import MessageClass
from tests.unit.soap.network import ACKS, DEADLETTER, JOURNAL, LEDGER, ORDERS, Network, Station

RETRY_S = 20


def express(label: str, **words: object) -> Message:
    return Message(b"body", label=label, **words)  # type: ignore[arg-type]


@pytest.mark.spec("SRM-3.1.7.2.5-02", "SRM-3.1.1.4.1-01", "SRM-3.1.1.1.3-04", "SRM-3.1.1.3.1-02", "SRM-3.1.7.9-05")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_200_ends_a_message_that_is_not_of_a_stream(
    network: Network, alpha: Station, beta: Station, recoverable: bool
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, Message(b"body", label="one", recoverable=recoverable))
    assert beta.labels(ORDERS) == ["one"]
    assert alpha.waiting(there) == []
    (post,) = network.exchanges
    assert (post.address.host, post.status) == (beta.address, 200)


@pytest.mark.spec("SRM-3.1.7.2.5-01")
def test_a_message_is_not_let_go_before_its_answer(network: Network, alpha: Station, beta: Station) -> None:
    network.answers[beta.address] = None
    alpha.send(beta.direct(ORDERS), "one")
    assert len(network.exchanges) == 1
    assert alpha.waiting(beta.direct(ORDERS)) == ["one"]


@pytest.mark.spec("SRM-3.1.7.2.5-09")
def test_a_200_comes_when_a_durable_message_is_on_disk(network: Network, alpha: Station, beta: Station) -> None:
    beta.commits = False
    alpha.send(beta.direct(ORDERS), "one")
    (post,) = network.exchanges
    assert post.status is None
    beta.commits = True
    network.run()
    assert post.status == 200


def test_a_disk_that_fails_answers_500_and_the_message_comes_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    beta.commits = False
    alpha.send(beta.direct(ORDERS), "one")
    beta.seal()
    beta.lose()
    beta.commits = True
    network.run()
    assert (network.exchanges[0].status, beta.labels(ORDERS)) == (500, [])
    network.wait(RETRY_S)
    assert (network.exchanges[1].status, beta.labels(ORDERS)) == (200, ["one"])


def test_a_duplicate_of_what_a_failing_disk_loses_is_no_success(
    network: Network, alpha: Station, beta: Station
) -> None:
    """The copy comes while the first one is on its way to the disk. Neither sender may learn that it is stored."""
    beta.commits = False
    network.lost_answers.add(beta.address)
    alpha.send(beta.direct(ORDERS), "one")
    post = network.exchanges[0]
    beta.seal()
    statuses: list[int] = []

    beta.take(Incoming(post.content_type, post.body, alpha.address), statuses.append)
    beta.lose()
    beta.commits = True
    network.run()
    assert statuses == [500]


@pytest.mark.spec("SRM-3.1.7.2.5-04", "SRM-3.1.5.2.2-01", "SRM-1.3.7-01")
def test_a_journal_copy_is_left_after_200_where_it_was_asked_for(
    network: Network, alpha: Station, beta: Station
) -> None:
    alpha.send(beta.direct(ORDERS), Message(label="kept", recoverable=True, journal=True), "plain")
    assert alpha.labels(JOURNAL) == ["kept"]
    plain = next(each for each in network.exchanges if each.label == "plain")
    assert plain.envelope.msmq is not None
    assert (plain.envelope.msmq.journal, plain.envelope.msmq.dead_letter) == (False, False)


@pytest.mark.spec("SRM-3.1.7.2.5-06", "SRM-3.1.7.2.5-07", "SRM-3.1.5.2.1-01", "SRM-1.3.7.2-01")
def test_a_400_is_the_end_and_leaves_a_dead_letter_if_asked(network: Network, alpha: Station, beta: Station) -> None:
    network.answers[beta.address] = 400
    there = beta.direct(ORDERS)
    alpha.send(there, Message(label="dead", recoverable=True, dead_letter=True), "gone")
    network.wait(10 * RETRY_S)
    assert [each.label for each in network.exchanges] == ["dead", "gone"]
    assert alpha.waiting(there) == []
    assert alpha.labels(DEADLETTER) == ["dead"]
    assert alpha.classes(DEADLETTER) == [MessageClass.NACK_BAD_DST_Q]
    assert alpha.outgoing(there).last_error == f"{beta.address} refused a message with 400"


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_2xx_is_a_200(network: Network, alpha: Station, beta: Station, status: int) -> None:
    network.answers[beta.address] = status
    alpha.send(beta.direct(ORDERS), "one")
    assert alpha.waiting(beta.direct(ORDERS)) == []


@pytest.mark.spec(
    "SRM-3.1.7.2.5-08", "SRM-3.1.2.1-01", "SRM-3.1.2.1-02", "SRM-3.1.1.1.5-06", "SRM-3.1.7.1-01", "SRM-6-23"
)
@pytest.mark.parametrize("status", [500, 503, 599])
def test_a_5xx_closes_the_connection_and_the_message_comes_again(
    network: Network, alpha: Station, beta: Station, status: int
) -> None:
    network.answers[beta.address] = status
    there = beta.direct(ORDERS)
    alpha.send(there, "one")
    assert alpha.closed == [network.exchanges[0].address]
    assert alpha.outgoing(there).state is OutgoingState.INACTIVE
    assert alpha.waiting(there) == ["one"]
    network.wait(RETRY_S - 0.1)
    assert len(network.exchanges) == 1
    network.wait(0.2)
    assert len(network.exchanges) == 2
    network.wait(100 * RETRY_S)  # there is no limit
    del network.answers[beta.address]
    network.wait(RETRY_S)
    assert beta.labels(ORDERS) == ["one"]


@pytest.mark.spec("SRM-3.1.2.1-03", "SRM-3.1.3.1-05", "SRM-3.1.6.1-01", "SRM-3.1.6.1-02", "SRM-3.1.6.1-03")
def test_the_retransmission_timer_is_periodic_and_brings_all_messages_in_order(network: Network, beta: Station) -> None:
    alpha = network.station("gamma", 3, retransmission_ms=7000, posts_per_host=1)
    network.down.add("beta")
    alpha.send(beta.direct(ORDERS), "one", "two")
    network.wait(30)
    assert [each.at - network.exchanges[0].at for each in network.exchanges] == [0, 7, 14, 21, 28]
    network.down.clear()
    network.wait(7)
    assert beta.labels(ORDERS) == ["one", "two"]


@pytest.mark.spec("SRM-3.1.7.1-01", "SRM-1.3.5.1-01")
def test_an_express_message_survives_a_cut_and_no_restart(network: Network, alpha: Station, beta: Station) -> None:
    network.down.add("beta")
    there = beta.direct(ORDERS)
    alpha.send(there, express("one"))
    network.down.clear()
    network.wait(RETRY_S)
    assert beta.labels(ORDERS) == ["one"]
    network.down.add("beta")
    alpha.send(there, express("two"))
    alpha.restart()
    network.down.clear()
    network.wait(2 * RETRY_S)
    assert beta.labels(ORDERS) == ["one"]


@pytest.mark.spec("SRM-1.3.5.2-01", "SRM-3.1.1.1.3-03", "SRM-3.1.4.1-01", "SRM-3.1.1.1.1-01")
def test_a_durable_message_leaves_by_itself_after_a_restart(network: Network, alpha: Station, beta: Station) -> None:
    network.down.add("beta")
    alpha.send(beta.direct(ORDERS), "one")
    network.down.clear()
    alpha.restart()
    assert beta.labels(ORDERS) == ["one"]


@pytest.mark.spec("SRM-3.1.7.2.1-01", "SRM-3.1.7.2.1-02", "SRM-3.1.7.2.1-03", "SRM-3.1.5.2.1.1-01")
@pytest.mark.parametrize(("waited_s", "sent"), [(60, True), (61, False)])
def test_an_expired_message_is_not_sent(
    network: Network, alpha: Station, beta: Station, waited_s: int, sent: bool
) -> None:
    there = beta.direct(ORDERS)
    network.down.add("beta")
    alpha.send(there, Message(label="late", recoverable=True, dead_letter=True, time_to_reach_queue=60))
    network.exchanges.clear()
    network.down.clear()
    network.now += waited_s
    alpha.core.deadlines.run(network.now)
    network.run()
    assert [each.label for each in network.exchanges] == (["late"] if sent else [])
    assert alpha.waiting(there) == []
    assert alpha.labels(DEADLETTER) == ([] if sent else ["late"])
    assert alpha.classes(DEADLETTER) == ([] if sent else [MessageClass.NACK_REACH_QUEUE_TIMEOUT])


@pytest.mark.spec("SRM-3.1.7.2.2-01", "SRM-3.1.1.1.5-01", "SRM-3.1.1.1.5-02", "SRM-2.2.4.3-05")
def test_ids_rise_by_one_over_all_queues_receipts_included_and_over_restarts(
    network: Network, alpha: Station, beta: Station
) -> None:
    acks = Message(b"", label="asked", recoverable=True, ack="reach-queue", admin_queue=beta.direct(ACKS))
    alpha.send(beta.direct(ORDERS), "a", "b")
    alpha.send(beta.direct(ACKS), "c")
    beta.send(alpha.direct(ORDERS), acks)
    alpha.restart()
    alpha.send(beta.direct(ORDERS), "d")
    ids = [
        int(each.envelope.path.id.removeprefix("uuid:").partition("@")[0])
        for each in network.posts("alpha")
        if each.envelope.path.id.endswith(str(alpha.identifier))
    ]
    assert ids[:4] == [ids[0], ids[0] + 1, ids[0] + 2, ids[0] + 3]
    assert ids[4] > ids[3]
    labels = [each.label for each in network.posts("alpha")]
    assert labels == ["a", "b", "c", "asked", "d"]


@pytest.mark.spec("SRM-3.1.7.4-01", "SRM-3.1.7.4-02", "SRM-3.1.7.5-01", "SRM-3.1.7.7-02")
def test_a_paused_queue_sends_nothing_until_it_is_resumed(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.answers[beta.address] = None
    alpha.send(there, "one")
    alpha.core.pause(alpha.queue(there))
    assert alpha.outgoing(there).state is OutgoingState.ON_HOLD
    assert alpha.closed == [network.exchanges[0].address]
    del network.answers[beta.address]
    alpha.send(there, "two")
    network.wait(10 * RETRY_S)
    assert len(network.exchanges) == 1
    alpha.core.resume(alpha.queue(there), network.now)
    network.run()
    assert beta.labels(ORDERS) == ["one", "two"]
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED


def test_an_answer_that_comes_after_the_pause_changes_nothing(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.answers[beta.address] = None
    alpha.send(there, "one")
    (post,) = next(iter(alpha.service.peers.values())).posts
    alpha.core.pause(alpha.queue(there))
    alpha.service.answered(post, 200, network.now)
    assert alpha.waiting(there) == ["one"]


@pytest.mark.spec("SRM-3.1.7.9-01")
def test_a_queue_waits_until_its_first_answer_and_is_connected_then(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    beta.commits = False
    alpha.send(there, "one")
    assert alpha.outgoing(there).state is OutgoingState.WAITING
    beta.commits = True
    network.run()
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED


@pytest.mark.spec("SRM-3.1.6.4-01", "SRM-3.1.2.4-01", "SRM-3.1.7.2.5-05", "SRM-6-22")
@pytest.mark.parametrize("status", [200, 400])
def test_an_idle_connection_is_closed_300_seconds_after_the_last_answer(
    network: Network, alpha: Station, beta: Station, status: int
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "one")
    network.wait(200)
    network.answers[beta.address] = status
    alpha.send(there, "two")
    network.wait(299)
    assert alpha.closed == []
    network.wait(2)
    assert alpha.closed == [network.exchanges[0].address]
    assert alpha.outgoing(there).state is OutgoingState.DISCONNECTED


@pytest.mark.spec("SRM-3.1.7.7-01")
def test_queues_of_other_protocols_are_left_alone(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(rf"DIRECT=TCP:{beta.address}\{ORDERS}", "one")
    network.wait(RETRY_S)
    assert network.exchanges == []


@pytest.mark.spec("SRM-2.1.1-04", "SRM-2.1.1-05", "SRM-6-01")
@pytest.mark.parametrize(
    ("url", "port", "secure"),
    [
        ("HTTP://10.0.0.9/msmq/q", 80, False),
        ("HTTPS://10.0.0.9/msmq/q", 443, True),
        ("HTTP://10.0.0.9:8080/msmq/q", 8080, False),
        ("HTTPS://10.0.0.9:8443/msmq/q", 8443, True),
    ],
)
def test_the_port_is_the_schemes_unless_the_name_has_another(
    network: Network, alpha: Station, url: str, port: int, secure: bool
) -> None:
    network.answers["10.0.0.9"] = 200
    alpha.send(f"DIRECT={url}", "one")
    (post,) = network.exchanges
    assert (post.address.port, post.address.secure) == (port, secure)


@pytest.mark.spec("SRM-3-01", "SRM-1.7-01")
def test_messages_go_both_ways_and_nothing_goes_before_them(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "there")
    beta.send(alpha.direct(ORDERS), "and back")
    assert (beta.labels(ORDERS), alpha.labels(ORDERS)) == (["there"], ["and back"])
    assert [each.label for each in network.exchanges] == ["there", "and back"]


def test_a_message_to_a_url_of_this_manager_is_delivered_here(network: Network, alpha: Station) -> None:
    for host in ("alpha", "ALPHA", alpha.address, "localhost"):
        alpha.send(f"DIRECT=HTTP://{host}/msmq/private$/orders", host)
    assert alpha.labels(ORDERS) == ["alpha", "ALPHA", alpha.address, "localhost"]
    assert network.exchanges == []


@pytest.mark.spec("SRM-3.1.1.1.10.1-01", "SRM-3.1.7.9-03", "SRM-3.1.7.9-04", "SRM-3.1.1.1.9-01", "SRM-3.1.1.1.10-02")
def test_outbound_redirection_changes_who_is_called_and_nothing_else(network: Network) -> None:
    redirections = Redirections(
        outbound=(Redirection("http://10.0.0.2/*", "http://gate:8080/msmq/anything"),),
        outbound_exceptions=("http://10.0.0.2/msmq/private$/near*",),
    )
    alpha = network.station("alpha", 1, redirections=redirections)
    for host in ("gate", "10.0.0.2"):
        network.answers[host] = 200
    alpha.restart()
    for queue in ("far", "near", "nearby"):
        alpha.send(f"DIRECT=HTTP://10.0.0.2/msmq/private$/{queue}", queue)
    hosts = {each.label: (each.address.host, each.address.port, each.envelope.path.to) for each in network.exchanges}
    assert hosts == {
        "far": ("gate", 8080, "http://10.0.0.2/msmq/private$/far"),
        "near": ("10.0.0.2", 80, "http://10.0.0.2/msmq/private$/near"),
        "nearby": ("10.0.0.2", 80, "http://10.0.0.2/msmq/private$/nearby"),
    }


def test_as_many_requests_as_allowed_wait_for_a_host(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, posts_per_host=3)
    beta.commits = False
    alpha.send(beta.direct(ORDERS), *(f"{number}" for number in range(10)))
    assert len(network.exchanges) == 3
    beta.commits = True
    network.run()
    assert beta.labels(ORDERS) == [f"{number}" for number in range(10)]


def test_queues_to_one_host_take_turns(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, posts_per_host=2)
    network.down.add("beta")
    alpha.send(beta.direct(ORDERS), *(f"{number}" for number in range(10)))
    alpha.send(beta.direct(ACKS), "other")
    network.exchanges.clear()
    network.down.clear()
    network.wait(RETRY_S)
    assert "other" in [each.label for each in network.exchanges[:4]]


@pytest.mark.spec("SRM-6-15", "SRM-6-16", "SRM-2.1.1-01", "SRM-2.2.6-01")
def test_what_every_request_has_and_has_not(network: Network, alpha: Station, beta: Station) -> None:
    ask = Message(b"x", label="one", recoverable=True, ack="full", admin_queue=alpha.direct(ACKS))
    alpha.send(beta.direct(ORDERS), ask)
    alpha.send_transactional(beta.direct(r"private$\ledger"), "two")
    beta.receive(ORDERS)
    network.wait(1)
    assert len(network.exchanges) == 5  # two messages, two receipts, a stream receipt
    for post in network.exchanges:
        text = post.body.decode()
        assert post.envelope.msmq is not None
        assert not any(f"<{name}" in text for name in ("fwd", "from", "relatesTo", "fault", "inReplyTo"))
        assert "http://schemas.xmlsoap.org/soap/envelope/" in text


def assert_waits(times: list[float], expected: list[float], timer_s: float = RETRY_S) -> None:
    """A wait between tries. A message that is alone and has stepped aside comes back with the Retransmission Timer."""
    waits = [after - before for before, after in pairwise(times)]
    assert len(waits) == len(expected), waits
    assert all(least - 0.001 < wait < least + timer_s + 0.001 for wait, least in zip(waits, expected, strict=True)), (
        waits
    )


TEMPORARY = [301, 302, 307, 401, 403, 404, 405, 407, 408, 413, 418, 429, 451]


@pytest.mark.spec("SRM-3.1.2.1-01", "SRM-3.1.2.1-02")
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("status", TEMPORARY)
def test_an_answer_that_no_queue_manager_gives_costs_nothing(
    network: Network, alpha: Station, beta: Station, status: int, transactional: bool
) -> None:
    there = beta.direct(LEDGER if transactional else ORDERS)
    labels = [f"{number}" for number in range(20)]
    network.answers[beta.address] = status
    messages = [Message(label=label, recoverable=True, dead_letter=not transactional) for label in labels]
    (alpha.send_transactional if transactional else alpha.send)(there, *messages)
    network.wait(200)
    told = alpha.outgoing(there)
    assert (alpha.waiting(there), alpha.labels(DEADLETTER)) == (labels, [])
    assert told.state is OutgoingState.INACTIVE
    assert str(told.last_error).startswith(f"{beta.address} answered {status}")
    del network.answers[beta.address]
    network.wait(100)
    assert sorted(beta.labels(LEDGER if transactional else ORDERS), key=int) == labels
    assert alpha.waiting(there) == []
    assert (told.state, told.last_error) == (OutgoingState.CONNECTED, None)


@pytest.mark.spec("SRM-3.1.2.1-02")
def test_a_message_that_is_put_off_for_ever_is_sent_until_its_time_is_over(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    network.answers[beta.address] = 404
    alpha.send(there, Message(label="late", recoverable=True, dead_letter=True, time_to_reach_queue=5000))
    network.wait(4990)
    assert_waits([each.at for each in network.exchanges], [20, 30, 160, 300, 300, 1280, 1800])
    assert alpha.waiting(there) == ["late"]
    network.wait(10 + RETRY_S)
    assert alpha.waiting(there) == []
    assert alpha.classes(DEADLETTER) == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]


def test_the_times_between_tries_are_never_longer_than_the_table(network: Network, beta: Station) -> None:
    alpha = network.station("gamma", 3, retransmission_ms=300, resend_s=(1.0, 2.0, 3.0))
    network.answers[beta.address] = 404
    alpha.send(beta.direct(ORDERS), "one")
    network.wait(6)
    assert_waits([each.at for each in network.exchanges], [0.3, 0.6, 2.4], timer_s=0.3)


def test_a_message_that_is_too_large_lets_the_others_go_and_waits_longer_each_time(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    network.too_large = 5000
    alpha.send(there, Message(b"x" * 5000, label="large", recoverable=True), *(f"{each}" for each in range(30)))
    alpha.send(beta.direct(ACKS), "other")
    assert beta.labels(ACKS) == ["other"]  # one queue waits, not all that lead to the host
    network.wait(200)
    assert alpha.waiting(there) == ["large"]
    assert len(beta.labels(ORDERS)) == 30
    network.wait(86400)
    tried = [each.at for each in network.exchanges if each.label == "large"]
    assert len(tried) < 20
    network.too_large = None
    network.wait(21600)
    assert "large" in beta.labels(ORDERS)


def test_many_messages_that_are_too_large_hold_nobody_up_for_ever(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    network.too_large = 5000
    large = [Message(b"x" * 5000, label=f"large {each}") for each in range(20)]
    alpha.send(there, *large, *(f"{each}" for each in range(30)))
    network.wait(3 * 3600)
    assert len(beta.labels(ORDERS)) == 30
    assert len(alpha.waiting(there)) == 20
    assert len(network.exchanges) < 600


@pytest.mark.parametrize("remedy", ["purge", "pause"])
def test_a_message_that_stepped_aside_is_there_for_people(
    network: Network, alpha: Station, beta: Station, remedy: str
) -> None:
    there = beta.direct(ORDERS)
    network.answers[beta.address] = 413
    alpha.send(there, Message(label="large", recoverable=True, dead_letter=True))
    network.wait(600)
    if remedy == "purge":
        alpha.purge(there)
        network.wait(RETRY_S)
        assert alpha.waiting(there) == []
        return
    alpha.core.pause(alpha.queue(there))
    network.run()
    assert alpha.labels(there) == ["large"]  # to be taken out, or moved
    del network.answers[beta.address]
    alpha.core.resume(alpha.queue(there), network.now)
    network.run()
    assert beta.labels(ORDERS) == ["large"]  # at once


def test_what_an_answer_means_and_what_to_do_is_said(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.answers[beta.address] = 413
    alpha.send(there, "one")
    network.wait(5)
    told = alpha.service.report(alpha.queue(there), None, network.now)
    assert told.why == (
        f"{beta.address} answered 413 (Request Entity Too Large): the message is too large for it: raise the limit of "
        "the proxy or web server; next try in 15.0 s"
    )
    assert told.stuck
    assert told.unsent == 1
    network.wait(300)
    told = alpha.service.report(alpha.queue(there), None, network.now)  # it has stepped aside
    assert "answered 413" in str(told.why)
    assert told.stuck
