"""The SRMP envelope as XML, [MC-MQSRM] 2.2.2 to 2.2.5: read by a walk over a small tree, written from a template.

What an envelope asks of a queue manager is not decided here.
"""

from __future__ import annotations

from typing import Final

from postroad.errors import MalformedSoap
from postroad.soap.blocks import (
    ACTOR,
    MUST_UNDERSTAND,
    NEXT_ACTOR,
    ROUTING,
    SIGNATURE,
    SOAP,
    SRMP,
    Children,
    escape,
    names,
    quoted,
)
from postroad.soap.blocks import MSMQ as MSMQ_NAMESPACE
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    DeliveryReceiptRequest,
    Envelope,
    Path,
    Properties,
    Services,
    Source,
    Stream,
    StreamReceipt,
)
from postroad.soap.msmq import read_msmq, write_msmq
from postroad.soap.signature import read_signature, write_signature
from postroad.soap.texts import (
    SPACE,
    date_text,
    parse_date,
    parse_message_id,
    parse_number,
    parse_stream_id,
    stream_id_text,
)
from postroad.soap.tree import Document, Element, parse_document

# 3.1.7.2.4, to the letter.
START: Final = f'<se:Envelope xmlns:se="{SOAP}" xmlns="{SRMP}">'
END: Final = "</se:Envelope>"
_PATH_START = f'<path xmlns="{ROUTING}" se:mustUnderstand="1">'
_BODY = "<se:Body></se:Body>"
_USUAL_NAMESPACES = {("se", SOAP), (None, SRMP)}

_HEADER_NAME = f"{SOAP} Header"
_BODY_NAME = f"{SOAP} Body"
_BLOCKS = (
    names(ROUTING, "path")
    | names(SRMP, "properties", "services", "stream", "deliveryReceipt", "commitmentReceipt", "streamReceipt")
    | names(MSMQ_NAMESPACE, "Msmq")
    | names(SIGNATURE, "Signature")
    # The samples of 4.4 spell it so.
    | {f"{SRMP} Stream": "stream"}
)
_MARKED = frozenset({"path", "properties", "services", "stream"})  # which have to say mustUnderstand="1"

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


def read_envelope(data: bytes) -> Envelope:
    """The envelope; MalformedSoap, which names the element, where the bytes break a rule of section 2.2."""
    document = parse_document(data)
    root = document.root
    if root.name != f"{SOAP} Envelope":
        raise MalformedSoap("Envelope", f"the root is {root.name!r}, not the Envelope of SOAP 1.1")
    children = root.children
    if not children or children[0].name != _HEADER_NAME:
        raise MalformedSoap("Header", "it has to be the first element of the Envelope")
    if len(children) < 2 or children[1].name != _BODY_NAME:
        raise MalformedSoap("Body", "it has to follow the Header")
    header = children[0]
    blocks = _read_blocks(header)
    for name in ("path", "properties"):
        if name not in blocks:
            raise MalformedSoap(name, "the element is missing")
    msmq = read_msmq(blocks["Msmq"]) if "Msmq" in blocks else None
    path = _read_path(blocks["path"])
    if msmq is not None:
        parse_message_id(path.id, "path/id")
    elif "stream" in blocks:
        raise MalformedSoap("stream", "a stream message needs the Msmq element")
    signature = blocks.get("Signature")
    return Envelope(
        path=path,
        properties=_read_properties(blocks["properties"]),
        services=_read_services(blocks["services"]) if "services" in blocks else None,
        stream=_read_stream(blocks["stream"]) if "stream" in blocks else None,
        delivery_receipt=_read_delivery_receipt(blocks.get("deliveryReceipt")),
        commitment_receipt=_read_commitment_receipt(blocks.get("commitmentReceipt")),
        stream_receipt=_read_stream_receipt(blocks.get("streamReceipt")),
        msmq=msmq,
        signature=None
        if signature is None
        else read_signature(signature, _self_standing(document, (root, header), signature)),
        source=Source(_self_standing(document, (root,), header), _self_standing(document, (root,), children[1])),
    )


