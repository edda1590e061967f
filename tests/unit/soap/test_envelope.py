"""[MC-MQSRM] 2.2.2 to 2.2.5: which envelopes are read, which are refused, and what they contain."""

from __future__ import annotations

import pytest

from postroad.soap.elements import (
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceiptRequest,
    Properties,
    Services,
    Stream,
)
from postroad.soap.envelope import START, write_envelope
from postroad.soap.simple_types import parse_date, parse_stream_id
from tests.soap_samples import (
    COMMITMENT_RECEIPT,
    DELIVERY_RECEIPT,
    NULL_TEXT,
    ORDER,
    ORDER_MANAGER,
    STREAM_ID,
    STREAM_RECEIPTS,
    added,
    changed,
    joined,
    read,
    refused,
    without,
)

SIMPLE = joined(without(ORDER, "Msmq"))
SRMP = "http://schemas.xmlsoap.org/srmp/"
HEADER_END = "</se:Header>"
MARKED = 'se:mustUnderstand="1"'
STREAM = (
    f"<stream {MARKED}><streamId>{STREAM_ID}</streamId><current>42</current><previous>41</previous>"
    "<start><sendReceiptsTo>http://a/msmq/private$/receipts</sendReceiptsTo></start></stream>"
)
STREAMED = changed(ORDER, HEADER_END, STREAM + HEADER_END)


def block(element: str, text: str = ORDER) -> str:
    """The sample with one more block in its header."""
    return changed(text, HEADER_END, element + HEADER_END)


def services(inside: str) -> Services:
    found = read(block(f"<services {MARKED}>{inside}</services>")).services
    assert found is not None
    return found


# 2.2.2, the structure


@pytest.mark.spec("SRM-2.2.2-01", "SRM-2.2.3-01")
def test_the_root_is_the_envelope_of_soap_1_1() -> None:
    assert read(ORDER).path.to == "http://machine2/msmq/private$/simpleQ"
    assert refused(ORDER.replace("soap/envelope/", "soap/envelope")).place == "Envelope"
    assert (
        refused(ORDER.replace("schemas.xmlsoap.org/soap/envelope/", "www.w3.org/2003/05/soap-envelope")).place
        == "Envelope"
    )
    assert refused(ORDER.replace("se:Envelope", "se:Letter")).place == "Envelope"
    assert write_envelope(read(ORDER)).startswith(b'<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" ')


@pytest.mark.spec("SRM-2.2.2-02")
@pytest.mark.parametrize("name", ["x:other", "other", "x:path", "Properties"])
def test_an_unknown_block_is_ignored_unless_it_has_to_be_understood(name: str) -> None:
    def other(mark: str) -> str:
        return block(f'<{name} xmlns:x="urn:x"{mark}><to>elsewhere</to></{name}>')

    assert read(other("")) == read(other(' se:mustUnderstand="0"')) == read(ORDER)
    fault = refused(other(f" {MARKED}"))
    assert fault.place == "Header"
    assert "mustUnderstand" in fault.fault
    assert refused(other(f' {MARKED} se:actor="http://schemas.xmlsoap.org/soap/actor/next"'))
    assert read(other(f' {MARKED} se:actor="urn:somebody-else"')) == read(ORDER)


@pytest.mark.spec("SRM-2.2.2-03")
def test_the_header_is_there_and_first() -> None:
    header = ORDER[ORDER.index("<se:Header>") : ORDER.index("<se:Body>")]
    assert refused(ORDER.replace(header, "")).place == "Header"
    body_first = ORDER.replace(header, "").replace("</se:Envelope>", header + "</se:Envelope>")
    assert refused(body_first).place == "Header"
    assert refused(ORDER.replace("se:Header", "Header")).place == "Header"
    assert refused(changed(ORDER, "<se:Header>", "<x/><se:Header>")).place == "Header"


