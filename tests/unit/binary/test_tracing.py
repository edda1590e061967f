"""Reports on traced messages, [MS-MQQB] 3.1.5.8.9 and 3.1.7.1.7."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from postroad.binary.trace_reports import report_label
from postroad.message import Message
from postroad.wire.constants import MessageClass
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView
from tests.unit.binary.network import LEDGER, ORDERS, STARTED, Network, Station
from tests.unit.binary.stranger import Stranger

REPORTS = r".\reports"
_HEX = "[0-9A-F]"
LABEL = re.compile(
    rf"(?P<source>{_HEX}{{4}}):(?P<message>{_HEX}{{8}}):(?P<hops>{_HEX}{{2}}) received by "
    rf"(?P<computer>{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}) "
    r"at \d\d:\d\d:\d\d (AM|PM) (Mon|Tue|Wed|Thu|Fri|Sat|Sun),"
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d\d \d\d"
)


@pytest.fixture
def reports(network: Network, gamma: Station) -> UUID:
    """A public queue on gamma."""
    identifier = gamma.create(REPORTS).properties.identifier
    network.public[identifier] = gamma
    return identifier


def bodies(station: Station) -> list[str]:
    return [view.body.decode("utf-16-le") for view in station.messages(REPORTS)]


@pytest.mark.spec("QB-3.1.5.8.9-01", "QB-3.1.5.8.9-02", "QB-3.1.5.8.9-04", "MQ-2.2.18.1.6-02", "MQ-2.2.20.8-06")
def test_a_traced_message_that_arrives_is_reported(
    network: Network, beta: Station, gamma: Station, stranger: Stranger, reports: UUID
) -> None:
    packet = stranger.compose(beta.direct(ORDERS), Message(label="a", trace=reports), message_id=0xABC)
    stranger.send(stranger.call(beta), packet)
    assert beta.labels(ORDERS) == ["a"]
    (report,) = gamma.messages(REPORTS)
    assert (report.message_class, report.recoverable) == (0x0001, False)
    assert str(destination_name(report)).lower() == f"public={reports}"
    assert not report.tracing
    assert bodies(gamma) == [
        f"<MESSAGE ID>00000ABC</MESSAGE ID>\r\n<TARGET QUEUE>{beta.direct(ORDERS)}</TARGET QUEUE>\r\n"
    ]


@pytest.mark.spec("QB-3.1.7.1.7-01", "QB-3.1.7.1.7-02", "QB-3.1.7.1.7-04")
def test_a_traced_message_that_is_sent_is_reported(
    network: Network, alpha: Station, gamma: Station, stranger: Stranger, reports: UUID
) -> None:
    there = stranger.direct(ORDERS)
    (sent,) = alpha.send(there, Message(label="a", trace=reports))
    (report,) = gamma.messages(REPORTS)
    assert (report.message_class, report.recoverable) == (MessageClass.REPORT, False)
    assert bodies(gamma) == [
        f"<MESSAGE ID>{sent:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{there}</TARGET QUEUE>\r\n"
        f"<NEXT HOP>{stranger.address}</NEXT HOP>\r\n<HOP COUNT>00 </HOP COUNT>\r\n"
    ]


@pytest.mark.spec("QB-3.1.5.8.9-03", "QB-3.1.7.1.7-03")
def test_the_label_tells_source_message_hops_and_time(
    network: Network, alpha: Station, beta: Station, gamma: Station, reports: UUID
) -> None:
    delta = network.station("delta", 4)
    network.routes[alpha, delta.identifier] = [beta]
    (sent,) = alpha.send(delta.private(ORDERS), Message(label="a", trace=reports))
    found = [LABEL.fullmatch(label) for label in gamma.labels(REPORTS)]
    assert [match and match["hops"] for match in found] == ["00", "01", "01", "01"]  # sent, taken, sent, taken
    for match in found:
        assert match is not None
        assert (match["source"], match["message"]) == (str(alpha.identifier)[:4], f"{sent:08X}")
        assert match["computer"] == str(alpha.identifier).upper()


@pytest.mark.spec("QB-3.1.5.8.9-03")
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "10:13:20 PM Tue,Nov 14 23"),  # STARTED
        (2 * 3600, "12:13:20 AM Wed,Nov 15 23"),
        (14 * 3600, "12:13:20 PM Wed,Nov 15 23"),
        (48 * 86400, "10:13:20 PM Mon,Jan 01 24"),
    ],
)
def test_the_time_of_a_report(stranger: Stranger, seconds: int, text: str) -> None:
    view = MessageView(stranger.compose(stranger.direct(ORDERS), "a"))
    assert report_label(view, STARTED + seconds).endswith(f" at {text}")


def test_every_manager_on_the_way_reports(
    network: Network, alpha: Station, beta: Station, gamma: Station, reports: UUID
) -> None:
    delta = network.station("delta", 4)
    network.routes[alpha, delta.identifier] = [beta]
    alpha.send_transactional(delta.private(LEDGER), Message(label="a", trace=reports))
    reporters = [view.source_queue_manager for view in gamma.messages(REPORTS)]
    assert reporters == [each.identifier for each in (alpha, beta, beta, delta)]
    assert [line.split(">")[0] for body in bodies(gamma) for line in body.splitlines() if "HOP>" in line] == [
        "<NEXT HOP"
    ] * 2


@pytest.mark.spec("QB-3.1.5.8.9-05")
@pytest.mark.parametrize("known", [False, True])
def test_a_report_that_has_nowhere_to_go_is_dropped(
    network: Network, alpha: Station, beta: Station, gamma: Station, known: bool
) -> None:
    queue = gamma.create(r".\transactional", transactional=True)
    if known:
        network.public[queue.properties.identifier] = gamma
    alpha.send(beta.direct(ORDERS), Message(label="a", trace=queue.properties.identifier))
    network.wait(5)
    assert beta.labels(ORDERS) == ["a"]
    assert gamma.labels(r".\transactional") == []
    names = [str(name) for station in (alpha, beta) for name in station.core.queues.outgoing]
    assert any(name.startswith("PUBLIC=") for name in names) is known


def test_a_report_for_which_there_may_be_no_queue_is_dropped_and_the_message_is_not(
    network: Network, alpha: Station, beta: Station, gamma: Station, reports: UUID
) -> None:
    beta.use(outgoing_queues=0)  # outgoing queues
    alpha.send(beta.direct(ORDERS), Message(label="a", trace=reports))
    assert beta.labels(ORDERS) == ["a"]
    assert [view.source_queue_manager for view in gamma.messages(REPORTS)] == [alpha.identifier]


def test_a_message_that_is_refused_or_not_traced_is_not_reported(
    network: Network, beta: Station, gamma: Station, stranger: Stranger, reports: UUID
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), Message(label="a", trace=reports)))
    stranger.send(session, stranger.compose(beta.direct(ORDERS), Message(label="b")))
    assert gamma.labels(REPORTS) == []


def test_many_traced_messages_fill_no_window(
    network: Network, alpha: Station, beta: Station, gamma: Station, reports: UUID
) -> None:
    """Reports and messages share the session, which takes 64 messages at a time."""
    there = gamma.direct(ORDERS)
    alpha.send(there, *(Message(label=str(each), trace=reports) for each in range(200)))
    assert gamma.labels(ORDERS) == [str(each) for each in range(200)]
    network.wait(1000)
    sent = [body for body in bodies(gamma) if "NEXT HOP" in body]
    assert len(sent) == 200