def _read_blocks(header: Element) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for block in header.children:
        name = _BLOCKS.get(block.name)
        mark = block.attributes.get(MUST_UNDERSTAND)
        if name is None:
            # [SOAP1.1] 4.2.3: who does not understand such a block, and is meant by it, must not process the message.
            if mark == "1" and block.attributes.get(ACTOR, "") in ("", NEXT_ACTOR):
                raise MalformedSoap("Header", f"mustUnderstand is set on {block.name!r}, which is unknown")
            continue
        if name in found:
            raise MalformedSoap(name, "the element is there twice")
        if name in _MARKED and mark != "1":
            raise MalformedSoap(name, 'it has to be marked se:mustUnderstand="1"')
        found[name] = block
    return found


def _self_standing(document: Document, ancestors: tuple[Element, ...], element: Element) -> str:
    """The element's text, with the namespaces it has from its ancestors declared on itself, unless they are the usual.

    So it means the same within the start tag that is written here.
    """
    text = document.text_of(ancestors[-1], element)
    outer = dict(document.declared_on(*ancestors))
    if set(outer.items()) == _USUAL_NAMESPACES:
        return text
    outer.setdefault(None, "")
    for prefix, _ in document.declared_on(element):
        outer.pop(prefix, None)
    declarations = "".join(
        f' xmlns{"" if prefix is None else f":{prefix}"}="{quoted(uri)}"' for prefix, uri in outer.items()
    )
    end_of_name = next(at for at, character in enumerate(text) if character in f"{SPACE}/>")
    return text[:end_of_name] + declarations + text[end_of_name:]


def _read_path(element: Element) -> Path:
    children = Children(element, "path", _PATH)
    to = children.word("to")
    if not to.lower().startswith(_TO_PREFIXES):
        raise MalformedSoap("path/to", f"{to!r} starts with none of http://, https:// and MSMQ:MULTICAST=")
    return Path(children.text("action"), to, children.text("id").strip(SPACE), _read_via(children.get("rev")))


def _read_via(rev: Element | None) -> str | None:
    if rev is None:
        return None
    return Children(rev, "path/rev", _VIA).text("via").strip(SPACE) or None


def _read_properties(element: Element) -> Properties:
    children = Children(element, "properties", _PROPERTIES)
    sent_at = children.optional_text("sentAt")
    return Properties(
        parse_date(children.text("expiresAt"), "properties/expiresAt"),
        None if sent_at is None else parse_date(sent_at, "properties/sentAt"),
    )


def _read_services(element: Element) -> Services:
    children = Children(element, "services", _SERVICES)
    delivery = commitment = None
    request = children.get("deliveryReceiptRequest")
    if request is not None:
        found = Children(request, "deliveryReceiptRequest", _RECEIPT_REQUEST)
        delivery = DeliveryReceiptRequest(_read_url(found, "sendTo"))
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
        raise MalformedSoap(children.place(name), f"{url!r} starts with neither http:// nor https://")
    return url


def _read_stream(element: Element) -> Stream:
    children = Children(element, "stream", _STREAM)
    previous = children.optional_text("previous")
    start = children.get("start")
    return Stream(
        stream_id=parse_stream_id(children.text("streamId"), "stream/streamId"),
        current=parse_number(children.text("current"), "stream/current"),
        previous=None if previous is None else parse_number(previous, "stream/previous"),
        send_receipts_to=None
        if start is None
        else _read_url(Children(start, "stream/start", _START), "sendReceiptsTo"),
    )


def _read_delivery_receipt(element: Element | None) -> DeliveryReceipt | None:
    if element is None:
        return None
    children = Children(element, "deliveryReceipt", _DELIVERY_RECEIPT)
    received_at = parse_date(children.text("receivedAt"), "deliveryReceipt/receivedAt")
    return DeliveryReceipt(received_at, children.text("id").strip(SPACE))


def _read_commitment_receipt(element: Element | None) -> CommitmentReceipt | None:
    if element is None:
        return None
    children = Children(element, "commitmentReceipt", _COMMITMENT_RECEIPT)
    text = children.word("decision")
    decision = _DECISIONS.get(text)
    if decision is None:
        raise MalformedSoap("commitmentReceipt/decision", f"{text!r} is neither positive nor negative")
    decided_at = parse_date(children.text("decidedAt"), "commitmentReceipt/decidedAt")
    return CommitmentReceipt(decided_at, decision, children.text("id").strip(SPACE))


