"""[MC-MQSRM] 3.1.7.2.4: what is written, element by element and octet by octet."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Provider,
    Reference,
    Services,
    Signature,
    Stream,
    StreamReceipt,
)
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.requests import action_of
from postroad.soap.signature import DSA, SHA1
from postroad.soap.simple_types import parse_date, parse_stream_id
from tests.soap_samples import STREAM_ID

MANAGER = UUID("32221eda-9376-46df-b6ed-783091123831")
CONNECTOR = UUID("fd74b8eb-2af7-4ac5-9405-074e315df392")
SENT = parse_date("20070618T210654", "")
PATH = Path("MSMQ:label", "http://b/msmq/private$/q", f"uuid:7@{MANAGER}")
PLAIN = Envelope(PATH, Properties(SENT + 60, SENT), msmq=Msmq(0, 3, MANAGER, SENT + 60))
EVERYTHING = Envelope(
    Path("MSMQ:label", "http://b/msmq/private$/q", f"uuid:7@{MANAGER}", "http://a/msmq/private$/answers"),
    Properties(SENT + 60, SENT),
    Services(
        True,
        DeliveryReceiptRequest("http://a/msmq/private$/admin"),
        CommitmentReceiptRequest("http://a/msmq/private$/admin", True, True),
    ),
    Stream(parse_stream_id(STREAM_ID, ""), 42, 41, "http://a/MSMQ/PRIVATE$/order_queue$"),
    msmq=Msmq(
        message_class=0,
        priority=3,
        source_qm_guid=MANAGER,
        ttrq=SENT + 60,
        body_type=8,
        journal=True,
        dead_letter=True,
        correlation=bytes(range(20)),
        trace=True,
        connector_type=CONNECTOR,
        app=36,
        hash_algorithm=32772,
        eod=Eod(True, True, CONNECTOR),
        provider=Provider(1, "P & Q"),
        destination_mqf=("http://b/msmq/q", "http://c/msmq/q"),
        admin_mqf=("http://a/msmq/admin",),
        response_mqf=("http://a/msmq/answers", r"MSMQ:DIRECT=OS:a\answers"),
    ),
    signature=Signature(DSA, (Reference(f"cid:body@{MANAGER}", SHA1, bytes(20)),), bytes(64)),
)


def written(envelope: Envelope) -> str:
    return write_envelope(envelope).decode()


def header(envelope: Envelope) -> str:
    return written(envelope).partition("<se:Header>")[2].partition("</se:Header>")[0]


@pytest.mark.spec(
    "SRM-2.2.6.3-01",
    "SRM-3.1.7.2.4-01",
    "SRM-3.1.7.2.4-02",
    "SRM-3.1.7.2.4-03",
    "SRM-3.1.7.2.4-06",
    "SRM-3.1.7.2.4-18",
    "SRM-3.1.7.2.4-25",
)
def test_everything_in_its_order() -> None:
    assert written(EVERYTHING) == (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
        '<se:Header><path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:label</action>'
        f"<to>http://b/msmq/private$/q</to><id>uuid:7@{MANAGER}</id>"
        "<rev><via>http://a/msmq/private$/answers</via></rev></path>"
        '<properties se:mustUnderstand="1"><expiresAt>20070618T210754</expiresAt><sentAt>20070618T210654</sentAt>'
        '</properties><services se:mustUnderstand="1"><durable/>'
        "<deliveryReceiptRequest><sendTo>http://a/msmq/private$/admin</sendTo></deliveryReceiptRequest>"
        "<commitmentReceiptRequest><sendTo>http://a/msmq/private$/admin</sendTo><positiveOnly/><negativeOnly/>"
        "</commitmentReceiptRequest></services>"
        f'<stream se:mustUnderstand="1"><streamId>{STREAM_ID}</streamId><current>42</current><previous>41</previous>'
        "<start><sendReceiptsTo>http://a/MSMQ/PRIVATE$/order_queue$</sendReceiptsTo></start></stream>"
        '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority><Journal/><DeadLetter/>'
        "<Correlation>AAECAwQFBgcICQoLDA0ODxAREhM=</Correlation><Trace/>"
        f"<ConnectorType>{CONNECTOR}</ConnectorType><App>36</App><BodyType>8</BodyType>"
        f"<HashAlgorithm>32772</HashAlgorithm><Eod><First/><Last/><ConnectorId>{CONNECTOR}</ConnectorId></Eod>"
        f"<Provider><Type>1</Type><Name>P &amp; Q</Name></Provider><SourceQmGuid>{MANAGER}</SourceQmGuid>"
        "<DestinationMqf>http://b/msmq/q\nhttp://c/msmq/q\n</DestinationMqf><AdminMqf>http://a/msmq/admin\n</AdminMqf>"
        "<ResponseMqf>http://a/msmq/answers\nMSMQ:DIRECT=OS:a\\answers\n</ResponseMqf><TTrq>20070618T210754</TTrq></Msmq>"
        '<Signature xmlns="http://www.w3.org/2000/02/xmldsig#"><SignedInfo>'
        '<SignatureMethod Algorithm="http://www.w3.org/2000/02/xmldsig#dsa"></SignatureMethod>'
        f'<Reference URI="cid:body@{MANAGER}">'
        '<DigestMethod Algorithm="http://www.w3.org/2000/02/xmldsig#sha1"></DigestMethod>'
        "<DigestValue>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</DigestValue></Reference></SignedInfo>"
        f"<SignatureValue>{'A' * 86}==</SignatureValue></Signature>"
        "</se:Header><se:Body></se:Body></se:Envelope>"
    )
    assert read_envelope(write_envelope(EVERYTHING)) == EVERYTHING


@pytest.mark.spec("SRM-3.1.7.2.4-04", "SRM-2.2.4.1-02", "SRM-2.2.4.1-03")
def test_the_action() -> None:
    for label, action in (
        (None, "<action></action>"),
        ("", "<action>MSMQ:</action>"),
        ("abc", "<action>MSMQ:abc</action>"),
    ):
        assert action in written(replace(PLAIN, path=replace(PATH, action=action_of(label))))


@pytest.mark.spec("SRM-3.1.7.2.4-07", "SRM-3.1.7.2.4-09", "SRM-3.1.7.2.4-12")
def test_what_is_absent_is_not_written() -> None:
    assert header(PLAIN) == (
        '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:label</action>'
        f"<to>http://b/msmq/private$/q</to><id>uuid:7@{MANAGER}</id></path>"
        '<properties se:mustUnderstand="1"><expiresAt>20070618T210754</expiresAt><sentAt>20070618T210654</sentAt>'
        '</properties><Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority><BodyType>0</BodyType>'
        f"<SourceQmGuid>{MANAGER}</SourceQmGuid><TTrq>20070618T210754</TTrq></Msmq>"
    )


@pytest.mark.spec("SRM-3.1.7.2.4-13", "SRM-3.1.7.2.4-14")
def test_the_first_message_of_a_stream_has_a_start_and_nothing_before_it() -> None:
    stream_id = parse_stream_id(STREAM_ID, "")
    first = header(replace(PLAIN, stream=Stream(stream_id, 1, 0, "http://a/msmq/q")))
    assert "<current>1</current><start><sendReceiptsTo>http://a/msmq/q</sendReceiptsTo></start></stream>" in first
    assert "<previous>" not in first
    second = header(replace(PLAIN, stream=Stream(stream_id, 2, 1)))
    assert "<current>2</current><previous>1</previous></stream>" in second


@pytest.mark.spec("SRM-3.1.7.2.4-23")
def test_exactly_once_delivery() -> None:
    assert PLAIN.msmq is not None
    for eod, text in (
        (None, ""),
        (Eod(first=True), "<Eod><First/></Eod>"),
        (Eod(last=True), "<Eod><Last/></Eod>"),
        (Eod(connector_id=CONNECTOR), f"<Eod><ConnectorId>{CONNECTOR}</ConnectorId></Eod>"),
    ):
        found = header(replace(PLAIN, msmq=replace(PLAIN.msmq, eod=eod)))
        assert f"<BodyType>0</BodyType>{text}<SourceQmGuid>" in found


@pytest.mark.spec("SRM-4.3-11")
def test_receipts_stand_between_properties_and_msmq_without_a_mark() -> None:
    final = replace(
        PLAIN,
        stream_receipt=StreamReceipt(parse_stream_id(STREAM_ID, ""), 3),
        commitment_receipt=CommitmentReceipt(SENT, Decision.NEGATIVE, "uuid:1@x"),
    )
    assert (
        f"</properties><streamReceipt><streamId>{STREAM_ID}</streamId><lastOrdinal>3</lastOrdinal></streamReceipt>"
        "<commitmentReceipt><decidedAt>20070618T210654</decidedAt><decision>negative</decision><id>uuid:1@x</id>"
        "</commitmentReceipt><Msmq "
    ) in header(final)
    assert read_envelope(write_envelope(final)) == final


@pytest.mark.parametrize("text", ["a & b", "<b>", "]]>", "\r\n", "&amp;", '"quoted"', "日本語 \U0001f4ee", " spaces "])
def test_any_text_survives(text: str) -> None:
    envelope = replace(PLAIN, path=replace(PATH, action=f"MSMQ:{text}"))
    assert read_envelope(write_envelope(envelope)) == envelope


@pytest.mark.parametrize("text", ["\0", "\x1b", "\ud800", "\uffff"])
def test_what_xml_cannot_hold_is_our_own_fault(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="only characters that XML can express"):
        write_envelope(replace(PLAIN, path=replace(PATH, action=f"MSMQ:{text}")))


@pytest.mark.spec("SRM-6-15")
def test_what_is_never_written() -> None:
    for name in ("fwd", "from", "relatesTo", "fault", "inReplyTo"):
        assert f"<{name}" not in written(EVERYTHING)