@pytest.mark.spec("SRM-2.2.2-04")
def test_the_body_is_there_right_behind_the_header() -> None:
    assert refused(ORDER.replace("<se:Body></se:Body>", "")).place == "Body"
    assert refused(ORDER.replace("se:Body", "Body")).place == "Body"
    assert refused(changed(ORDER, "<se:Body>", "<x/><se:Body>")).place == "Body"
    assert read(ORDER.replace("<se:Body></se:Body>", "<se:Body/>")) == read(ORDER)
    assert read(ORDER.replace("<se:Body></se:Body>", "\n<se:Body>\n</se:Body><x/>")) == read(ORDER)
    assert b"</se:Header><se:Body></se:Body></se:Envelope>" in write_envelope(read(ORDER))


@pytest.mark.spec("SRM-2.2.2-05", "SRM-2.2.2-06")
def test_what_the_body_holds_is_ignored_and_never_written() -> None:
    text = ORDER.replace("<se:Body></se:Body>", "<se:Body>text<order><path/></order></se:Body>")
    assert read(text) == read(ORDER)
    assert write_envelope(read(text)) == ORDER.encode()


@pytest.mark.spec("SRM-2.2.3-05", "SRM-2.2.5-01")
def test_prefixes_carry_no_meaning() -> None:
    text = ORDER
    for name in ("properties", "expiresAt", "sentAt"):
        text = text.replace(f"<{name}", f"<s:{name}").replace(f"</{name}", f"</s:{name}")
    text = text.replace("se:", "soap:").replace(":se=", ":soap=").replace(f'xmlns="{SRMP}"', f'xmlns:s="{SRMP}"')
    assert "se:" not in text
    assert read(text) == read(ORDER)
    each = changed(ORDER, f' xmlns="{SRMP}"', "").replace("<properties ", f'<properties xmlns="{SRMP}" ')
    assert read(each) == read(ORDER)


def test_no_block_and_no_element_is_there_twice() -> None:
    for element in ("<Priority>3</Priority>", "<to>http://x/msmq/q</to>", "<sentAt>20070719T031140</sentAt>"):
        parent = {"P": "Msmq", "t": "path", "s": "properties"}[element[1]]
        assert "twice" in refused(added(ORDER, parent, element)).fault
    properties = f"<properties {MARKED}><expiresAt>20380119T031407</expiresAt></properties>"
    assert refused(block(properties)).place == "properties"
    assert refused(block("<Msmq xmlns='msmq.namespace.xml'/>")).place == "Msmq"


# 2.2.4, the path


@pytest.mark.spec("SRM-2.2.3-02", "SRM-2.2.4-02")
def test_the_path() -> None:
    assert refused(without(ORDER, "path")).place == "path"
    assert refused(ORDER.replace("xmlsoap.org/rp/", "xmlsoap.org/rp")).place == "Header"  # unknown, yet mustUnderstand
    assert refused(changed(ORDER.replace("xmlsoap.org/rp/", "x"), f'x" {MARKED}', 'x"')).place == "path"
    assert b'<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">' in write_envelope(read(ORDER))


@pytest.mark.spec("SRM-2.2.4-03", "SRM-2.2.5.1-02", "SRM-2.2.5.2-02", "SRM-2.2.5.3-02")
@pytest.mark.parametrize("name", ["path", "properties", "services", "stream"])
@pytest.mark.parametrize("mark", ["", 'se:mustUnderstand="0"', 'mustUnderstand="1"', 'se:mustUnderstand="true"'])
def test_four_blocks_are_marked(name: str, mark: str) -> None:
    text = block(f"<services {MARKED}><durable/></services>", STREAMED)
    start = text.index(f"<{name} ")
    unmarked = text[:start] + text[start:].replace(MARKED, mark, 1)
    fault = refused(unmarked)
    assert fault.place == name
    assert 'se:mustUnderstand="1"' in fault.fault
    assert f"<{name} " in (written := write_envelope(read(text)).decode())
    assert MARKED in written[written.index(f"<{name} ") :].partition(">")[0]


