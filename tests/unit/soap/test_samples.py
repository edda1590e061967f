"""[MC-MQSRM] section 4: every message printed there is read and written again."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.names import MessageId
from postroad.soap.elements import (
    NO_EXPIRY,
    Attachments,
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    DeliveryReceiptRequest,
    Envelope,
    Msmq,
    Path,
    Properties,
    Services,
    Stream,
    StreamReceipt,
)
from postroad.soap.envelope import is_receipt, read_envelope, write_envelope
from postroad.soap.multipart import join_entity, split_entity
from postroad.soap.packets import identifier_of, label_of, packet_of
from postroad.soap.simple_types import parse_date, parse_stream_id
from postroad.wire import MessageView
from tests.soap_samples import (
    ALL,
    BODY_MANAGER,
    COMMITMENT_RECEIPT,
    DELIVERY_RECEIPT,
    MULTICAST,
    NULL_TEXT,
    ORDER,
    ORDER_BODY,
    ORDER_MANAGER,
    RECEIPT_MANAGER,
    RECEIPTS_WANTED,
    RECEIPTS_WANTED_BODY,
    SIMPLE,
    SIMPLE_BODY,
    STREAM,
    STREAM_BODIES,
    STREAM_ID,
    STREAM_RECEIPT_MANAGER,
    STREAM_RECEIPTS,
    STREAM_RECEIPTS_TO,
    joined,
    multipart,
    read,
)

STREAM_NAME = parse_stream_id(STREAM_ID, "")


def date(text: str) -> int:
    return parse_date(text, "")


def received(text: str, body: bytes) -> MessageView:
    """The packet that a receiver makes of a sample that comes by HTTP."""
    envelope, attachments = split_entity(*multipart(text.encode(), body))
    return MessageView(packet_of(read_envelope(envelope), attachments, now=0))


@pytest.mark.parametrize("text", ALL)
def test_every_sample_is_read_and_says_the_same_when_written(text: str) -> None:
    envelope = read(text)
    assert read_envelope(write_envelope(envelope)) == envelope


@pytest.mark.parametrize("text", [ORDER, DELIVERY_RECEIPT, COMMITMENT_RECEIPT, *STREAM_RECEIPTS, MULTICAST])
def test_what_a_queue_manager_sent_is_written_to_the_octet(text: str) -> None:
    assert write_envelope(read(text)) == text.encode()


@pytest.mark.spec("SRM-4.1-11", "SRM-6-17", "SRM-3.1.5.1.1-12")
def test_4_1_a_simple_message() -> None:
    assert read(SIMPLE) == Envelope(
        Path("MSMQ:mqsender label", "http://machine2/msmq/private$/simpleq", f"uuid:1@{NULL_TEXT}"),
        Properties(date("20070609T164419"), date("20070608T164419")),
    )
    assert write_envelope(read(SIMPLE)) == joined(SIMPLE).encode()
    view = received(SIMPLE, SIMPLE_BODY)
    assert (view.label, view.body) == ("mqsender label", b"First Message")
    assert (view.message_class, view.priority, view.recoverable, view.transactional) == (0, 3, False, False)
    assert (view.time_to_reach_queue, view.sent_time) == (86400, date("20070608T164419"))


@pytest.mark.spec("SRM-4.2-01", "SRM-4.2-02", "SRM-4.2-03", "SRM-4.2-05", "SRM-3.1.5.1.1-32")
def test_4_2_with_msmq() -> None:
    assert read(ORDER) == Envelope(
        Path("MSMQ:", "http://machine2/msmq/private$/simpleQ", f"uuid:20503@{ORDER_MANAGER}"),
        Properties(NO_EXPIRY, date("20070719T031140")),
        msmq=Msmq(
            0,
            3,
            ORDER_MANAGER,
            date("20070723T031140"),
            correlation=bytes(20),
            app=0,
            hash_algorithm=32772,
        ),
    )
    envelope, attachments = split_entity(*multipart(ORDER.encode(), ORDER_BODY))
    content_type, pieces = join_entity(envelope, attachments, ORDER_MANAGER, 26500)
    assert content_type == 'multipart/related; boundary="MSMQ - SOAP boundary, 26500"; type=text/xml'
    assert f"Content-Id: body@{ORDER_MANAGER}\r\n".encode() in b"".join(pieces)
    view = received(ORDER, ORDER_BODY)
    assert view.time_to_reach_queue == 345600
    assert (view.source_queue_manager, view.message_id) == (ORDER_MANAGER, 20503)
    assert (view.label, view.body) == ("", ORDER_BODY)


@pytest.mark.spec("SRM-4.3-01", "SRM-4.3-02", "SRM-4.3-08", "SRM-6-11", "SRM-3.1.5.1.1-05", "SRM-3.1.5.1.1-18")
def test_4_3_both_receipts_wanted() -> None:
    envelope = read(RECEIPTS_WANTED)
    assert envelope == Envelope(
        Path(
            "Generic label",
            "http://machine2/msmq/private$/simpleq",
            f"uuid:1@{NULL_TEXT[:-1]}8",
            "http://machine1/MSMQ/private$/Q1",
        ),
        Properties(date("20070720T032452"), date("20070719T032452")),
        Services(
            delivery_receipt_request=DeliveryReceiptRequest("http://machine1/MSMQ/private$/receipts"),
            commitment_receipt_request=CommitmentReceiptRequest(
                "http://machine1/MSMQ/private$/deliverydone", True, True
            ),
        ),
    )
    assert label_of(envelope.path.action) is None
    view = received(RECEIPTS_WANTED, RECEIPTS_WANTED_BODY)
    assert view.label == ""
    assert view.admin_queue.direct_name == "http://machine1/MSMQ/private$/receipts"


@pytest.mark.spec(
    "SRM-4.3-05", "SRM-4.3-06", "SRM-4.3-07", "SRM-4.3-10", "SRM-4.3-11", "SRM-4.3-12", "SRM-3.1.5.1.1-25"
)
def test_4_3_the_two_receipts() -> None:
    correlation = MessageId(UUID(int=0), 1).to_bytes()
    assert correlation == bytes(16) + b"\1\0\0\0"
    delivery = read(DELIVERY_RECEIPT)
    assert delivery == Envelope(
        Path(
            "MSMQ:",
            "http://machine1/MSMQ/private$/receipts",
            f"uuid:34826@{RECEIPT_MANAGER}",
            "http://machine2/msmq/private$/simpleq",
        ),
        Properties(NO_EXPIRY, date("20070719T032451")),
        delivery_receipt=DeliveryReceipt(date("20070719T032454"), f"uuid:1@{NULL_TEXT}"),
        msmq=Msmq(2, 3, RECEIPT_MANAGER, date("20070723T032451"), correlation=correlation, app=0, hash_algorithm=0),
    )
    commitment = read(COMMITMENT_RECEIPT)
    assert commitment.msmq == Msmq(
        16384, 3, RECEIPT_MANAGER, date("20070723T032721"), correlation=correlation, app=0, hash_algorithm=0
    )
    assert commitment.commitment_receipt == CommitmentReceipt(
        date("20070719T032721"), Decision.POSITIVE, f"uuid:1@{NULL_TEXT}"
    )
    for receipt in (delivery, commitment):
        assert is_receipt(receipt)
        assert split_entity("text/xml", write_envelope(receipt)) == (write_envelope(receipt), Attachments())
        view = MessageView(packet_of(receipt, Attachments(), now=0))
        assert view.correlation_id == correlation
        assert view.response_queue.direct_name == "http://machine2/msmq/private$/simpleq"
        assert receipt.msmq is not None
        assert view.message_class == receipt.msmq.message_class


@pytest.mark.spec("SRM-4.4-03", "SRM-2.2.5.3.4-02", "SRM-2.2.5.3.4-05", "SRM-3.1.5.1.1-22")
def test_4_4_the_stream() -> None:
    first, second, third = map(read, STREAM)
    assert first.stream == Stream(STREAM_NAME, 1, None, STREAM_RECEIPTS_TO)
    assert second.stream == Stream(STREAM_NAME, 2)
    assert third.stream == Stream(STREAM_NAME, 3)
    assert not is_receipt(first)
    views = [received(text, body) for text, body in zip(STREAM, STREAM_BODIES, strict=True)]
    assert [view.body for view in views] == [b"First Message", b"Message 0", b"Last Message"]
    fields = [view.transaction_fields for view in views]
    assert [each and each[1:] for each in fields] == [
        (6, 0x432B1643, 1, 0),
        (6, 0x432B1643, 2, 1),
        (6, 0x432B1643, 3, 2),
    ]
    assert all(view.recoverable for view in views)
    assert views[0].admin_queue.direct_name == STREAM_RECEIPTS_TO


@pytest.mark.spec("SRM-4.4-04", "SRM-6-13")
def test_4_4_the_source_tells_messages_with_one_id_apart() -> None:
    assert len({envelope.path.id for envelope in map(read, STREAM)}) == 1
    found = [identifier_of(read(text)) for text in STREAM]
    assert found[0] == MessageId(UUID("dc1cd9a6-8130-4504-88d2-851707fe4632"), 1)
    assert len(set(found)) == 3


@pytest.mark.spec("SRM-4.4-01")
def test_4_4_the_stream_receipts() -> None:
    for number, text in enumerate(STREAM_RECEIPTS, start=1):
        envelope = read(text)
        assert envelope.path == Path(
            "MSMQ:QM Ordering Ack",
            STREAM_RECEIPTS_TO,
            f"uuid:{26639 + 2 * number}@{STREAM_RECEIPT_MANAGER}",
            "http://machine2/msmq/private$/tsimpleq",
        )
        assert envelope.stream_receipt == StreamReceipt(STREAM_NAME, number)
        assert envelope.msmq is not None
        assert (envelope.msmq.message_class, envelope.msmq.priority) == (255, 0)


@pytest.mark.spec("SRM-4.5-02", "SRM-3.1.7.2.4-08")
def test_4_5_the_multicast_message_has_779_octets() -> None:
    envelope = Envelope(
        Path("MSMQ:mqsender label", "MSMQ:MULTICAST=234.1.1.1:8001", f"uuid:4494@{STREAM_RECEIPT_MANAGER}"),
        Properties(NO_EXPIRY, date("20070608T023719")),
        msmq=Msmq(
            0,
            3,
            STREAM_RECEIPT_MANAGER,
            date("20070612T023719"),
            body_type=8,
            correlation=bytes(20),
            app=0,
            hash_algorithm=32772,
        ),
    )
    octets = write_envelope(envelope)
    assert len(octets) == 779
    assert octets == MULTICAST.encode()
    _, pieces = join_entity(octets, Attachments(bytes(20)), STREAM_RECEIPT_MANAGER, 292)
    assert sum(map(len, pieces)) == 1067


@pytest.mark.spec("SRM-4.1-04")
@pytest.mark.parametrize(
    ("number", "envelope", "body", "whole"),
    [
        (53287, 619, 13, 906),
        (26500, 775, 223, 1273),
        (95692, 1233, 45, 1553),
        (1672, 1465, 13, 1750),
        (1672, 1220, 9, 1500),
        (1672, 1240, 12, 1524),
    ],
)
def test_the_length_of_each_sample_is_that_of_its_parts_and_the_frame(
    number: int, envelope: int, body: int, whole: int
) -> None:
    _, pieces = join_entity(bytes(envelope), Attachments(bytes(body)), BODY_MANAGER, number)
    assert sum(map(len, pieces)) == whole


@pytest.mark.spec("SRM-4.1-03", "SRM-4.1-07", "SRM-4.1-08", "SRM-4.1-10", "SRM-2.2.2-07")
def test_4_1_the_frame_to_the_octet() -> None:
    content_type, pieces = join_entity(SIMPLE.encode(), Attachments(SIMPLE_BODY), BODY_MANAGER, 53287)
    assert content_type == 'multipart/related; boundary="MSMQ - SOAP boundary, 53287"; type=text/xml'
    assert (
        b"".join(pieces)
        == (
            "--MSMQ - SOAP boundary, 53287\r\n"
            "Content-Type: text/xml; charset=UTF-8\r\n"
            f"Content-Length: {len(SIMPLE)}\r\n"
            "\r\n"
            f"{SIMPLE}--MSMQ - SOAP boundary, 53287\r\n"
            "Content-Type: application/octet-stream\r\n"
            "Content-Length: 13\r\n"
            "Content-Id: body@ff3af301-3196-497a-a918-72147c871a13\r\n"
            "\r\n"
            "First Message--MSMQ - SOAP boundary, 53287--\r\n"
        ).encode()
    )
    assert join_entity(SIMPLE.encode(), Attachments(SIMPLE_BODY), BODY_MANAGER, 292)[0] != content_type


@pytest.mark.spec("SRM-4.3-04")
def test_4_3_nothing_attached_is_text_xml_alone() -> None:
    octets = DELIVERY_RECEIPT.encode()
    assert join_entity(octets, Attachments(), RECEIPT_MANAGER, 1) == ("text/xml", [octets])
    assert split_entity("text/xml", octets) == (octets, Attachments())
