"""SOAP by multicast between managers on a simulated link: what leaves, who gets it, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.errors import (
    IllegalFormatName,
    InvalidArgument,
    InvalidMessage,
    MalformedSoap,
    MessageTooLarge,
    NotEncrypted,
    TransactionUsage,
)
from postroad.message import Message
from postroad.names import MulticastName, parse_format_name
from postroad.pgm.packet import Data, Kind, Nak, Spm, Tsi, decode, encode
from postroad.pgm.settings import PgmSettings
from postroad.queues.delivery import MAX_CONTENT
from postroad.queues.outgoing_queues import OutgoingState
from postroad.simulation.multicast import FAST, Host, Lan, run_multicast_seed
from postroad.soap.multicast import MulticastSettings, Requests, join_request, split_request
from postroad.wire.queue_names import destination_name, response_name
from tests.soap_samples import MULTICAST, changed, multipart

GROUP = "239.1.1.1:8001"
NAME = f"MULTICAST={GROUP}"
NEWS = "private$\\news"
MORE = "private$\\more"


def lan_of(count: int, **link: float) -> tuple[Lan, list[Host]]:
    """One sender, and receivers that listen to the group."""
    lan = Lan(3, **link)
    hosts = [lan.host() for _ in range(count)]
    for host in hosts[1:]:
        host.create(NEWS, multicast_address=GROUP)
    return lan, hosts


def named(name: str) -> MulticastName:
    found = parse_format_name(name)
    assert isinstance(found, MulticastName)
    return found


def sent(lan: Lan, kind: Kind) -> list[Data]:
    found = [decode(data) for _, _, data in lan.packets]
    return [each for each in found if isinstance(each, Data) and each.kind is kind]


def inject(lan: Lan, text: bytes, *, sequence: int = 100, port: int = 8001, address: str = "10.9.0.99") -> None:
    """A message from another program."""
    packet = Data(Kind.ODATA, Tsi(b"strang", 77), port, sequence, 100, text)
    lan.inject(address, "239.1.1.1", encode(packet))
    lan.run(lan.now + 0.2)


def sample(**replaced: str) -> bytes:
    envelope = MULTICAST.replace("234.1.1.1:8001", GROUP).replace("20070612T023719", "20380119T031407")
    for old, new in replaced.items():
        envelope = changed(envelope, old, new)
    return join_request(named(NAME), *multipart(envelope.encode(), b"text"))


# Out


@pytest.mark.spec("SRM-4.5-01")
def test_sample_4_5_octet_for_octet() -> None:
    content_type, entity = multipart(MULTICAST.encode(), b"m\0q\0s\0e\0n\0d\0e\0r\0 \0b\0", "MSMQ - SOAP boundary, 292")
    assert join_request(named("MULTICAST=234.1.1.1:8001"), content_type, entity) == (
        b"POST 234.1.1.1:8001 HTTP/1.1\r\n"
        b"Host: 234.1.1.1:8001\r\n"
        b'Content-Type: multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml\r\n'
        b"Content-Length: 1067\r\n"
        b'SOAPAction: "MSMQMessage"\r\n'
        b"Proxy-Accept: NonInteractiveClient\r\n"
        b"\r\n" + entity
    )
    assert len(entity) == 1067


@pytest.mark.spec("SRM-2.1.2-01", "SRM-2.1.2-02", "SRM-3.1.7.9-02", "SRM-6-02")
def test_a_message_goes_by_pgm_to_every_queue_that_listens() -> None:
    """There is no SOAP service and no HTTP listener."""
    lan, (alpha, *others) = lan_of(4)
    alpha.send_to(NAME, Message(b"body", label="one", recoverable=True))
    lan.run(lan.now + 1)
    assert [host.labels(NEWS) for host in others] == [["one"]] * 3
    (packet,) = sent(lan, Kind.ODATA)
    assert (packet.port, packet.tsi.gsi) == (8001, alpha.service._gsi)
    assert {to for _, to, _ in lan.packets} == {"239.1.1.1"}
    text = packet.payload
    assert text.startswith(b"POST 239.1.1.1:8001 HTTP/1.1\r\nHost: 239.1.1.1:8001\r\n")
    assert b"<to>MSMQ:MULTICAST=239.1.1.1:8001</to>" in text
    info = alpha.core.queues.outgoing_info[alpha.core.queues.get(NAME)]
    assert info.state is OutgoingState.CONNECTED
    assert info.next_hops == ("239.1.1.1",)
    (view,) = others[0].views(NEWS)
    assert (view.body, view.source_queue_manager, view.recoverable) == (b"body", alpha.identifier, True)
    assert destination_name(view) == named(NAME)


@pytest.mark.spec("SRM-2.1.2-03")
def test_a_queue_at_another_port_or_address_gets_nothing() -> None:
    lan, (alpha, beta, gamma) = lan_of(3)
    beta.create(MORE, multicast_address="239.1.1.1:8002")
    gamma.create(MORE, multicast_address="239.1.1.2:8001")
    alpha.send_to(NAME, Message(b"body", label="one"))
    lan.run(lan.now + 1)
    assert beta.labels(NEWS) == gamma.labels(NEWS) == ["one"]
    assert beta.labels(MORE) == gamma.labels(MORE) == []


def test_several_queues_on_one_address_each_get_a_copy() -> None:
    lan, (alpha, beta) = lan_of(2)
    beta.create(MORE, multicast_address=GROUP)
    alpha.send_to(NAME, *[Message(b"body", label=str(number), recoverable=True) for number in range(20)])
    lan.run(lan.now + 2)
    assert beta.labels(NEWS) == beta.labels(MORE) == [str(number) for number in range(20)]


def test_the_sender_s_own_queues_get_their_copy_through_the_network() -> None:
    lan, (alpha, _) = lan_of(2)
    alpha.create(NEWS, multicast_address=GROUP)
    alpha.send_to(NAME, Message(b"body", label="one", journal=True))
    lan.run(lan.now + 1)
    assert alpha.labels(NEWS) == ["one"]
    assert alpha.labels(";journal") == ["one"]  # once, when it had left


def test_long_messages_over_a_lossy_link() -> None:
    lan, (alpha, *others) = lan_of(4, loss=0.05, jitter_s=0.01, duplicate=0.02)
    lan.run(lan.now + 0.1)
    messages = [Message(bytes([number]) * 60_000, label=str(number), recoverable=True) for number in range(30)]
    alpha.send_to(NAME, *messages)
    lan.run(lan.now + 60)
    for host in others:
        assert [view.body for view in host.views(NEWS)] == [message.body for message in messages]
        assert host.lost == 0
        assert host.service.info().repaired > 0
    assert alpha.core.queues.get(NAME).count == 0


def test_a_message_leaves_its_queue_when_its_last_packet_was_sent() -> None:
    lan = Lan(3)
    slow = lan.host(MulticastSettings(PgmSettings(txw_max_rte=10_000)))
    slow.send_to(
        NAME,
        Message(bytes(20_000), label="one", journal=True, recoverable=True),
        Message(b"", label="two", recoverable=True),
    )
    queue = slow.core.queues.get(NAME)
    lan.run(lan.now + 1.5)
    assert queue.count == 2
    assert slow.labels(";journal") == []
    report = slow.service.report(queue, 1.0, lan.now)
    assert (report.in_flight, report.why) == (2, "waiting for the rate limit of 10 kB/s")
    lan.run(lan.now + 5)
    assert queue.count == 0
    assert slow.labels(";journal") == ["one"]
    assert slow.service.info().sent == 2


def test_after_a_restart_what_was_not_sent_is_sent() -> None:
    lan = Lan(3)
    slow = lan.host(MulticastSettings(PgmSettings(txw_max_rte=20_000)))
    beta = lan.host()
    beta.create(NEWS, multicast_address=GROUP)
    slow.send_to(NAME, *[Message(bytes(10_000), label=str(number), recoverable=True) for number in range(10)])
    lan.run(lan.now + 2)
    slow.restart()
    lan.run(lan.now + 30)
    assert beta.labels(NEWS) == [str(number) for number in range(10)]
    assert len(beta.service._groups[named(NAME)].receiver.sessions) == 2  # a restart is a new session


def test_a_source_ends_when_it_has_nothing_to_send_for_long() -> None:
    lan = Lan(3)
    alpha, beta = lan.host(replace(FAST, idle_s=30.0)), lan.host()
    beta.create(NEWS, multicast_address=GROUP)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 45)
    assert not alpha.service._streams
    assert not alpha.service._ending
    (session,) = beta.service._groups[named(NAME)].receiver.sessions.values()
    assert session.ended
    alpha.send_to(NAME, Message(b"", label="two"))
    lan.run(lan.now + 1)
    assert beta.labels(NEWS) == ["one", "two"]


def test_a_stop_says_so() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    alpha.stop()
    lan.run(lan.now + 1)
    (session,) = beta.service._groups[named(NAME)].receiver.sessions.values()
    assert session.ended


def test_a_deleted_queue_cancels_its_messages() -> None:
    lan = Lan(3)
    slow = lan.host(MulticastSettings(PgmSettings(txw_max_rte=10_000)))
    slow.send_to(NAME, *[Message(bytes(20_000), label=str(number)) for number in range(10)])
    lan.run(lan.now + 1)
    slow.core.delete_queue(slow.core.queues.get(NAME), lan.now)
    lan.run(lan.now + 10)
    spms = [each for each in (decode(data) for _, _, data in lan.packets) if isinstance(each, Spm)]
    assert spms[-1].rst
    assert slow.service.info().sent == 0


def test_a_queue_that_is_forgotten_ends_its_source_in_good_order() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    alpha.core.delete_queue(alpha.core.queues.get(NAME), lan.now)
    lan.run(lan.now + 30)
    (session,) = beta.service._groups[named(NAME)].receiver.sessions.values()
    assert session.ended
    spms = [each for each in (decode(data) for _, _, data in lan.packets) if isinstance(each, Spm)]
    assert (spms[-1].fin, spms[-1].rst) == (True, False)


def test_a_paused_queue_sends_nothing() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    queue = alpha.core.queues.get(NAME)
    alpha.core.pause(queue)
    alpha.send_to(NAME, Message(b"", label="two"))
    lan.run(lan.now + 5)
    assert beta.labels(NEWS) == ["one"]
    alpha.core.resume(queue, lan.now)
    lan.run(lan.now + 1)
    assert beta.labels(NEWS) == ["one", "two"]


def test_without_the_right_to_send_messages_wait_and_the_log_says_what_to_set() -> None:
    lan = Lan(3)
    alpha = lan.host(replace(FAST, retry_s=5.0))
    alpha.address, alpha.error = None, "set the capability"
    alpha.send_to(NAME, Message(b"", label="one", recoverable=True))
    lan.run(lan.now + 1)
    queue = alpha.core.queues.get(NAME)
    report = alpha.service.report(queue, 1.0, lan.now)
    assert (report.why, report.stuck, report.unsent) == ("cannot send by multicast: set the capability", True, 1)
    assert alpha.core.queues.outgoing_info[queue].last_error == "set the capability"
    alpha.address, alpha.error = "10.9.0.1", None
    lan.run(lan.now + 6)
    assert queue.count == 0


# What is refused


def test_what_cannot_be_sent_to_a_group_is_refused_and_nothing_is_queued() -> None:
    lan, (alpha, _) = lan_of(2)
    transaction = alpha.core.begin()
    with pytest.raises(TransactionUsage):
        alpha.core.send(NAME, [Message(b"")], lan.now, transaction)
    with pytest.raises(NotEncrypted):
        alpha.send_to(NAME, Message(b"", encrypt="aes256"))
    with pytest.raises(InvalidMessage, match="trace"):
        alpha.send_to(NAME, Message(b"", trace="PUBLIC=00000000-0000-0000-0000-000000000001"))
    with pytest.raises(MessageTooLarge):
        alpha.send_to(NAME, Message(bytes(MAX_CONTENT + 1)))
    with pytest.raises(IllegalFormatName, match="administration queue"):
        alpha.send_to("DIRECT=OS:beta\\private$\\q", Message(b"", admin_queue=NAME, ack="full"))
    assert NAME not in [str(name) for name in alpha.core.queues.outgoing]
    alpha.send_to(NAME, Message(bytes(MAX_CONTENT), label="é" * 249))
    lan.run(lan.now + 1)
    assert alpha.service.info().sent == 1


def test_a_transactional_queue_cannot_listen() -> None:
    host = Lan(3).host()
    with pytest.raises(InvalidArgument, match="multicast_address"):
        host.create(NEWS, multicast_address=GROUP, transactional=True)
    queue = host.create(MORE, transactional=True)
    with pytest.raises(InvalidArgument, match="multicast_address"):
        host.core.change_queue(queue, host.lan.now, multicast_address=GROUP)


def test_one_of_several_destinations_can_be_a_group() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.create(MORE)
    alpha.send_to(f"{NAME},DIRECT=OS:host1\\{MORE}", Message(b"", label="one"))
    lan.run(lan.now + 1)
    assert alpha.labels(MORE) == beta.labels(NEWS) == ["one"]
    (view,) = beta.views(NEWS)
    assert view.multi_queue_header is not None
    elements = view.multi_queue_header.destination.elements
    assert {element.direct_name for element in elements} == {NAME, f"OS:host1\\{MORE}"}


def test_a_response_queue_can_be_a_group() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.send_to(NAME, Message(b"", label="one", response_queue="MULTICAST=239.2.2.2:9000"))
    lan.run(lan.now + 1)
    (view,) = beta.views(NEWS)
    assert response_name(view) == named("MULTICAST=239.2.2.2:9000")


# In


@pytest.mark.spec("SRM-6-03")
def test_the_http_header_does_not_count() -> None:
    lan, (_, beta) = lan_of(2)
    text = sample().replace(
        b"POST 239.1.1.1:8001 HTTP/1.1\r\nHost: 239.1.1.1:8001", b"POST /x HTTP/1.0\r\nHost: other", 1
    )
    inject(lan, text.replace(b'SOAPAction: "MSMQMessage"\r\n', b"Nonsense\r\n"))
    assert beta.labels(NEWS) == ["mqsender label"]


def test_a_request_may_take_several_apdus() -> None:
    lan, (_, beta) = lan_of(2)
    text = sample()
    inject(lan, text[:400])
    inject(lan, text[400:900], sequence=101)
    assert beta.labels(NEWS) == []
    inject(lan, text[900:], sequence=102)
    assert beta.labels(NEWS) == ["mqsender label"]


@pytest.mark.parametrize(
    "text",
    [
        b"no request",
        b"POST x HTTP/1.1\r\nContent-Length: 3",
        b"POST x HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST x HTTP/1.1\r\nContent-Type: text/xml\r\n\r\n<garbage>",
        sample(**{"MSMQ:MULTICAST=239.1.1.1:8001": "http://host2/msmq/private$/news"}),
        sample(**{"MSMQ:MULTICAST=239.1.1.1:8001": "MSMQ:MULTICAST=239.1.1.9:8001"}),
    ],
)
def test_what_is_no_message_for_a_queue_here_is_counted(text: bytes) -> None:
    lan, (_, beta) = lan_of(2)
    inject(lan, text)
    assert beta.labels(NEWS) == []
    assert beta.service.info().refused == 1
    assert beta.notices[0][0] == "multicast message refused"


def test_a_message_that_comes_again_is_known_before_it_is_copied() -> None:
    lan, (_, beta) = lan_of(2)
    beta.create(MORE, multicast_address=GROUP)
    inject(lan, sample())
    inject(lan, sample(), sequence=101)
    assert beta.labels(NEWS) == beta.labels(MORE) == ["mqsender label"]
    inject(lan, sample(), address="10.9.0.98")  # somebody else who uses the same id
    assert len(beta.labels(NEWS)) == 2


def test_no_receipt_is_ever_sent() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.create(MORE)
    wanting = Message(b"", label="one", admin_queue=MORE, ack="full", journal=True, dead_letter=True)
    alpha.send_to(NAME, replace(wanting, time_to_be_received=1))
    lan.run(lan.now + 1)
    (view,) = beta.views(NEWS)
    assert (view.ack_flags, view.positive_journaling, view.negative_journaling) == (0, False, False)
    lan.run(lan.now + 5)
    beta.core.run_timers(lan.now)
    lan.run(lan.now + 1)
    assert beta.labels(";deadletter") == []
    assert not beta.core.queues.outgoing


def test_access_is_asked_for_everyone() -> None:
    lan, (alpha, beta) = lan_of(2)
    beta.core.change_queue(beta.core.queues.get(NEWS), lan.now, acl="O:S-1-5-18D:(A;;0x4;;;S-1-5-21-1-2-3-1001)")
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    assert beta.labels(NEWS) == []
    assert beta.service.info().refused == 1


def test_a_queue_that_is_full_takes_nothing_and_others_do() -> None:
    lan, (alpha, beta) = lan_of(2)
    beta.create(MORE, multicast_address=GROUP, quota_kb=1)
    alpha.send_to(NAME, Message(bytes(2000), label="one"))
    lan.run(lan.now + 1)
    assert (beta.labels(NEWS), beta.labels(MORE)) == (["one"], [])


def test_queues_come_and_go_and_change() -> None:
    lan, (alpha, beta) = lan_of(2)
    assert beta.groups == {"239.1.1.1"}
    queue = beta.create(MORE)
    beta.core.change_queue(queue, lan.now, multicast_address="239.1.1.2:8001")
    lan.run(lan.now)
    assert beta.groups == {"239.1.1.1", "239.1.1.2"}
    beta.core.change_queue(queue, lan.now, multicast_address=None)
    beta.core.delete_queue(beta.core.queues.get(NEWS), lan.now)
    lan.run(lan.now)
    assert beta.groups == set()
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    beta.create(NEWS, multicast_address=GROUP)
    alpha.send_to(NAME, Message(b"", label="two"))
    lan.run(lan.now + 1)
    assert beta.labels(NEWS) == ["two"]


def test_what_is_lost_is_counted_and_told() -> None:
    lan = Lan(3)
    alpha, beta = lan.host(MulticastSettings(replace(FAST.pgm, txw_secs=5.0))), lan.host()
    beta.create(NEWS, multicast_address=GROUP)
    for number in range(3):
        lan.at(lan.now + number * 20, lambda number=number: alpha.send_to(NAME, Message(b"", label=str(number))))  # type: ignore[misc]
    lan.at(lan.now + 19, lambda: setattr(beta, "cut_until", lan.now + 20))
    lan.run(lan.now + 90)
    assert beta.labels(NEWS) == ["0", "2"]
    info = beta.service.info()
    assert (info.lost, info.groups[0].lost) == (1, 1)
    assert [event for event, _ in beta.notices] == ["multicast packets lost"]


def test_what_forged_sources_claim_is_not_counted_as_lost() -> None:
    lan, (_, beta) = lan_of(2)
    for number in range(20):
        tsi = Tsi(b"forged", number)
        for packet in (
            Spm(tsi, 8001, 0, 100, 99, "10.9.0.99"),
            Data(Kind.ODATA, tsi, 8001, 100, 100, b"POST x"),
            Spm(tsi, 8001, 1, 100_000, 99_999, "10.9.0.99"),
        ):
            lan.inject("10.9.0.99", "239.1.1.1", encode(packet))
    lan.run(lan.now + 60)
    info = beta.service.info()
    assert (info.lost, info.unconfirmed, info.groups[0].unconfirmed) == (0, 20 * 99_899, 20 * 99_899)
    assert {event for event, _ in beta.notices} == {
        "multicast message refused",
        "multicast packets of an unconfirmed source missing",
    }


def test_a_message_confirms_its_source_and_what_was_lost_before_counts() -> None:
    lan, (_, beta) = lan_of(2)
    lan.inject("10.9.0.99", "239.1.1.1", encode(Spm(Tsi(b"strang", 77), 8001, 0, 90, 89, "10.9.0.99")))
    lan.run(lan.now + 1)
    inject(lan, sample())  # the window begins at 100
    info = beta.service.info()
    assert (info.lost, info.unconfirmed) == (10, 0)
    assert [(event, facts["packets"]) for event, facts in beta.notices] == [
        ("multicast packets of an unconfirmed source missing", 10),
        ("multicast packets lost", 10),
    ]


def test_repairs_of_sources_that_have_ended_still_count() -> None:
    lan = Lan(3)
    alpha, beta = lan.host(replace(FAST, idle_s=5.0)), lan.host()
    beta.create(NEWS, multicast_address=GROUP)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    (packet,) = sent(lan, Kind.ODATA)
    nak = Nak(Kind.NAK, packet.tsi, 8001, (packet.sequence,), "10.9.0.1", "239.1.1.1")
    lan.unicast(beta, "10.9.0.1", encode(nak))
    lan.run(lan.now + 60)
    assert alpha.service.deadline is None or alpha.service.deadline > lan.now + 1  # the source is gone
    assert alpha.service.info().repairs_sent == 1


def test_a_nak_gets_its_repair() -> None:
    lan, (alpha, beta) = lan_of(2)
    alpha.send_to(NAME, Message(b"", label="one"))
    lan.run(lan.now + 1)
    (packet,) = sent(lan, Kind.ODATA)
    nak = Nak(Kind.NAK, packet.tsi, 8001, (packet.sequence,), "10.9.0.1", "239.1.1.1")
    lan.unicast(beta, "10.9.0.1", encode(nak))
    lan.run(lan.now + 1)
    assert len(sent(lan, Kind.RDATA)) == 1
    assert alpha.service.info().repairs_sent == 1
    assert beta.labels(NEWS) == ["one"]


# Text


def test_a_header_may_be_folded() -> None:
    head = b'POST x HTTP/1.1\r\nContent-Type: multipart/related; boundary="a b";\r\n type=text/xml\r\n'
    text = head + b"Content-Length: 2\r\n\r\nhi"
    assert split_request(text) == ('multipart/related; boundary="a b"; type=text/xml', b"hi", 2)


def test_what_was_lost_ends_an_unfinished_request() -> None:
    requests = Requests(1000)
    assert requests.take(b"POST x HTTP/1.1\r\nContent-Length: 4\r\n\r\nab") is None
    requests.lost()
    with pytest.raises(MalformedSoap, match="must begin with POST"):
        requests.take(b"cd")
    assert requests.take(b"POST x HTTP/1.1\r\nContent-Length: 2\r\n\r\nab and more") == ("", b"ab")


# Seeds


@pytest.mark.parametrize("seed", range(12))
def test_seeds(seed: int) -> None:
    outcome = run_multicast_seed(seed)
    assert outcome.sentences == []
    assert outcome.sent