@pytest.mark.spec("SRM-2.2.4.1-01")
def test_the_action() -> None:
    assert refused(without(ORDER, "action")).place == "path/action"
    assert read(changed(ORDER, "<action>MSMQ:</action>", "<action/>")).path.action == ""
    assert read(changed(ORDER, "MSMQ:", "MSMQ: a &lt; b ")).path.action == "MSMQ: a < b "


@pytest.mark.spec("SRM-2.2.4.2-01")
def test_the_destination() -> None:
    to = "<to>http://machine2/msmq/private$/simpleQ</to>"
    for wrong in ("", "<to/>", "<to>  </to>", "<to><b/></to>", "<to>machine2</to>", "<to>DIRECT=http://a/msmq/q</to>"):
        assert refused(changed(ORDER, to, wrong)).place == "path/to"
    for right in ("https://a/msmq/q", "HTTP://a/MSMQ/q", "MSMQ:MULTICAST=234.1.1.1:8001"):
        assert read(changed(ORDER, to, f"<to>\n  {right}\n</to>")).path.to == right


@pytest.mark.spec("SRM-2.2.4.3-01", "SRM-2.2.4.3-03")
def test_the_id() -> None:
    assert refused(without(ORDER, "id")).place == "path/id"
    assert refused(without(SIMPLE, "id")).place == "path/id"
    for wrong in ("garbage", "", f"uuid:20503\\{ORDER_MANAGER}", f"uuid:-1@{ORDER_MANAGER}", "uuid:1@x"):
        assert refused(changed(ORDER, f"uuid:20503@{ORDER_MANAGER}", wrong)).place == "path/id"


@pytest.mark.spec("SRM-2.2.4.3-02")
def test_without_msmq_any_id_will_do() -> None:
    for text in ("garbage", "", f"uuid:99999999999999999999@{ORDER_MANAGER}"):
        assert read(changed(SIMPLE, f"uuid:20503@{ORDER_MANAGER}", text)).path.id == text


@pytest.mark.spec("SRM-2.2.4.4-01", "SRM-2.2.4.4-02", "SRM-2.2.4.4-05")
def test_the_reverse_path_is_one_via() -> None:
    assert read(ORDER).path.via is None
    via = "<via>http://a/msmq/q</via>"
    assert read(added(ORDER, "path", f"<rev>{via}</rev>")).path.via == "http://a/msmq/q"
    for wrong in ("<rev/>", f"<rev>{via}{via}</rev>", "<rev><other/></rev>"):
        assert refused(added(ORDER, "path", wrong)).place == "path/rev/via"
    for empty in ("<via/>", "<via></via>", "<via> </via>"):
        assert read(added(ORDER, "path", f"<rev>{empty}</rev>")) == read(ORDER)


@pytest.mark.spec("SRM-2.2.4.5-01", "SRM-2.2.4.5-02")
def test_the_rest_of_ws_routing_is_ignored() -> None:
    others = "<fwd><via>http://b/msmq/q</via></fwd><from>x</from><relatesTo>uuid:1</relatesTo><fault><code>810</code></fault>"
    assert read(added(ORDER, "path", others)) == read(ORDER)


# 2.2.5.1, properties


@pytest.mark.spec("SRM-2.2.3-03", "SRM-2.2.5.1-01")
def test_the_properties() -> None:
    assert refused(without(ORDER, "properties")).place == "properties"
    assert refused(changed(ORDER, "<properties ", '<properties xmlns="urn:x" ')).place == "Header"
    moved = changed(
        changed(ORDER, f"<properties {MARKED}", '<x:properties xmlns:x="urn:x"'), "</properties", "</x:properties"
    )
    assert refused(moved).place == "properties"


