"""The messages of [MC-MQSRM] section 4, as a receiver gets them, and tools to change them.

Envelopes of applications have line breaks, as printed. Those of queue managers have none.
"""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from postroad.errors import MalformedSoap
from postroad.soap.elements import Envelope
from postroad.soap.envelope import read_any, read_envelope

NULL_TEXT = "00000000-0000-0000-0000-000000000000"
BODY_MANAGER = UUID("ff3af301-3196-497a-a918-72147c871a13")  # in the Content-Ids of the applications' samples

_START = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/"\n'
    'xmlns="http://schemas.xmlsoap.org/srmp/">\n  <se:Header>\n'
    '    <path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">\n'
)
_END = "  </se:Header>\n  <se:Body></se:Body>\n</se:Envelope>"


def joined(text: str) -> str:
    """The text without white space between elements, as a queue manager writes it."""
    return re.sub(r">\s+<", "><", text.replace('envelope/"\n', 'envelope/" '))


SIMPLE = (
    _START
    + f"""      <action>MSMQ:mqsender label</action>
      <to>http://machine2/msmq/private$/simpleq</to>
      <id>uuid:1@{NULL_TEXT}</id>
    </path>
    <properties se:mustUnderstand="1">
      <expiresAt>20070609T164419</expiresAt>
      <sentAt>20070608T164419</sentAt>
    </properties>
"""
    + _END
)
SIMPLE_BODY = b"First Message"

ORDER_MANAGER = UUID("caf195ea-615c-4264-ae08-11a4e60194c0")
ORDER = joined(
    _START
    + f"""      <action>MSMQ:</action>
      <to>http://machine2/msmq/private$/simpleQ</to>
      <id>uuid:20503@{ORDER_MANAGER}</id>
    </path>
    <properties se:mustUnderstand="1">
      <expiresAt>20380119T031407</expiresAt>
      <sentAt>20070719T031140</sentAt>
    </properties>
    <Msmq xmlns="msmq.namespace.xml">
      <Class>0</Class>
      <Priority>3</Priority>
      <Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation>
      <App>0</App>
      <BodyType>0</BodyType>
      <HashAlgorithm>32772</HashAlgorithm>
      <SourceQmGuid>{ORDER_MANAGER}</SourceQmGuid>
      <TTrq>20070723T031140</TTrq>
    </Msmq>
"""
    + _END
)
ORDER_BODY = b'<?xml version="1.0"?>\n<Order>\n  <orderId>3</orderId>\n</Order>'

RECEIPTS_WANTED = f"""<se:Envelope xmlns:se= "http://schemas.xmlsoap.org/soap/envelope/"
             xmlns:rp="http://schemas.xmlsoap.org/rp/"
             xmlns="http://schemas.xmlsoap.org/srmp/">
  <se:Header>
    <rp:path se:mustUnderstand="1">
      <rp:action>Generic label</rp:action>
      <rp:to>http://machine2/msmq/private$/simpleq</rp:to>
      <rp:id>uuid:1@{NULL_TEXT[:-1]}8</rp:id>
      <rp:rev>
        <rp:via>http://machine1/MSMQ/private$/Q1</rp:via>
      </rp:rev>
    </rp:path>
    <properties se:mustUnderstand="1">
      <expiresAt>20070720T032452</expiresAt>
      <sentAt>20070719T032452</sentAt>
    </properties>
    <services xmlns="http://schemas.xmlsoap.org/srmp/"
              se:mustUnderstand="1">
      <commitmentReceiptRequest>
        <sendTo>http://machine1/MSMQ/private$/deliverydone</sendTo>
        <negativeOnly/>
        <positiveOnly/>
      </commitmentReceiptRequest>
      <deliveryReceiptRequest>
        <sendTo>http://machine1/MSMQ/private$/receipts</sendTo>
      </deliveryReceiptRequest>
    </services>
  </se:Header>
  <se:Body></se:Body>
</se:Envelope>"""
RECEIPTS_WANTED_BODY = b"Both delivery and commitment receipt requests"

RECEIPT_MANAGER = UUID("ac678228-2dd6-418b-b31f-0539ffeea853")
FIRST_ID_BASE64 = "AAAAAAAAAAAAAAAAAAAAAAEAAAA="  # the id uuid:1 with the null GUID


