"""The SRMP envelope as XML, [MC-MQSRM] 2.2.2 to 2.2.5: read by a walk over a small tree, written from a template.

This module does not decide what an envelope means for a queue manager.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from postroad.errors import MalformedSoap
from postroad.soap import header
from postroad.soap.elements import (
    CommitmentReceiptRequest,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Services,
    Source,
    Stream,
)
from postroad.soap.header import PATH_START, read_msmq, write_msmq
from postroad.soap.signature import read_signature, write_signature
from postroad.soap.simple_types import (
    SPACE,
    parse_base64,
    parse_date,
    parse_guid,
    parse_message_id,
    parse_stream_id,
)
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

# The fast path for envelopes: one pattern for the form in which queue managers write user messages.
#
# It accepts nothing that could be read in another way, and refuses only wrong dates. Everything that the pattern does
# not match goes to the XML reader: other prefixes, white space, escapes, receipts, signatures, rare elements, and all
# faults.


# 3.1.7.2.4, to the letter.
START: Final = f'<se:Envelope xmlns:se="{SOAP}" xmlns="{SRMP}">'
BODY: Final = "<se:Body></se:Body>"
END: Final = "</se:Envelope>"

# Text that stands for itself: no markup, and no carriage return or other character that XML changes or forbids.
_TEXT = r"[^<>&\x00-\x08\x0b-\x1f\ufffe\uffff]*"
_WORD = r"[^\s<>&\x00-\x1f\ufffe\uffff]+"
_URL = f"https?://{_WORD}"
_NUMBER = "(?:[0-9]{1,9}|[1-3][0-9]{9})"  # fits 32 bits; the few numbers above are read the other way
_DATE = "[0-9]{8}T[0-9]{6}"
_GUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAM_ID = rf"uid:{_GUID}\\[0-9]{{1,19}}"


def _element(name: str, value: str) -> str:
    return f"<{name}>({value})</{name}>"


def _optional(pattern: str) -> str:
    return f"(?:{pattern})?"


def _flag(name: str) -> str:
    return f"(<{name}/>)?"


_FAST_MARKED = ' se:mustUnderstand="1"'
_PATH = re.compile(
    "".join(
        (
            re.escape(f"{START}<se:Header>{PATH_START}"),
            _element("action", _TEXT),
            _element("to", _URL),
            _element("id", f"uuid:{_NUMBER}@{_GUID}"),
            _optional(f"<rev>{_element('via', _WORD)}</rev>"),
            "</path>",
        )
    )
)
_FAST_BLOCKS = re.compile(
    "".join(
        (
            f"<properties{_FAST_MARKED}>",
            _element("expiresAt", _DATE),
            _optional(_element("sentAt", _DATE)),
            "</properties>",
            _optional(
                f"(<services){_FAST_MARKED}>{_flag('durable')}"
                + _optional(f"<deliveryReceiptRequest>{_element('sendTo', _URL)}</deliveryReceiptRequest>")
                + _optional(
                    f"<commitmentReceiptRequest>{_element('sendTo', _URL)}{_flag('positiveOnly')}"
                    f"{_flag('negativeOnly')}</commitmentReceiptRequest>"
                )
                + "</services>"
            ),
            _optional(
                f"<stream{_FAST_MARKED}>{_element('streamId', _STREAM_ID)}"
                + _element("current", _NUMBER)
                + _optional(_element("previous", _NUMBER))
                + _optional(f"<start>{_element('sendReceiptsTo', _URL)}</start>")
                + "</stream>"
            ),
            re.escape(f'<Msmq xmlns="{MSMQ_NAMESPACE}">'),
            _element("Class", "[0-9]{1,4}"),
            _element("Priority", "[0-7]"),
            _flag("Journal"),
            _flag("DeadLetter"),
            _optional(_element("Correlation", "[0-9A-Za-z+/]{27}=")),
            _flag("Trace"),
            _optional(_element("ConnectorType", _GUID)),
            _optional(_element("App", _NUMBER)),
            _element("BodyType", _NUMBER),
            _optional(_element("HashAlgorithm", _NUMBER)),
            _optional(f"(<Eod>){_flag('First')}{_flag('Last')}</Eod>"),
            _element("SourceQmGuid", _GUID),
            _element("TTrq", _DATE),
            re.escape(f"</Msmq></se:Header>{BODY}{END}"),
        )
    )
)
_TAIL = len(BODY) + len(END)
_CACHED, _CACHED_SIZE = 256, 2048  # longer texts are not cached, so the cache stays small


_Blocks = tuple[Properties, Services | None, Stream | None, Msmq]


def read_fast(text: str) -> Envelope | None:
    """The envelope; None if the text has another form. Raises MalformedSoap for a wrong date."""
    match = _PATH.match(text)
    if match is None:
        return None
    rest = text[match.end() :]
    blocks = _known_blocks(rest) if len(rest) <= _CACHED_SIZE else _fast_read_blocks(rest)
    if blocks is None:
        return None
    properties, services, stream, msmq = blocks
    source = Source(text[len(START) : -_TAIL], BODY)
    return Envelope(Path(*match.groups()), properties, services, stream, msmq=msmq, source=source)


def _fast_read_blocks(text: str) -> _Blocks | None:
    """Reads what follows the path."""
    match = _FAST_BLOCKS.fullmatch(text)
    if match is None:
        return None
    groups = match.groups()
    expires_at, sent_at, services, durable, delivery_to, commitment_to, positive_only, negative_only = groups[:8]
    stream_id, current, previous, receipts_to = groups[8:12]
    message_class, priority, journal, dead_letter, correlation, trace, connector_type = groups[12:19]
    app, body_type, hash_algorithm, eod, first, last, source_qm_guid, ttrq = groups[19:]
    return (
        Properties(
            parse_date(expires_at, "properties/expiresAt"),
            None if sent_at is None else parse_date(sent_at, "properties/sentAt"),
        ),
        None
        if services is None
        else Services(
            durable is not None,
            None if delivery_to is None else DeliveryReceiptRequest(delivery_to),
            None
            if commitment_to is None
            else CommitmentReceiptRequest(commitment_to, positive_only is not None, negative_only is not None),
        ),
        None
        if stream_id is None
        else Stream(
            parse_stream_id(stream_id, "stream/streamId"),
            int(current),
            None if previous is None else int(previous),
            receipts_to,
        ),
        Msmq(
            int(message_class),
            int(priority),
            parse_guid(source_qm_guid, "Msmq/SourceQmGuid"),
            parse_date(ttrq, "Msmq/TTrq"),
            int(body_type),
            journal is not None,
            dead_letter is not None,
            None if correlation is None else parse_base64(correlation, "Msmq/Correlation"),
            trace is not None,
            None if connector_type is None else parse_guid(connector_type, "Msmq/ConnectorType"),
            None if app is None else int(app),
            None if hash_algorithm is None else int(hash_algorithm),
            None if eod is None else Eod(first is not None, last is not None),
        ),
    )


# Messages that one sender sends within one second differ only in their paths, unless they belong to a stream.
_known_blocks = lru_cache(_CACHED)(_fast_read_blocks)


# The reader of XML, and the writer.


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

    So it means the same inside the start tag that is written here.
    """
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
