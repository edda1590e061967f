"""[MC-MQSRM] section 4 as a test: the printed messages are posted to a queue manager, and its answers are as
printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.names import MessageId, parse_format_name
from postroad.soap.addresses import Redirections
from postroad.soap.elements import Attachments, CommitmentReceipt, Decision, Envelope
from postroad.soap.envelope import write_envelope
from postroad.soap.packets import packet_of
from postroad.soap.requests import soap_envelope_of
from postroad.soap.signature import DSA, SHA1, references_of
from postroad.soap.simple_types import (
    base64_text,
    date_text,
    message_id_text,
    parse_date,
)
from postroad.wire import MessageView
from tests.soap_samples import (
    COMMITMENT_RECEIPT,
    DELIVERY_RECEIPT,
    NULL_TEXT,
    ORDER,
    ORDER_BODY,
    ORDER_MANAGER,
    RECEIPTS_WANTED,
    RECEIPTS_WANTED_BODY,
    SIMPLE,
    SIMPLE_BODY,
    STREAM,
    STREAM_BODIES,
    STREAM_RECEIPTS,
    changed,
    joined,
    multipart,
    read,
)
from tests.unit.soap.network import Exchange, Network, Station

SIMPLE_QUEUE = r"private$\simpleq"
STREAM_QUEUE = r"private$\tsimpleq"
RECEIPTS = r"private$\receipts"
DONE = r"private$\deliverydone"


@pytest.fixture
def machine1(network: Network) -> Station:
    network.peers.add("machine1")
    station = network.station("machine1", 1)
    for path in (RECEIPTS, DONE):
        station.create(path)
    return station


@pytest.fixture
def machine2(network: Network, machine1: Station) -> Station:
    station = network.station("machine2", 2)
    station.create(SIMPLE_QUEUE)
    station.create(STREAM_QUEUE, transactional=True)
    return station


def post(station: Station, text: str, body: bytes, at: str) -> int:
    """Posts the sample, at the time it was sent."""
    station.network.now = float(parse_date(at, ""))
    return station.ask_raw(*multipart(text.encode(), body))


def as_printed(exchange: Exchange, sample: str) -> Envelope:
    """The sample, with values from the exchange where machines and times differ."""
    printed, seen = read(sample), exchange.envelope
    assert printed.msmq is not None
    assert seen.msmq is not None
    assert seen.properties.sent_at is not None
    delivery, commitment = printed.delivery_receipt, printed.commitment_receipt
    return replace(
        printed,
        path=replace(printed.path, id=seen.path.id),
        properties=replace(printed.properties, sent_at=seen.properties.sent_at),
        delivery_receipt=delivery and replace(delivery, received_at=seen.properties.sent_at),
        commitment_receipt=commitment and replace(commitment, decided_at=seen.properties.sent_at),
        msmq=replace(
            printed.msmq,
            source_qm_guid=seen.msmq.source_qm_guid,
            ttrq=seen.properties.sent_at + 4 * 86400,
            # 3.1.7.2.4: a zero is not written.
            correlation=None if printed.msmq.correlation == bytes(20) else printed.msmq.correlation,
        ),
    )


@pytest.mark.spec("SRM-4.1-11", "MQ-2.2.20.7-07")
def test_4_1(machine2: Station) -> None:
    assert post(machine2, SIMPLE, SIMPLE_BODY, "20070608T164420") == 200
    (view,) = machine2.messages(SIMPLE_QUEUE)
    assert (view.label, view.body) == ("mqsender label", b"First Message")
    assert soap_envelope_of(view) == changed(SIMPLE, 'envelope/"\nxmlns', 'envelope/" xmlns').replace(
        ">\n  <se:Header>", "><se:Header>"
    ).replace("</se:Header>\n  <se:Body></se:Body>\n<", "</se:Header><se:Body></se:Body><")


@pytest.mark.spec("SRM-4.2-04")
def test_4_2_a_queue_is_found_whatever_the_case(machine2: Station) -> None:
    assert post(machine2, ORDER, ORDER_BODY, "20070719T031141") == 200
    (view,) = machine2.messages(SIMPLE_QUEUE)
    assert (view.label, view.body, view.destination_queue.direct_name) == (
        "",
        ORDER_BODY,
        "http://machine2/msmq/private$/simpleQ",
    )


@pytest.mark.spec(
    "SRM-2.2.2-08",
    "SRM-4.3-04",
    "SRM-4.3-05",
    "SRM-4.3-06",
    "SRM-4.3-07",
    "SRM-4.3-09",
    "SRM-4.3-10",
    "SRM-4.3-11",
    "SRM-6-12",
)
def test_4_3(network: Network, machine1: Station, machine2: Station) -> None:
    assert post(machine2, RECEIPTS_WANTED, RECEIPTS_WANTED_BODY, "20070719T032454") == 200
    (delivery,) = network.receipts("machine2")
    assert delivery.content_type == "text/xml"
    assert delivery.body == write_envelope(as_printed(delivery, DELIVERY_RECEIPT))
    assert delivery.target == "/msmq/private$/receipts"
    network.wait(147)
    machine2.receive(SIMPLE_QUEUE)
    _, commitment = network.receipts("machine2")
    # 2.2.5.5: it goes to where commitments were asked for, although not in the sample.
    elsewhere = changed(COMMITMENT_RECEIPT, "/MSMQ/private$/receipts", "/MSMQ/private$/deliverydone")
    assert commitment.content_type == "text/xml"
    assert commitment.body == write_envelope(as_printed(commitment, elsewhere))
    assert date_text(int(network.now)) == "20070719T032721"
    assert commitment.envelope.commitment_receipt == CommitmentReceipt(
        int(network.now), Decision.POSITIVE, f"uuid:1@{NULL_TEXT}"
    )
    for receipt in (delivery, commitment):
        assert receipt.status == 200
        assert receipt.envelope.msmq is not None
        assert receipt.envelope.msmq.source_qm_guid == machine2.identifier
    assert [view.message_class for view in machine1.messages(RECEIPTS)] == [2]
    assert [view.message_class for view in machine1.messages(DONE)] == [16384]


@pytest.mark.spec("SRM-2.2.4.1-04", "SRM-4.3-10")
def test_receipts_repeat_the_label_and_the_priority(network: Network, machine2: Station) -> None:
    labelled = changed(RECEIPTS_WANTED, "Generic label", "MSMQ:Special label")
    text = changed(
        labelled,
        "</se:Header>",
        '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>6</Priority><BodyType>0</BodyType>'
        f"<SourceQmGuid>{NULL_TEXT[:-1]}8</SourceQmGuid><TTrq>20070720T032452</TTrq></Msmq></se:Header>",
    )
    assert post(machine2, text, b"body", "20070719T032454") == 200
    machine2.receive(SIMPLE_QUEUE)
    receipts = network.receipts("machine2")
    assert [each.envelope.path.action for each in receipts] == ["MSMQ:Special label"] * 2
    assert [each.envelope.msmq and each.envelope.msmq.priority for each in receipts] == [6, 6]
    original = MessageId(read(text).msmq.source_qm_guid, 1)  # type: ignore[union-attr]
    for each in receipts:
        receipt = each.envelope.delivery_receipt or each.envelope.commitment_receipt
        assert receipt is not None
        assert receipt.id == message_id_text(original)
        assert each.envelope.msmq is not None
        assert each.envelope.msmq.correlation == original.to_bytes()


@pytest.mark.spec("SRM-2.2.2-08", "SRM-2.2.4.1-05", "SRM-4.4-01", "SRM-4.4-02", "SRM-4.4-04")
def test_4_4(network: Network, machine1: Station, machine2: Station) -> None:
    for text, body, at in zip(STREAM, STREAM_BODIES, ("165959", "170000", "170001"), strict=True):
        assert post(machine2, text, body, f"20070619T{at}") == 200
        network.wait(0.9)
    assert [view.body for view in machine2.messages(STREAM_QUEUE)] == list(STREAM_BODIES)
    receipts = network.stream_receipts("machine2")
    assert len({each.envelope.path.id for each in receipts}) == 3
    for receipt, sample in zip(receipts, STREAM_RECEIPTS, strict=True):
        assert receipt.target == "/msmq/private$/receipts?senderstream=xrntv"
        assert receipt.content_type == "text/xml"
        assert receipt.body == write_envelope(as_printed(receipt, sample))


def test_a_signed_message_that_is_passed_on_keeps_its_octets(network: Network, machine1: Station) -> None:
    gate = network.station("gate", 3, redirections=Redirections(store_and_forward=True))
    (body,) = references_of(Attachments(ORDER_BODY), ORDER_MANAGER)
    signature = (
        f'<Signature xmlns="http://www.w3.org/2000/02/xmldsig#"><SignedInfo><SignatureMethod Algorithm="{DSA}"/>'
        f'<Reference URI="cid:body@{ORDER_MANAGER}"><DigestMethod Algorithm="{SHA1}"/>'
        f"<DigestValue>{base64_text(body.digest_value)}</DigestValue></Reference></SignedInfo>"
        "<SignatureValue>AAAA</SignatureValue></Signature>"
    )
    text = joined(changed(ORDER, "</se:Header>", f"{signature}</se:Header>"))
    text = changed(text, "http://machine2/msmq/private$/simpleQ", "http://machine1/msmq/private$/receipts")
    assert post(gate, text, ORDER_BODY, "20070719T031141") == 200
    (passed_on,) = network.posts("gate")
    assert write_envelope(passed_on.envelope) == text.encode()
    assert text.encode() in passed_on.body
    assert b"Content-Id: body@caf195ea-615c-4264-ae08-11a4e60194c0\r\n" in passed_on.body
    assert passed_on.attachments == Attachments(ORDER_BODY)
    (view,) = machine1.messages(RECEIPTS)
    assert soap_envelope_of(view) == text


def test_an_envelope_in_a_packet_that_did_not_come_by_http_is_not_believed(network: Network, machine2: Station) -> None:
    gate = network.station("gate", 3)
    envelope = read(changed(ORDER, "<Class>0<", "<Class>255<"))  # so its text says, and its headers do not
    forged = packet_of(replace(envelope, msmq=read(ORDER).msmq), Attachments(b"x"), 0)
    name = parse_format_name("DIRECT=http://machine2/msmq/private$/simpleQ")
    queue = gate.core.delivery.sending_queue(name, network.now)
    gate.core.delivery.arrive(queue, forged, MessageView(forged), parse_date("20070719T031141", ""))
    network.now = float(parse_date("20070719T031141", ""))
    network.run()
    network.wait(1)
    (post,) = network.posts("gate")
    assert post.envelope.msmq is not None
    assert post.envelope.msmq.message_class == 0