def _receipt(action: str, to: str, via: str, message_id: str, sent_at: str, block: str, msmq: str) -> str:
    return joined(
        _START
        + f"""<action>{action}</action>
      <to>{to}</to>
      <rev>
        <via>{via}</via>
      </rev>
      <id>{message_id}</id>
    </path>
    <properties se:mustUnderstand="1">
      <expiresAt>20380119T031407</expiresAt>
      <sentAt>{sent_at}</sentAt>
    </properties>
    {block}
    <Msmq xmlns="msmq.namespace.xml">
      {msmq}
    </Msmq>
"""
        + _END
    )


def _receipt_msmq(message_class: int, priority: int, correlation: str, manager: UUID, ttrq: str) -> str:
    return f"""<Class>{message_class}</Class>
      <Priority>{priority}</Priority>
      <Correlation>{correlation}</Correlation>
      <App>0</App>
      <BodyType>0</BodyType>
      <HashAlgorithm>0</HashAlgorithm>
      <SourceQmGuid>{manager}</SourceQmGuid>
      <TTrq>{ttrq}</TTrq>"""


DELIVERY_RECEIPT = _receipt(
    "MSMQ:",
    "http://machine1/MSMQ/private$/receipts",
    "http://machine2/msmq/private$/simpleq",
    f"uuid:34826@{RECEIPT_MANAGER}",
    "20070719T032451",
    f"<deliveryReceipt><receivedAt>20070719T032454</receivedAt><id>uuid:1@{NULL_TEXT}</id></deliveryReceipt>",
    _receipt_msmq(2, 3, FIRST_ID_BASE64, RECEIPT_MANAGER, "20070723T032451"),
)
COMMITMENT_RECEIPT = _receipt(
    "MSMQ:",
    "http://machine1/MSMQ/private$/receipts",
    "http://machine2/msmq/private$/simpleq",
    f"uuid:34827@{RECEIPT_MANAGER}",
    "20070719T032721",
    "<commitmentReceipt><decidedAt>20070719T032721</decidedAt><decision>positive</decision>"
    f"<id>uuid:1@{NULL_TEXT}</id></commitmentReceipt>",
    _receipt_msmq(16384, 3, FIRST_ID_BASE64, RECEIPT_MANAGER, "20070723T032721"),
)

STREAM_ID = r"uid:2744e4e1-2b48-43e8-b441-42745f280d53\4839986701558349830"
STREAM_RECEIPTS_TO = "http://machine1/MSMQ/private$/receipts?SenderStream=XRntV"
STREAM_RECEIPT_MANAGER = UUID("32221eda-9376-46df-b6ed-783091123831")


def _stream_message(second: int, manager: str, inside: str) -> str:
    sent, expiry = (f"200706{day}T1{6 if second < 0 else 7}{59 if second < 0 else 0:02}" for day in (19, 20))
    seconds = f"{59 if second < 0 else second:02}"
    return (
        _START
        + f"""      <action>MSMQ:mqsender label</action>
      <to>http://machine2/msmq/private$/tsimpleq</to>
      <id>uuid:1@{NULL_TEXT[:-1]}8</id>
    </path>
    <properties se:mustUnderstand="1">
      <expiresAt>{expiry}{seconds}</expiresAt>
      <sentAt>{sent}{seconds}</sentAt>
    </properties>
    <Stream se:mustUnderstand="1">
      <streamId>{STREAM_ID}</streamId>
      {inside}
    </Stream>
    <Msmq xmlns="msmq.namespace.xml">
      <Class>0</Class>
      <Priority>0</Priority>
      <Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation>
      <App>0</App>
      <BodyType>0</BodyType>
      <HashAlgorithm>32772</HashAlgorithm>
      <SourceQmGuid>{manager}</SourceQmGuid>
      <TTrq>{expiry}{seconds}</TTrq>
    </Msmq>
"""
        + _END
    )