@pytest.mark.spec("SRM-2.2.5.1.1-01", "SRM-2.2.5.1.1-02")
def test_the_expiry() -> None:
    assert read(ORDER).properties.expires_at == 0x7FFFFFFF
    assert refused(without(ORDER, "expiresAt")).place == "properties/expiresAt"
    for wrong in ("", "tomorrow", "2038-01-19T03:14:07", "20380119T031407Z", "20380119T031407+0100"):
        assert refused(changed(ORDER, "20380119T031407", wrong)).place == "properties/expiresAt"


@pytest.mark.spec("SRM-2.2.5.1.2-01", "SRM-2.2.5.1.2-02")
def test_the_time_of_sending() -> None:
    assert read(ORDER).properties.sent_at == parse_date("20070719T031140", "") == 1184814700
    assert read(without(ORDER, "sentAt")).properties == Properties(0x7FFFFFFF)
    for wrong in ("", "20070719T0311", "20070719T031140Z"):
        assert refused(changed(ORDER, "20070719T031140</sentAt", f"{wrong}</sentAt")).place == "properties/sentAt"


@pytest.mark.spec("SRM-2.2.5.1.1-02", "SRM-2.2.5.1.2-02")
def test_times_are_utc_wherever_this_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        parse_date.__globals__["_seconds"].cache_clear()
        assert read(ORDER).properties == Properties(0x7FFFFFFF, 1184814700)
        assert b"<sentAt>20070719T031140</sentAt>" in write_envelope(read(ORDER))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.spec("SRM-2.2.5.1.3-01", "SRM-2.2.5.1.3-02")
def test_in_reply_to_is_ignored() -> None:
    assert read(added(ORDER, "properties", "<inReplyTo>uuid:1@x</inReplyTo>")) == read(ORDER)


# 2.2.5.2, services


@pytest.mark.spec("SRM-2.2.5.2-01", "SRM-2.2.5.2.1-01")
def test_the_services() -> None:
    assert read(ORDER).services is None
    assert services("") == Services()
    assert services("<durable/>") == services("<durable></durable>") == Services(durable=True)


@pytest.mark.spec("SRM-2.2.5.2.2-01", "SRM-2.2.5.2.2-02", "SRM-2.2.5.2.2-03")
def test_a_delivery_receipt_request() -> None:
    request = "<deliveryReceiptRequest>{}</deliveryReceiptRequest>"
    found = services(request.format("<sendTo> http://a/msmq/private$/admin\n</sendTo>"))
    assert found == Services(delivery_receipt_request=DeliveryReceiptRequest("http://a/msmq/private$/admin"))
    assert services(request.format("<sendTo>HTTPS://a/msmq/q</sendTo>")).delivery_receipt_request
    for wrong in ("", "<sendTo/>", r"<sendTo>MSMQ:DIRECT=OS:a\q</sendTo>", r"<sendTo>DIRECT=OS:a\private$\q</sendTo>"):
        fault = refused(block(f"<services {MARKED}>{request.format(wrong)}</services>"))
        assert fault.place == "deliveryReceiptRequest/sendTo"


@pytest.mark.spec("SRM-2.2.5.2.3-01", "SRM-2.2.5.2.3-02", "SRM-2.2.5.2.3-03")
def test_a_commitment_receipt_request() -> None:
    request = "<commitmentReceiptRequest>{}</commitmentReceiptRequest>"
    url = "http://a/msmq/private$/admin"
    for flags, positive, negative in (
        ("", False, False),
        ("<positiveOnly/>", True, False),
        ("<negativeOnly/>", False, True),
        ("<negativeOnly/><positiveOnly/>", True, True),
    ):
        for inside in (f"<sendTo>{url}</sendTo>{flags}", f"{flags}<sendTo>{url}</sendTo>"):
            found = services(request.format(inside)).commitment_receipt_request
            assert found == CommitmentReceiptRequest(url, positive, negative)
    for wrong in ("<positiveOnly/>", "<sendTo>MSMQ:PUBLIC=x</sendTo>"):
        fault = refused(block(f"<services {MARKED}>{request.format(wrong)}</services>"))
        assert fault.place == "commitmentReceiptRequest/sendTo"


