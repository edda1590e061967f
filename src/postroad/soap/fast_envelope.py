"""The fast path for envelopes: one pattern for the form in which queue managers write user messages.

It accepts nothing that could be read in another way, and refuses only wrong dates. Everything that the pattern does not
match goes to the XML reader: other prefixes, white space, escapes, receipts, signatures, rare elements, and all
faults."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
from postroad.soap.header import PATH_START
from postroad.soap.simple_types import (
    parse_base64,
    parse_date,
    parse_guid,
    parse_stream_id,
)
from postroad.soap.tree import MSMQ, SOAP, SRMP

# 3.1.7.2.4, to the letter.
START: Final = f'<se:Envelope xmlns:se="{SOAP}" xmlns="{SRMP}">'
BODY: Final = "<se:Body></se:Body>"
END: Final = "</se:Envelope>"

# Text that stands for itself: no markup, and no carriage return or other character that XML changes or forbids.
_TEXT = r"[^<>&\x00-\x08\x0b-\x1f\ufffe\uffff]*"
_WORD = r"[^\s<>&\x00-\x1f\ufffe\uffff]+"
_URL = f"https?://{_WORD}"
_NUMBER = "[0-9]{1,9}"  # fits 32 bits
_DATE = "[0-9]{8}T[0-9]{6}"
_GUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAM_ID = rf"uid:{_GUID}\\[0-9]{{1,19}}"


def _element(name: str, value: str) -> str:
    return f"<{name}>({value})</{name}>"


def _optional(pattern: str) -> str:
    return f"(?:{pattern})?"


def _flag(name: str) -> str:
    return f"(<{name}/>)?"


_MARKED = ' se:mustUnderstand="1"'
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
_BLOCKS = re.compile(
    "".join(
        (
            f"<properties{_MARKED}>",
            _element("expiresAt", _DATE),
            _optional(_element("sentAt", _DATE)),
            "</properties>",
            _optional(
                f"(<services){_MARKED}>{_flag('durable')}"
                + _optional(f"<deliveryReceiptRequest>{_element('sendTo', _URL)}</deliveryReceiptRequest>")
                + _optional(
                    f"<commitmentReceiptRequest>{_element('sendTo', _URL)}{_flag('positiveOnly')}"
                    f"{_flag('negativeOnly')}</commitmentReceiptRequest>"
                )
                + "</services>"
            ),
            _optional(
                f"<stream{_MARKED}>{_element('streamId', _STREAM_ID)}"
                + _element("current", _NUMBER)
                + _optional(_element("previous", _NUMBER))
                + _optional(f"<start>{_element('sendReceiptsTo', _URL)}</start>")
                + "</stream>"
            ),
            re.escape(f'<Msmq xmlns="{MSMQ}">'),
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
    blocks = _known_blocks(rest) if len(rest) <= _CACHED_SIZE else _read_blocks(rest)
    if blocks is None:
        return None
    properties, services, stream, msmq = blocks
    source = Source(text[len(START) : -_TAIL], BODY)
    return Envelope(Path(*match.groups()), properties, services, stream, msmq=msmq, source=source)


def _read_blocks(text: str) -> _Blocks | None:
    """Reads what follows the path."""
    match = _BLOCKS.fullmatch(text)
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
_known_blocks = lru_cache(_CACHED)(_read_blocks)
