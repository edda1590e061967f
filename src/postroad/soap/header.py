"""The blocks of an envelope's header, [MC-MQSRM] 2.2.4 and 2.2.5: path, properties, services, stream, receipts.

Each is read from its element and written as text, side by side.
"""

from __future__ import annotations

from postroad.errors import MalformedSoap
from postroad.soap.blocks import ROUTING, SRMP, Children, escape, flag, names, text, value
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    DeliveryReceiptRequest,
    Path,
    Properties,
    Services,
    Stream,
    StreamReceipt,
)
from postroad.soap.texts import SPACE, date_text, parse_date, parse_number, parse_stream_id, shown, stream_id_text
from postroad.soap.tree import Element

PATH_START = f'<path xmlns="{ROUTING}" se:mustUnderstand="1">'

_PATH = names(ROUTING, "action", "to", "id", "rev")
_VIA = names(ROUTING, "via")
_PROPERTIES = names(SRMP, "expiresAt", "sentAt")
_SERVICES = names(SRMP, "durable", "deliveryReceiptRequest", "commitmentReceiptRequest")
_RECEIPT_REQUEST = names(SRMP, "sendTo", "positiveOnly", "negativeOnly")
_STREAM = names(SRMP, "streamId", "current", "previous", "start")
_START = names(SRMP, "sendReceiptsTo")
_DELIVERY_RECEIPT = names(SRMP, "receivedAt", "id")
_COMMITMENT_RECEIPT = names(SRMP, "decidedAt", "decision", "id")
_STREAM_RECEIPT = names(SRMP, "streamId", "lastOrdinal")

_TO_PREFIXES = ("http://", "https://", "msmq:multicast=")
_HTTP_PREFIXES = ("http://", "https://")
_DECISIONS = {decision.value: decision for decision in Decision}


# 2.2.4, path


def read_path(element: Element) -> Path:
    children = Children(element, "path", _PATH)
    rev = children.get("rev")
    via = None if rev is None else Children(rev, "path/rev", _VIA).text("via")
    to = children.word("to")
    if not to.lower().startswith(_TO_PREFIXES):
        raise MalformedSoap("path/to", f"{shown(to)} starts with none of http://, https:// and MSMQ:MULTICAST=")
    # 2.2.4.4: an empty via is as good as none.
    return Path(children.text("action"), to, children.text("id").strip(SPACE), (via and via.strip(SPACE)) or None)


def write_path(path: Path, *, id_last: bool) -> str:
    rev = "" if path.via is None else f"<rev><via>{escape(path.via)}</via></rev>"
    message_id = f"<id>{escape(path.id)}</id>"
    tail = rev + message_id if id_last else message_id + rev
    return f"{PATH_START}<action>{escape(path.action)}</action><to>{escape(path.to)}</to>{tail}</path>"


# 2.2.5.1, properties


def read_properties(element: Element) -> Properties:
    children = Children(element, "properties", _PROPERTIES)
    sent_at = children.optional_text("sentAt")
    return Properties(
        parse_date(children.text("expiresAt"), "properties/expiresAt"),
        None if sent_at is None else parse_date(sent_at, "properties/sentAt"),
    )


def write_properties(properties: Properties) -> str:
    sent_at = "" if properties.sent_at is None else f"<sentAt>{date_text(properties.sent_at)}</sentAt>"
    expires_at = f"<expiresAt>{date_text(properties.expires_at)}</expiresAt>"
    return f'<properties se:mustUnderstand="1">{expires_at}{sent_at}</properties>'


# 2.2.5.2, services


def read_services(element: Element) -> Services:
    children = Children(element, "services", _SERVICES)
    delivery = commitment = None
    request = children.get("deliveryReceiptRequest")
    if request is not None:
        delivery = DeliveryReceiptRequest(
            _read_url(Children(request, "deliveryReceiptRequest", _RECEIPT_REQUEST), "sendTo")
        )
    request = children.get("commitmentReceiptRequest")
    if request is not None:
        found = Children(request, "commitmentReceiptRequest", _RECEIPT_REQUEST)
        commitment = CommitmentReceiptRequest(
            _read_url(found, "sendTo"), "positiveOnly" in found, "negativeOnly" in found
        )
    return Services("durable" in children, delivery, commitment)