# 2.2.5.3, streams


@pytest.mark.spec("SRM-2.2.5.3-01", "SRM-2.2.5.3.3-01", "SRM-2.2.5.3.4-02")
def test_a_stream() -> None:
    assert read(ORDER).stream is None
    stream_id = parse_stream_id(STREAM_ID, "")
    assert read(STREAMED).stream == Stream(stream_id, 42, 41, "http://a/msmq/private$/receipts")
    assert read(without(without(STREAMED, "previous"), "start")).stream == Stream(stream_id, 42)
    lines = STREAMED.replace("http://a/msmq/private$/receipts", "\n   http://a/msmq/private$/receipts\r\n ")
    assert read(lines) == read(STREAMED)


@pytest.mark.spec("SRM-2.2.5.3-03")
def test_a_stream_needs_msmq() -> None:
    assert refused(without(STREAMED, "Msmq")).place == "stream"


@pytest.mark.spec("SRM-2.2.5.3.1-01", "SRM-2.2.5.3.1-02", "SRM-2.2.5.3.2-01", "SRM-2.2.5.3.3-02", "SRM-2.2.5.3.4-01")
def test_what_a_stream_holds() -> None:
    assert refused(without(STREAMED, "streamId")).place == "stream/streamId"
    assert refused(changed(STREAMED, "uid:2744", "uuid:2744")).place == "stream/streamId"
    assert refused(without(STREAMED, "current")).place == "stream/current"
    for wrong in ("", "x", "-1", "4294967296"):
        assert refused(changed(STREAMED, ">42<", f">{wrong}<")).place == "stream/current"
        assert refused(changed(STREAMED, ">41<", f">{wrong}<")).place == "stream/previous"
    assert refused(without(STREAMED, "sendReceiptsTo")).place == "stream/start/sendReceiptsTo"
    wrong = changed(STREAMED, "http://a/msmq/private$/receipts", r"MSMQ:DIRECT=OS:a\private$\receipts")
    assert refused(wrong).place == "stream/start/sendReceiptsTo"


# 2.2.5.4 to 2.2.5.6, receipts


@pytest.mark.spec("SRM-2.2.5.4-02", "SRM-2.2.5.4-03")
def test_a_delivery_receipt() -> None:
    found = read(DELIVERY_RECEIPT).delivery_receipt
    assert found is not None
    assert (found.received_at, found.id) == (parse_date("20070719T032454", ""), f"uuid:1@{NULL_TEXT}")
    assert refused(without(DELIVERY_RECEIPT, "receivedAt")).place == "deliveryReceipt/receivedAt"
    assert refused(changed(DELIVERY_RECEIPT, "20070719T032454", "now")).place == "deliveryReceipt/receivedAt"
    assert refused(changed(DELIVERY_RECEIPT, f"<id>uuid:1@{NULL_TEXT}</id>", "")).place == "deliveryReceipt/id"
    foreign = f'<id xmlns="http://schemas.xmlsoap.org/rp/">uuid:1@{NULL_TEXT}</id>'
    assert refused(changed(DELIVERY_RECEIPT, f"<id>uuid:1@{NULL_TEXT}</id>", foreign)).place == "deliveryReceipt/id"


