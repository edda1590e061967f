"""Stream messages that come in, [MC-MQSRM] 3.1.5.1.6.3 and 3.1.6.3: accepted in order, acknowledged together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.names import DirectName
from postroad.soap.elements import Attachments, Envelope, StreamReceipt
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.receiver import Incoming
from postroad.soap.streams import IncomingStream
from tests.unit.soap.network import LEDGER, STARTED, STRANGER, Network, Station, stream_message

URL = "http://10.0.0.2/msmq/private$/ledger"
STRANGERS_QUEUE = "/msmq/private$/order_queue$"


@pytest.fixture
def network(network: Network) -> Network:
    """The stranger of these tests is in [peers]: tests of others are in test_trust.py."""
    network.peers |= {"stranger", "elsewhere", "10.0.0.99"}
    return network


@pytest.fixture
def stranger(network: Network, beta: Station) -> None:
    """The sender of the messages, who answers receipts with 200."""
    network.answers["stranger"] = 200


def ordinals(network: Network) -> list[int]:
    found = [each.envelope.stream_receipt for each in network.stream_receipts("beta")]
    return [each.last_ordinal for each in found if each is not None]


def times(network: Network) -> list[float]:
    return [round(each.at - STARTED, 3) for each in network.stream_receipts("beta")]


pytestmark = pytest.mark.usefixtures("stranger")


@pytest.mark.spec("SRM-3.1.5.1.6.3-01", "SRM-3.1.5.1.6.3-02", "SRM-3.1.5.1.6.3-04", "SRM-2.2.5.3-04")
def test_messages_are_accepted_in_their_order_and_once(beta: Station) -> None:
    for current in (1, 1, 2, 3, 2, 5, 4, 1):
        assert beta.ask(stream_message(URL, current)) == 200
    assert beta.labels(LEDGER) == ["1.1", "1.2", "1.3", "1.4"]


@pytest.mark.spec("SRM-3.1.5.1.6.3-01")
def test_a_stream_starts_with_its_first_message_and_a_start(beta: Station) -> None:
    no_start = stream_message(URL, 1, start=None)
    assert beta.ask(no_start) == 200
    assert beta.ask(stream_message(URL, 2)) == 200
    assert no_start.stream is not None
    late = replace(no_start, stream=replace(no_start.stream, current=2, send_receipts_to="http://stranger/msmq/q"))
    assert beta.ask(late) == 200
    assert beta.labels(LEDGER) == []


@pytest.mark.spec("SRM-3.1.5.1.6.3-03", "SRM-3.1.5.1.6.3-06", "SRM-3.1.1.2-03")
@pytest.mark.parametrize(("previous", "accepted"), [(2, True), (1, True), (3, False), (None, False)])
def test_a_gap_is_accepted_where_what_came_before_it_is_here(
    beta: Station, previous: int | None, accepted: bool
) -> None:
    for current in (1, 2):
        beta.ask(stream_message(URL, current))
    beta.ask(stream_message(URL, 5, previous=previous))
    assert beta.labels(LEDGER) == ["1.1", "1.2", *(["1.5"] if accepted else [])]
    beta.ask(stream_message(URL, 4, previous=2))
    beta.ask(stream_message(URL, 6))
    assert beta.labels(LEDGER)[2:] == (["1.5", "1.6"] if accepted else ["1.4"])


@pytest.mark.spec("SRM-3.1.1.2-02")
def test_without_previous_it_is_the_number_before(beta: Station) -> None:
    beta.ask(stream_message(URL, 2))
    assert beta.labels(LEDGER) == []
    beta.ask(stream_message(URL, 1))
    beta.ask(stream_message(URL, 2))
    assert beta.labels(LEDGER) == ["1.1", "1.2"]


@pytest.mark.spec("SRM-3.1.5.1.6.3-05")
def test_a_new_stream_takes_the_place_of_the_old_one(beta: Station) -> None:
    for sequence, current in ((1, 1), (1, 2), (2, 1), (1, 3), (2, 2)):
        beta.ask(stream_message(URL, current, sequence=sequence))
    assert beta.labels(LEDGER) == ["1.1", "1.2", "2.1", "2.2"]


def test_the_late_start_of_an_old_stream_is_no_new_stream(beta: Station) -> None:
    """A copy that was on its way for long must not arrive twice, nor block the stream that is open."""
    for sequence in (1, 2, 3):
        beta.ask(stream_message(URL, 1, sequence=sequence))
    beta.ask(stream_message(URL, 1, sequence=1, number=77))
    beta.ask(stream_message(URL, 2, sequence=3))
    assert beta.labels(LEDGER) == ["1.1", "2.1", "3.1", "3.2"]


def test_a_message_that_came_under_another_stream_keeps_its_place_and_comes_once(beta: Station) -> None:
    beta.ask(stream_message(URL, 1, sequence=1, number=5))
    beta.ask(stream_message(URL, 1, sequence=2, number=5))
    beta.ask(stream_message(URL, 2, sequence=2, number=6))
    assert beta.labels(LEDGER) == ["1.1", "2.2"]


@pytest.mark.spec("SRM-3.1.5.1.6.3-01")
def test_a_stream_whose_name_is_lower_is_accepted_too(beta: Station) -> None:
    beta.ask(stream_message(URL, 1, sequence=9))
    beta.ask(stream_message(URL, 1, sequence=3))
    assert beta.labels(LEDGER) == ["9.1", "3.1"]


@pytest.mark.spec(
    "SRM-3.1.1.3.2-01",
    "SRM-3.1.1.3.2-06",
    "SRM-3.1.2.3-02",
    "SRM-3.1.6.3-02",
    "SRM-3.1.6.3-03",
    "SRM-3.1.5.1.6.3-08",
)
def test_a_receipt_goes_half_a_second_after_a_single_message(network: Network, beta: Station) -> None:
    message = stream_message(URL, 1)
    beta.ask(message)
    network.wait(0.49)
    assert network.exchanges == []
    network.wait(60)
    (post,) = network.exchanges
    assert times(network) == [0.5]
    assert message.stream is not None
    assert post.envelope.stream_receipt == StreamReceipt(message.stream.stream_id, 1)
    assert post.envelope.path.to == "http://stranger/msmq/private$/order_queue$"
    assert post.envelope.path.action == "MSMQ:QM Ordering Ack"
    assert (post.address.host, post.target) == ("stranger", STRANGERS_QUEUE)
    assert post.content_type == "text/xml"


@pytest.mark.spec("SRM-3.1.1.3.2-05", "SRM-3.1.5.1.6.3-09")
def test_each_message_puts_the_receipt_off_and_one_covers_all(network: Network, beta: Station) -> None:
    for current in (1, 2, 3):
        beta.ask(stream_message(URL, current))
        network.wait(0.4)
    network.wait(5)
    assert (ordinals(network), times(network)) == ([3], [1.3])


@pytest.mark.spec("SRM-3.1.1.3.2-06", "SRM-3.1.5.1.6.3-10")
def test_steady_traffic_does_not_put_it_off_for_more_than_ten_seconds(network: Network, beta: Station) -> None:
    for current in range(1, 51):
        beta.ask(stream_message(URL, current))
        network.wait(0.3)
    assert times(network) == [10.2]
    assert ordinals(network) == [34] or ordinals(network) == [35]
    network.wait(5)
    assert ordinals(network)[-1] == 50


@pytest.mark.spec("SRM-3.1.2.3-01", "SRM-3.1.1.3.2-02")
def test_streams_have_timers_of_their_own(network: Network, beta: Station) -> None:
    beta.create(r"private$\second", transactional=True)
    second = "http://10.0.0.2/msmq/private$/second"
    beta.ask(stream_message(URL, 1, sequence=1))
    network.wait(0.3)
    beta.ask(stream_message(second, 1, sequence=2))
    network.wait(5)
    assert times(network) == [0.5, 0.8]
    found = [each.envelope.stream_receipt for each in network.stream_receipts("beta")]
    assert [each.stream_id.sequence.ordinal for each in found if each is not None] == [1, 2]


@pytest.mark.spec("SRM-3.1.1.3.2-03", "SRM-3.1.6.3-01", "SRM-3.1.6.3-04")
def test_what_is_behind_a_missing_message_is_not_acknowledged(network: Network, beta: Station) -> None:
    for current in (1, 2, 4):
        beta.ask(stream_message(URL, current))
    network.wait(5)
    assert ordinals(network) == [2]
    beta.ask(stream_message(URL, 3))
    beta.ask(stream_message(URL, 4))
    network.wait(5)
    assert ordinals(network) == [2, 4]


@pytest.mark.spec("SRM-3.1.1.3.2-04", "SRM-3.1.2.3-01")
def test_nothing_is_acknowledged_before_it_is_durable(network: Network, beta: Station) -> None:
    beta.ask(stream_message(URL, 1))
    beta.commits = False
    beta.service.received(_incoming(stream_message(URL, 2)), network.now)
    network.wait(2)
    assert ordinals(network) in ([], [1])
    beta.commits = True
    network.wait(2)
    assert ordinals(network)[-1] == 2


def test_a_place_that_is_lost_with_its_message_is_free_again(network: Network, beta: Station) -> None:
    beta.ask(stream_message(URL, 1))
    beta.commits = False
    for current in (2, 3):
        beta.service.received(_incoming(stream_message(URL, current)), network.now)
    beta.seal()
    beta.service.received(_incoming(stream_message(URL, 4)), network.now)  # on top of what is lost
    beta.lose()
    beta.commits = True
    network.run()
    assert beta.labels(LEDGER) == ["1.1"]
    for current in (2, 3, 4):
        assert beta.ask(stream_message(URL, current)) == 200
    assert beta.labels(LEDGER) == ["1.1", "1.2", "1.3", "1.4"]
    network.wait(5)
    assert ordinals(network)[-1] == 4


def test_a_lost_commit_does_not_make_receipts_go_on_for_ever(network: Network, beta: Station) -> None:
    beta.commits = False
    beta.service.received(_incoming(stream_message(URL, 1)), network.now)
    beta.seal()
    beta.service.received(_incoming(stream_message(URL, 2)), network.now)
    beta.land()
    beta.seal()
    beta.lose()
    beta.commits = True
    network.wait(60)
    assert ordinals(network) == [1]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_message_that_comes_again_is_acknowledged_again(network: Network, beta: Station, restarted: bool) -> None:
    """The receipt may be lost. Without another one the sender would never stop."""
    for current in (1, 2):
        beta.ask(stream_message(URL, current))
    network.wait(1)
    if restarted:
        beta.restart()
    beta.ask(stream_message(URL, 1))
    network.wait(1)
    assert ordinals(network) == [2, 2]


@pytest.mark.spec("SRM-3.1.5.1.6.3-07", "SRM-3.1.1.1.6-09")
@pytest.mark.parametrize("restarted", [False, True])
def test_receipts_go_where_the_first_message_says(network: Network, beta: Station, restarted: bool) -> None:
    network.answers["elsewhere"] = 200
    beta.ask(stream_message(URL, 1, start="http://elsewhere/MSMQ/private$/receipts?SenderStream=XRntV"))
    if restarted:
        beta.restart()
    for current in (2, 3):
        beta.ask(stream_message(URL, current))
    network.wait(1)
    posts = network.stream_receipts("beta")
    assert {each.address.host for each in posts} == {"elsewhere"}
    assert posts[-1].target == "/msmq/private$/receipts?senderstream=xrntv"
    assert posts[-1].envelope.path.to == "http://elsewhere/MSMQ/private$/receipts?SenderStream=XRntV"


@pytest.mark.spec("SRM-3.1.1.1.6-05", "SRM-3.1.1.1.6-06")
def test_a_stream_goes_on_after_a_restart(network: Network, beta: Station) -> None:
    for current in (1, 2):
        beta.ask(stream_message(URL, current))
    network.wait(1)
    beta.restart()
    for current in (2, 3):
        beta.ask(stream_message(URL, current))
    network.wait(1)
    assert beta.labels(LEDGER) == ["1.1", "1.2", "1.3"]
    assert ordinals(network) == [2, 3]


@pytest.mark.spec("SRM-3.1.1.1.6-07")
def test_what_was_acknowledged_is_known_after_a_restart(network: Network, beta: Station) -> None:
    for current in (1, 2):
        beta.ask(stream_message(URL, current))
    network.wait(1)
    beta.restart()
    (stream,) = beta.service.receiver.incoming
    assert stream.acknowledged == 2
    network.wait(100)
    assert ordinals(network) == [2]  # there is nothing to say again
    beta.ask(stream_message(URL, 2))  # its sender has not heard of it
    network.wait(1)
    assert ordinals(network) == [2, 2]


@pytest.mark.spec("SRM-3.1.1.1.6-08")
def test_a_receipt_that_was_due_at_a_crash_goes_after_it(network: Network, beta: Station) -> None:
    beta.ask(stream_message(URL, 1))
    beta.restart()
    network.wait(1)
    assert ordinals(network) == [1]
    beta.restart()
    network.wait(100)
    assert ordinals(network) == [1]  # what was acknowledged is not again


@pytest.mark.spec("SRM-3.1.6.3-03", "SRM-3.1.5.1.6.2-05")
def test_a_receipt_that_is_not_taken_is_sent_again(network: Network, beta: Station) -> None:
    network.answers["stranger"] = 500
    beta.ask(stream_message(URL, 1))
    network.wait(1)
    network.answers["stranger"] = 200
    network.wait(20)
    assert [each.status for each in network.stream_receipts("beta")] == [500, 200]


def test_a_newer_receipt_takes_the_place_of_one_that_has_not_left(network: Network, beta: Station) -> None:
    network.down.add("stranger")
    del network.answers["stranger"]
    for current in range(1, 6):
        beta.ask(stream_message(URL, current))
        network.wait(1)
    network.answers["stranger"] = 200
    network.exchanges.clear()
    network.wait(30)
    assert ordinals(network) == [5]


@pytest.mark.spec("SRM-3.1.3.2-03")
def test_a_new_stream_has_acknowledged_nothing() -> None:
    stream = IncomingStream()
    assert (stream.acknowledged, stream.unacked_since, stream.send_receipts_to) == (0, None, "")
    assert (stream.number, stream.durable, stream.due) == (0, 0, None)


@pytest.mark.spec("SRM-3.1.5.1.6.4-03", "SRM-3.1.5.1.6.4-04", "SRM-3.1.5.1.6.4-05")
def test_what_is_known_of_an_incoming_stream(network: Network, beta: Station) -> None:
    message = stream_message(URL, 1)
    beta.ask(message)
    network.wait(10)
    for _ in range(3):
        beta.ask(message)
    (state,) = beta.service.receiver.incoming.names()
    (stream,) = beta.service.receiver.incoming
    assert STRANGER.bytes_le.hex() in state
    assert stream.format_name == f"DIRECT={URL}"
    assert message.stream is not None
    assert (stream.stream_id, stream.number) == (message.stream.stream_id, 1)
    assert (stream.rejects, stream.last_access_s) == (3, int(network.now))
    beta.ask(stream_message(URL, 2))
    assert (stream.rejects, stream.number) == (0, 2)


@pytest.mark.spec("SRM-3.1.5.1.6.4-01")
@pytest.mark.parametrize("url", ["http://BETA/MSMQ/PRIVATE$/Ledger", "http://beta/msmq\\private$\\ledger"])
def test_the_queue_is_found_by_what_follows_msmq(beta: Station, url: str) -> None:
    assert beta.ask(stream_message(url, 1)) == 200
    assert beta.labels(LEDGER) == ["1.1"]


@pytest.mark.spec("SRM-3.1.5.1.6.2-01")
def test_a_stream_message_is_stored_whether_or_not_it_says_durable(beta: Station) -> None:
    beta.ask(stream_message(URL, 1))
    beta.restart()
    assert beta.labels(LEDGER) == ["1.1"]


@pytest.mark.parametrize("url", ["http://stranger/elsewhere", "http://stranger/msmq/" + "q" * 300])
def test_a_start_whose_receipts_nobody_could_send_is_malformed(beta: Station, url: str) -> None:
    assert beta.ask(stream_message(URL, 1, start=url)) == 400
    assert beta.labels(LEDGER) == []


def test_strangers_that_never_start_a_stream_leave_nothing_behind(beta: Station) -> None:
    for current in range(2, 50):
        beta.ask(stream_message(URL, current))
    assert list(beta.service.receiver.incoming) == []


def _incoming(envelope: Envelope) -> Incoming:
    kind, pieces = join_entity(write_envelope(envelope), Attachments(b"body"), STRANGER, 1)
    return Incoming(kind, b"".join(pieces), "10.0.0.99")


def test_a_place_in_a_stream_is_a_change_that_answers_wait_for(network: Network, beta: Station) -> None:
    """For a refused message it is the only change, and it is written only when the tick is sealed."""
    element = stream_message(URL, 1).stream
    assert element is not None
    incoming, tick = beta.service.receiver.incoming, beta.core.tick
    name, stream = incoming.of(element.stream_id, DirectName.from_wire(URL), "10.0.0.99")
    writes = tick.writes
    incoming.advance(tick, name, stream, element, bytes(20), network.now)
    assert tick.writes > writes
