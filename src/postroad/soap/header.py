"""The blocks of an envelope's header, [MC-MQSRM] 2.2.4 and 2.2.5: path, properties, services, stream, receipts.

The reader and the writer of each block stand side by side.
"""

from __future__ import annotations

from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.message import MAX_PRIORITY
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    DeliveryReceiptRequest,
    Eod,
    Msmq,
    Path,
    Properties,
    Provider,
    Services,
    Stream,
    StreamReceipt,
)
from postroad.soap.simple_types import (
    SPACE,
    U16,
    base64_text,
    date_text,
    parse_base64,
    parse_date,
    parse_guid,
    parse_number,
    parse_stream_id,
    shown,
    stream_id_text,
)
from postroad.soap.tree import MSMQ, ROUTING, SRMP, Children, Element, escape, flag, names, text, value
from postroad.wire.headers import MAX_ELEMENTS as MAX_LIST
from postroad.wire.headers import NO_CORRELATION

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
        raise MalformedSoap("path/to", f"must start with http://, https:// or MSMQ:MULTICAST=, got {shown(to)}")
    # 2.2.4.4: an empty via counts as none.
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
    """2.2.5.2.2, 2.2.5.3.4: receipts are sent by HTTP, so the name must be a URL."""
    url = children.word(name)
    if not url.lower().startswith(_HTTP_PREFIXES):
        raise MalformedSoap(children.place(name), f"must start with http:// or https://, got {shown(url)}")
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
        raise MalformedSoap("commitmentReceipt/decision", f"must be positive or negative, got {shown(word)}")
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


# The Msmq block, [MC-MQSRM] 2.2.6: what MSMQ's messages have and SRMP has no element for.


_CHILDREN = names(
    MSMQ,
    *("Class", "Priority", "Journal", "DeadLetter", "Correlation", "Trace", "ConnectorType", "App", "BodyType"),
    *("HashAlgorithm", "Eod", "Provider", "SourceQmGuid", "DestinationMqf", "AdminMqf", "ResponseMqf", "TTrq"),
)
_EOD = names(MSMQ, "First", "Last", "ConnectorId")
_PROVIDER = names(MSMQ, "Type", "Name")


def read_msmq(element: Element) -> Msmq:
    children = Children(element, "Msmq", _CHILDREN)
    priority = parse_number(children.text("Priority"), "Msmq/Priority")
    if priority > MAX_PRIORITY:
        raise MalformedSoap("Msmq/Priority", f"must be between 0 and {MAX_PRIORITY}, got {priority}")
    return Msmq(
        message_class=parse_number(children.text("Class"), "Msmq/Class", U16),
        priority=priority,
        source_qm_guid=parse_guid(children.text("SourceQmGuid"), "Msmq/SourceQmGuid"),
        ttrq=parse_date(children.text("TTrq"), "Msmq/TTrq"),
        body_type=parse_number(children.text("BodyType"), "Msmq/BodyType"),
        journal="Journal" in children,
        dead_letter="DeadLetter" in children,
        correlation=_read_correlation(children.optional_text("Correlation")),
        trace="Trace" in children,
        connector_type=_read_guid(children, "ConnectorType"),
        app=_read_number(children, "App"),
        hash_algorithm=_read_number(children, "HashAlgorithm"),
        eod=_read_eod(children.get("Eod")),
        provider=_read_provider(children.get("Provider")),
        destination_mqf=_read_list(children, "DestinationMqf"),
        admin_mqf=_read_list(children, "AdminMqf"),
        response_mqf=_read_list(children, "ResponseMqf"),
    )


def _read_guid(children: Children, name: str) -> UUID | None:
    text = children.optional_text(name)
    return None if text is None else parse_guid(text, children.place(name))


def _read_number(children: Children, name: str) -> int | None:
    text = children.optional_text(name)
    return None if text is None else parse_number(text, children.place(name))


def _read_correlation(text: str | None) -> bytes | None:
    if text is None:
        return None
    data = parse_base64(text, "Msmq/Correlation")
    if len(data) != len(NO_CORRELATION):
        raise MalformedSoap("Msmq/Correlation", f"must have {len(NO_CORRELATION)} bytes, got {len(data)}")
    return data


def _read_eod(element: Element | None) -> Eod | None:
    if element is None:
        return None
    children = Children(element, "Msmq/Eod", _EOD)
    return Eod("First" in children, "Last" in children, _read_guid(children, "ConnectorId"))


def _read_provider(element: Element | None) -> Provider | None:
    if element is None:
        return None
    children = Children(element, "Msmq/Provider", _PROVIDER)
    return Provider(parse_number(children.text("Type"), children.place("Type")), children.text("Name"))


def _read_list(children: Children, name: str) -> tuple[str, ...]:
    text = children.optional_text(name)
    if text is None:
        return ()
    members = tuple(text.split())
    if not members:
        raise MalformedSoap(children.place(name), "must have at least one name")
    if len(members) > MAX_LIST:
        raise MalformedSoap(children.place(name), f"must have at most {MAX_LIST} names, got {len(members)}")
    return members


def write_msmq(msmq: Msmq) -> str:
    """3.1.7.2.4: writes the children in the order given there."""
    return (
        f'<Msmq xmlns="{MSMQ}"><Class>{msmq.message_class}</Class><Priority>{msmq.priority}</Priority>'
        f"{'<Journal/>' if msmq.journal else ''}{'<DeadLetter/>' if msmq.dead_letter else ''}"
        f"{'' if msmq.correlation is None else value('Correlation', base64_text(msmq.correlation))}"
        f"{'<Trace/>' if msmq.trace else ''}{value('ConnectorType', msmq.connector_type)}{value('App', msmq.app)}"
        f"<BodyType>{msmq.body_type}</BodyType>{value('HashAlgorithm', msmq.hash_algorithm)}"
        f"{'' if msmq.eod is None else _write_eod(msmq.eod)}"
        f"{'' if msmq.provider is None else _write_provider(msmq.provider)}"
        f"<SourceQmGuid>{msmq.source_qm_guid}</SourceQmGuid>{_write_list('DestinationMqf', msmq.destination_mqf)}"
        f"{_write_list('AdminMqf', msmq.admin_mqf)}{_write_list('ResponseMqf', msmq.response_mqf)}"
        f"<TTrq>{date_text(msmq.ttrq)}</TTrq></Msmq>"
    )


def _write_eod(eod: Eod) -> str:
    flags = f"{'<First/>' if eod.first else ''}{'<Last/>' if eod.last else ''}"
    return f"<Eod>{flags}{value('ConnectorId', eod.connector_id)}</Eod>"


def _write_provider(provider: Provider) -> str:
    return f"<Provider>{value('Type', provider.type)}{text('Name', provider.name)}</Provider>"


def _write_list(name: str, members: tuple[str, ...]) -> str:
    """3.1.7.2.4: a line feed follows each member. Every reader of 3.1.5.1.1 ends a name at it."""
    return value(name, "".join(f"{escape(member)}\n" for member in members)) if members else ""