@pytest.mark.spec("SRM-2.2.5.5-02", "SRM-2.2.5.5-03", "SRM-2.2.5.5-04")
def test_a_commitment_receipt() -> None:
    found = read(COMMITMENT_RECEIPT).commitment_receipt
    assert found is not None
    assert (found.decision, found.id) == (Decision.POSITIVE, f"uuid:1@{NULL_TEXT}")
    assert found.decided_at == parse_date("20070719T032721", "")
    negative = read(changed(COMMITMENT_RECEIPT, "positive", "negative")).commitment_receipt
    assert negative is not None
    assert negative.decision is Decision.NEGATIVE
    for wrong in ("", "Positive", "maybe"):
        assert refused(changed(COMMITMENT_RECEIPT, "positive", wrong)).place == "commitmentReceipt/decision"
    assert refused(without(COMMITMENT_RECEIPT, "decision")).place == "commitmentReceipt/decision"
    assert refused(without(COMMITMENT_RECEIPT, "decidedAt")).place == "commitmentReceipt/decidedAt"
    assert refused(changed(COMMITMENT_RECEIPT, "<decidedAt>20070719T032721", "<decidedAt>20070719")).place == (
        "commitmentReceipt/decidedAt"
    )
    assert refused(changed(COMMITMENT_RECEIPT, f"<id>uuid:1@{NULL_TEXT}</id>", "")).place == "commitmentReceipt/id"


@pytest.mark.spec("SRM-2.2.5.6-02", "SRM-2.2.5.6-03")
def test_a_stream_receipt() -> None:
    text = STREAM_RECEIPTS[1]
    found = read(text).stream_receipt
    assert found is not None
    assert (found.stream_id, found.last_ordinal) == (parse_stream_id(STREAM_ID, ""), 2)
    assert refused(without(text, "streamId")).place == "streamReceipt/streamId"
    assert refused(without(text, "lastOrdinal")).place == "streamReceipt/lastOrdinal"
    assert refused(changed(text, ">2<", ">two<")).place == "streamReceipt/lastOrdinal"
    assert STREAM_ID.encode() in write_envelope(read(text))


@pytest.mark.spec("SRM-2.2.5-02")
def test_the_six_blocks_of_srmp_and_no_other() -> None:
    for name in ("properties", "services", "stream", "deliveryReceipt", "commitmentReceipt", "streamReceipt"):
        text = without(ORDER, "properties") if name == "properties" else ORDER
        assert refused(block(f"<{name} {MARKED}/>", text)) if name != "services" else services("") == Services()
    assert refused(block(f"<receipt {MARKED}/>")).place == "Header"
    assert read(block("<receipt/>")) == read(ORDER)


# The text that was read


def test_the_source_is_kept_to_the_letter() -> None:
    text = ORDER.replace("<se:Body></se:Body>", "<!-- - --> <se:Body a='1'> x </se:Body>\n<after/>")
    source = read(text).source
    assert source is not None
    assert source.header.startswith("<se:Header><path ")
    assert source.header.startswith(text[text.index("<se:Header>") : text.index("</se:Header>") + len("</se:Header>")])
    assert source.body == "<se:Body a='1'> x </se:Body>"


def test_the_source_stands_by_itself_whatever_the_prefixes_were() -> None:
    text = ORDER
    for name in ("properties", "expiresAt", "sentAt"):
        text = text.replace(f"<{name}", f"<s:{name}").replace(f"</{name}", f"</s:{name}")
    text = text.replace("se:", "soap:").replace(":se=", ":soap=").replace(f'xmlns="{SRMP}"', f'xmlns:s="{SRMP}"')
    envelope = read(text)
    assert envelope.source is not None
    again = read(f"{START}{envelope.source.header}{envelope.source.body}</se:Envelope>")
    assert again == envelope == read(ORDER)


def test_a_sentence_does_not_repeat_a_megabyte() -> None:
    assert str(refused(changed(ORDER, "http://machine2/", "ftp://" + "x" * 500_000))) == (
        f"path/to: must start with http://, https:// or MSMQ:MULTICAST=, got 'ftp://{'x' * 71}...'"
    )
    assert len(str(refused(changed(ORDER, "<Priority>3<", f"<Priority>{'9' * 500_000}<")))) < 200
    assert len(str(refused(block(f"<{'x' * 500_000} {MARKED}/>")))) == 300