def _read_stream_receipt(element: Element | None) -> StreamReceipt | None:
    if element is None:
        return None
    children = Children(element, "streamReceipt", _STREAM_RECEIPT)
    return StreamReceipt(
        parse_stream_id(children.text("streamId"), "streamReceipt/streamId"),
        parse_number(children.text("lastOrdinal"), "streamReceipt/lastOrdinal"),
    )


def write_envelope(envelope: Envelope) -> bytes:
    """3.1.7.2.4: no white space between elements. LocalProtocolError where a text has no form in XML."""
    parts = [START, "<se:Header>", _write_path(envelope), _write_properties(envelope.properties)]
    if envelope.services is not None:
        parts.append(_write_services(envelope.services))
    if envelope.stream is not None:
        parts.append(_write_stream(envelope.stream))
    delivery, commitment, stream = envelope.delivery_receipt, envelope.commitment_receipt, envelope.stream_receipt
    if stream is not None:
        stream_id = stream_id_text(stream.stream_id)
        parts.append(f"<streamReceipt><streamId>{stream_id}</streamId>")
        parts.append(f"<lastOrdinal>{stream.last_ordinal}</lastOrdinal></streamReceipt>")
    if delivery is not None:
        parts.append(f"<deliveryReceipt><receivedAt>{date_text(delivery.received_at)}</receivedAt>")
        parts.append(f"<id>{escape(delivery.id)}</id></deliveryReceipt>")
    if commitment is not None:
        parts.append(f"<commitmentReceipt><decidedAt>{date_text(commitment.decided_at)}</decidedAt>")
        parts.append(f"<decision>{commitment.decision.value}</decision>")
        parts.append(f"<id>{escape(commitment.id)}</id></commitmentReceipt>")
    if envelope.msmq is not None:
        parts.append(write_msmq(envelope.msmq))
    if envelope.signature is not None:
        parts.append(write_signature(envelope.signature))
    parts += ("</se:Header>", _BODY, END)
    return "".join(parts).encode("utf-8")


def _write_path(envelope: Envelope) -> str:
    path = envelope.path
    rev = "" if path.via is None else f"<rev><via>{escape(path.via)}</via></rev>"
    message_id = f"<id>{escape(path.id)}</id>"
    # 3.1.7.2.4 has the id first; in the receipts of 4.3 and 4.4 it is last.
    tail = rev + message_id if is_receipt(envelope) else message_id + rev
    return f"{_PATH_START}<action>{escape(path.action)}</action><to>{escape(path.to)}</to>{tail}</path>"


def is_receipt(envelope: Envelope) -> bool:
    return bool(envelope.delivery_receipt or envelope.commitment_receipt or envelope.stream_receipt)


def _write_properties(properties: Properties) -> str:
    sent_at = "" if properties.sent_at is None else f"<sentAt>{date_text(properties.sent_at)}</sentAt>"
    return (
        f'<properties se:mustUnderstand="1"><expiresAt>{date_text(properties.expires_at)}</expiresAt>'
        f"{sent_at}</properties>"
    )


def _write_services(services: Services) -> str:
    parts = ['<services se:mustUnderstand="1">']
    if services.durable:
        parts.append("<durable/>")
    if (delivery := services.delivery_receipt_request) is not None:
        send_to = escape(delivery.send_to)
        parts.append(f"<deliveryReceiptRequest><sendTo>{send_to}</sendTo></deliveryReceiptRequest>")
    if (commitment := services.commitment_receipt_request) is not None:
        parts.append(f"<commitmentReceiptRequest><sendTo>{escape(commitment.send_to)}</sendTo>")
        if commitment.positive_only:
            parts.append("<positiveOnly/>")
        if commitment.negative_only:
            parts.append("<negativeOnly/>")
        parts.append("</commitmentReceiptRequest>")
    parts.append("</services>")
    return "".join(parts)


def _write_stream(stream: Stream) -> str:
    parts = [
        f'<stream se:mustUnderstand="1"><streamId>{stream_id_text(stream.stream_id)}</streamId>',
        f"<current>{stream.current}</current>",
    ]
    if stream.previous:
        parts.append(f"<previous>{stream.previous}</previous>")
    if stream.send_receipts_to is not None:
        parts.append(f"<start><sendReceiptsTo>{escape(stream.send_receipts_to)}</sendReceiptsTo></start>")
    parts.append("</stream>")
    return "".join(parts)
