"""The SRMP envelope as XML, [MC-MQSRM] 2.2.2 to 2.2.5: read by a walk over a small tree, written from a template.

This module does not decide what an envelope means for a queue manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from postroad.errors import MalformedSoap
from postroad.soap import header
from postroad.soap.elements import Envelope, Source
from postroad.soap.fast_envelope import BODY, END, START, read_fast
from postroad.soap.header import read_msmq, write_msmq
from postroad.soap.signature import read_signature, write_signature
from postroad.soap.simple_types import SPACE, parse_message_id
from postroad.soap.tree import (
    ACTOR,
    MAX_ENVELOPE_SIZE,
    MUST_UNDERSTAND,
    NEXT_ACTOR,
    ROUTING,
    SIGNATURE,
    SOAP,
    SRMP,
    Document,
    Element,
    names,
    parse_document,
    quoted,
)
from postroad.soap.tree import MSMQ as MSMQ_NAMESPACE

_Value = TypeVar("_Value")

_STANDARD_NAMESPACES = {("se", SOAP), (None, SRMP)}
_HEADER_NAME = f"{SOAP} Header"
_BODY_NAME = f"{SOAP} Body"
_BLOCKS = (
    names(ROUTING, "path")
    | names(SRMP, "properties", "services", "stream", "deliveryReceipt", "commitmentReceipt", "streamReceipt")
    | names(MSMQ_NAMESPACE, "Msmq")
    | names(SIGNATURE, "Signature")
    # The spelling of the samples in 4.4.
    | {f"{SRMP} Stream": "stream"}
)
_MARKED = frozenset({"path", "properties", "services", "stream"})  # these must have mustUnderstand="1"


def read_envelope(data: bytes) -> Envelope:
    """Reads an envelope. If the bytes break a rule of section 2.2, raises MalformedSoap, which names the element."""
    if len(data) <= MAX_ENVELOPE_SIZE:
        try:
            envelope = read_fast(data.decode("utf-8"))
        except UnicodeDecodeError:
            envelope = None
        if envelope is not None:
            return envelope
    return read_any(data)


def read_any(data: bytes) -> Envelope:
    """Reads every form of an envelope that XML allows."""
    document = parse_document(data)
    root = document.root
    if root.name != f"{SOAP} Envelope":
        raise MalformedSoap("Envelope", f"the root must be the Envelope of SOAP 1.1, got {root.name!r}")
    children = root.children
    if not children or children[0].name != _HEADER_NAME:
        raise MalformedSoap("Header", "must be the first element of the Envelope")
    if len(children) < 2 or children[1].name != _BODY_NAME:
        raise MalformedSoap("Body", "must follow the Header")
    head = children[0]
    blocks = _read_blocks(head)
    for name in ("path", "properties"):
        if name not in blocks:
            raise MalformedSoap(name, "the element is missing")
    path = header.read_path(blocks["path"])
    if "Msmq" in blocks:
        parse_message_id(path.id, "path/id")
    elif "stream" in blocks:
        raise MalformedSoap("stream", "a stream message needs the Msmq element")
    signature = blocks.get("Signature")
    return Envelope(
        path=path,
        properties=header.read_properties(blocks["properties"]),
        services=_read(header.read_services, blocks.get("services")),
        stream=_read(header.read_stream, blocks.get("stream")),
        delivery_receipt=_read(header.read_delivery_receipt, blocks.get("deliveryReceipt")),
        commitment_receipt=_read(header.read_commitment_receipt, blocks.get("commitmentReceipt")),
        stream_receipt=_read(header.read_stream_receipt, blocks.get("streamReceipt")),
        msmq=_read(read_msmq, blocks.get("Msmq")),
        signature=None
        if signature is None
        else read_signature(signature, _self_standing(document, (root, head), signature)),
        source=Source(_self_standing(document, (root,), head), _self_standing(document, (root,), children[1])),
    )


def _read(read: Callable[[Element], _Value], element: Element | None) -> _Value | None:
    return None if element is None else read(element)


def _read_blocks(head: Element) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for block in head.children:
        name = _BLOCKS.get(block.name)
        mark = block.attributes.get(MUST_UNDERSTAND)
        if name is None:
            # [SOAP1.1] 4.2.3: a receiver that is addressed by such a block and does not understand it must not process
            # the message.
            if mark == "1" and block.attributes.get(ACTOR, "") in ("", NEXT_ACTOR):
                raise MalformedSoap("Header", f"{block.name!r} has mustUnderstand, but is unknown")
            continue
        if name in found:
            raise MalformedSoap(name, "the element occurs twice")
        if name in _MARKED and mark != "1":
            raise MalformedSoap(name, 'must have se:mustUnderstand="1"')
        found[name] = block
    return found


def _self_standing(document: Document, ancestors: tuple[Element, ...], element: Element) -> str:
    """The element's text. It declares the namespaces that the element inherits, except the standard ones.

    So it means the same inside the start tag that is written here."""
    text = document.text_of(ancestors[-1], element)
    outer = dict(document.declared_on(*ancestors))
    if set(outer.items()) == _STANDARD_NAMESPACES:
        return text
    outer.setdefault(None, "")
    for prefix, _ in document.declared_on(element):
        outer.pop(prefix, None)
    declarations = "".join(
        f' xmlns{"" if prefix is None else f":{prefix}"}="{quoted(uri)}"' for prefix, uri in outer.items()
    )
    end_of_name = next(at for at, character in enumerate(text) if character in f"{SPACE}/>")
    return text[:end_of_name] + declarations + text[end_of_name:]


def write_envelope(envelope: Envelope) -> bytes:
    """3.1.7.2.4: no white space between elements. Raises LocalProtocolError if XML cannot express a text."""
    # In 3.1.7.2.4 the id comes before the reverse path. In the receipts of 4.3 and 4.4 it comes last.
    path = header.write_path(envelope.path, id_last=is_receipt(envelope))
    parts = [START, "<se:Header>", path, header.write_properties(envelope.properties)]
    # Written out, because a table of blocks and writers takes a tenth longer.
    if envelope.services is not None:
        parts.append(header.write_services(envelope.services))
    if envelope.stream is not None:
        parts.append(header.write_stream(envelope.stream))
    if envelope.stream_receipt is not None:
        parts.append(header.write_stream_receipt(envelope.stream_receipt))
    if envelope.delivery_receipt is not None:
        parts.append(header.write_delivery_receipt(envelope.delivery_receipt))
    if envelope.commitment_receipt is not None:
        parts.append(header.write_commitment_receipt(envelope.commitment_receipt))
    if envelope.msmq is not None:
        parts.append(write_msmq(envelope.msmq))
    if envelope.signature is not None:
        parts.append(write_signature(envelope.signature))
    parts += ("</se:Header>", BODY, END)
    return "".join(parts).encode("utf-8")


def is_receipt(envelope: Envelope) -> bool:
    return bool(envelope.delivery_receipt or envelope.commitment_receipt or envelope.stream_receipt)