def _read_url(children: Children, name: str) -> str:
    """2.2.5.2.2, 2.2.5.3.4: receipts are sent by HTTP, so that no other name will do."""
    url = children.word(name)
    if not url.lower().startswith(_HTTP_PREFIXES):
        raise MalformedSoap(children.place(name), f"{shown(url)} starts with neither http:// nor https://")
    return url


def write_services(services: Services) -> str:
    requests = "<durable/>" if services.durable else ""
    if (delivery := services.delivery_receipt_request) is not None:
        requests += value("deliveryReceiptRequest", text("sendTo", delivery.send_to))
    if (commitment := services.commitment_receipt_request) is not None:
        flags = flag("positiveOnly", commitment.positive_only) + flag("negativeOnly", commitment.negative_only)
        requests += value("commitmentReceiptRequest", text("sendTo", commitment.send_to) + flags)
    return f'<services se:mustUnderstand="1">{requests}</services>'


# 2.2.5.3, stream


def read_stream(element: Element) -> Stream:
    children = Children(element, "stream", _STREAM)
    start = children.get("start")
    previous = children.optional_text("previous")
    return Stream(
        stream_id=parse_stream_id(children.text("streamId"), "stream/streamId"),
        current=parse_number(children.text("current"), "stream/current"),
        previous=None if previous is None else parse_number(previous, "stream/previous"),
        send_receipts_to=None
        if start is None
        else _read_url(Children(start, "stream/start", _START), "sendReceiptsTo"),
    )


def write_stream(stream: Stream) -> str:
    previous = f"<previous>{stream.previous}</previous>" if stream.previous else ""
    start = "" if stream.send_receipts_to is None else value("start", text("sendReceiptsTo", stream.send_receipts_to))
    place = f"<streamId>{stream_id_text(stream.stream_id)}</streamId><current>{stream.current}</current>"
    return f'<stream se:mustUnderstand="1">{place}{previous}{start}</stream>'


# 2.2.5.4 to 2.2.5.6, receipts


def read_delivery_receipt(element: Element) -> DeliveryReceipt:
    children = Children(element, "deliveryReceipt", _DELIVERY_RECEIPT)
    received_at = parse_date(children.text("receivedAt"), "deliveryReceipt/receivedAt")
    return DeliveryReceipt(received_at, children.text("id").strip(SPACE))


def write_delivery_receipt(receipt: DeliveryReceipt) -> str:
    return value("deliveryReceipt", value("receivedAt", date_text(receipt.received_at)) + text("id", receipt.id))


def read_commitment_receipt(element: Element) -> CommitmentReceipt:
    children = Children(element, "commitmentReceipt", _COMMITMENT_RECEIPT)
    word = children.word("decision")
    decision = _DECISIONS.get(word)
    if decision is None:
        raise MalformedSoap("commitmentReceipt/decision", f"{shown(word)} is neither positive nor negative")
    decided_at = parse_date(children.text("decidedAt"), "commitmentReceipt/decidedAt")
    return CommitmentReceipt(decided_at, decision, children.text("id").strip(SPACE))


def write_commitment_receipt(receipt: CommitmentReceipt) -> str:
    decided = value("decidedAt", date_text(receipt.decided_at)) + value("decision", receipt.decision.value)
    return value("commitmentReceipt", decided + text("id", receipt.id))


def read_stream_receipt(element: Element) -> StreamReceipt:
    children = Children(element, "streamReceipt", _STREAM_RECEIPT)
    return StreamReceipt(
        parse_stream_id(children.text("streamId"), "streamReceipt/streamId"),
        parse_number(children.text("lastOrdinal"), "streamReceipt/lastOrdinal"),
    )


def write_stream_receipt(receipt: StreamReceipt) -> str:
    stream_id = value("streamId", stream_id_text(receipt.stream_id))
    return value("streamReceipt", stream_id + value("lastOrdinal", receipt.last_ordinal))