STREAM = (
    _stream_message(
        -1,
        "dc1cd9a6-8130-4504-88d2-851707fe4632",
        f"""<current>1</current>
      <start>
        <sendReceiptsTo>
          {STREAM_RECEIPTS_TO}
        </sendReceiptsTo>
        <expiresAt>20070620T165959</expiresAt>
      </start>
      <streamReceiptRequest/>""",
    ),
    _stream_message(0, "6a74a825-57b2-43e5-9d34-f1d8b2b8950a", "<current>2</current>"),
    _stream_message(1, "f306d4c7-be95-419a-9e3b-8c751d04b1e9", "<current>3</current>\n      <end/>"),
)
STREAM_BODIES = (b"First Message", b"Message 0", b"Last Message")


def _stream_receipt(number: int, sent_at: str, last_ordinal: int) -> str:
    return _receipt(
        "MSMQ:QM Ordering Ack",
        STREAM_RECEIPTS_TO,
        "http://machine2/msmq/private$/tsimpleq",
        f"uuid:{number}@{STREAM_RECEIPT_MANAGER}",
        f"20070619T{sent_at}",
        f"<streamReceipt><streamId>{STREAM_ID}</streamId><lastOrdinal>{last_ordinal}</lastOrdinal></streamReceipt>",
        _receipt_msmq(255, 0, "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", STREAM_RECEIPT_MANAGER, f"20070623T{sent_at}"),
    )


STREAM_RECEIPTS = (
    _stream_receipt(26641, "165958", 1),
    _stream_receipt(26643, "165959", 2),
    _stream_receipt(26645, "170001", 3),
)

MULTICAST = joined(
    _START
    + f"""      <action>MSMQ:mqsender label</action>
      <to>MSMQ:MULTICAST=234.1.1.1:8001</to>
      <id>uuid:4494@{STREAM_RECEIPT_MANAGER}</id>
    </path>
    <properties se:mustUnderstand="1">
      <expiresAt>20380119T031407</expiresAt>
      <sentAt>20070608T023719</sentAt>
    </properties>
    <Msmq xmlns="msmq.namespace.xml">
      <Class>0</Class>
      <Priority>3</Priority>
      <Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation>
      <App>0</App>
      <BodyType>8</BodyType>
      <HashAlgorithm>32772</HashAlgorithm>
      <SourceQmGuid>{STREAM_RECEIPT_MANAGER}</SourceQmGuid>
      <TTrq>20070612T023719</TTrq>
    </Msmq>
"""
    + _END
)

ALL = (
    SIMPLE,
    ORDER,
    RECEIPTS_WANTED,
    DELIVERY_RECEIPT,
    COMMITMENT_RECEIPT,
    *STREAM,
    *STREAM_RECEIPTS,
    MULTICAST,
)


def multipart(envelope: bytes, body: bytes, boundary: str = "MSMQ - SOAP boundary, 53287") -> tuple[str, bytes]:
    """Content-Type and entity as section 4 prints them."""
    entity = (
        f"--{boundary}\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: {len(envelope)}\r\n\r\n".encode()
        + envelope
        + f"--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n".encode()
        + f"Content-Id: body@{BODY_MANAGER}\r\n\r\n".encode()
        + body
        + f"--{boundary}--\r\n".encode()
    )
    return f'multipart/related; boundary="{boundary}"; type=text/xml', entity


def changed(text: str, old: str, new: str) -> str:
    """The text with one part replaced, which must occur once."""
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def without(text: str, name: str) -> str:
    """The text without the only element of this name."""
    found = re.findall(rf"<{name}(?:\s[^>]*)?(?:/>|>.*?</{name}>)", text, re.DOTALL)
    assert len(found) == 1, f"{name} is there {len(found)} times"
    return text.replace(found[0], "")


def added(text: str, parent: str, element: str) -> str:
    """The text with one more element, which is the last in its parent."""
    return changed(text, f"</{parent}>", f"{element}</{parent}>")


def read(text: str) -> Envelope:
    """The result of both readers, which must be the same."""
    envelope = read_envelope(text.encode())
    slowly = read_any(text.encode())
    assert envelope == slowly
    assert envelope.source == slowly.source
    return envelope


def refused(text: str | bytes) -> MalformedSoap:
    """The fault that both readers find."""
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(MalformedSoap) as caught:
        read_envelope(data)
    with pytest.raises(MalformedSoap) as slowly:
        read_any(data)
    assert str(caught.value) == str(slowly.value)
    return caught.value
