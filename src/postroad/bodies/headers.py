"""Headers: what frameworks write into a message's extension, and what these headers say of the message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroad.bodies.amqp import amqp_headers, header_text, is_amqp
from postroad.bodies.bounds import MOST_HEADERS
from postroad.bodies.json_text import json_value
from postroad.bodies.xml_text import local_name, restored, walk_xml
from postroad.errors import InvalidArgument, RemoteProtocolError

NSERVICEBUS, REBUS, MASSTRANSIT, WCF = "nservicebus", "rebus", "masstransit", "wcf"
SYSTEM_MESSAGING = "system.messaging"
MOST_BYTES = 1 << 20  # of an extension that is read
_END_OF_HEADERS = b"</ArrayOfHeaderInfo>"
_DOCUMENT = (
    '<?xml version="1.0" encoding="utf-8"?><ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:xsd="http://www.w3.org/2001/XMLSchema">%s</ArrayOfHeaderInfo>'
)
# XML forbids most of these characters, and .NET writes references.
_REFERENCES = {code: f"&#x{code:X};" for code in (*range(9), *range(0xB, 0x20), 0xFFFE, 0xFFFF)}
_REFERENCES |= {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
# .NET may refuse to read references to these.
NOT_XML = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")
_INTENTS = {1: "Send", 2: "Publish", 3: "Subscribe", 4: "Unsubscribe", 5: "Reply"}
_INTENT = "NServiceBus.MessageIntent"
_TYPE_HEADERS = ("NServiceBus.EnclosedMessageTypes", "rbs2-msg-type")
_EXCEPTION_TYPES = ("NServiceBus.ExceptionInfo.ExceptionType", "MT-Fault-ExceptionType")
_EXCEPTION_TEXTS = ("NServiceBus.ExceptionInfo.Message", "MT-Fault-Message", "rbs2-error-details")
_FAILED_QUEUES = ("NServiceBus.FailedQ", "MT-Fault-InputAddress", "rbs2-source-queue")
_WORDS = re.compile(r"[\w.+`]+")
_LONGEST_SEARCHED = 2000  # characters of a message in which the name of an exception is looked for


@dataclass(frozen=True, slots=True)
class Headers:
    """`names` is flat; a header without a value is "". `system` is the framework that wrote them, if that is known."""

    names: Mapping[str, str] = field(default_factory=dict)
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a framework gave a message up, and the queue where that was."""

    exception: str | None
    message: str | None
    queue: str | None


_NONE = Headers()


def read_headers(extension: bytes, app_tag: int = 0) -> Headers:
    """The headers of an extension. No headers for any that is written otherwise; nothing is raised."""
    if not extension or len(extension) > MOST_BYTES:
        return _NONE
    try:
        end = extension.rfind(_END_OF_HEADERS)
        if end >= 0:
            return _of_nservicebus(extension[: end + len(_END_OF_HEADERS)], app_tag)
        if is_amqp(extension):
            return Headers(amqp_headers(extension))
        return _of_json(extension.rstrip(b"\0"))
    except (RemoteProtocolError, UnicodeError):
        return _NONE


def _of_nservicebus(document: bytes, app_tag: int) -> Headers:
    """What follows the document is ignored, as NServiceBus does. Its version 3 has the intent in AppSpecific."""
    names: dict[str, str] = {}
    current: dict[str, str] = {}
    texts: list[str] = []

    def start(_: str, __: Mapping[str, str]) -> None:
        texts.clear()

    def end(qualified: str) -> None:
        name = local_name(qualified)
        if name == "HeaderInfo":
            if "Key" in current:
                names.setdefault(current["Key"], current.get("Value", ""))
            current.clear()
            if len(names) > MOST_HEADERS:
                raise RemoteProtocolError(f"an extension must have at most {MOST_HEADERS} headers")
        else:
            current[name] = "".join(texts)
        texts.clear()

    if walk_xml(document.decode("utf-8-sig"), start, end, texts.append):
        names = {restored(name): restored(value) for name, value in names.items()}
    if _INTENT not in names and app_tag in _INTENTS:
        names[_INTENT] = _INTENTS[app_tag]
    return Headers(names, NSERVICEBUS)


def write_headers(names: Mapping[str, str]) -> bytes:
    """An extension with these headers as NServiceBus writes them, an ArrayOfHeaderInfo. `read_headers` gives them back.

    Raises InvalidArgument for headers that no reader would take."""
    if len(names) > MOST_HEADERS:
        raise InvalidArgument(f"a message must have at most {MOST_HEADERS} headers, got {len(names)}")
    infos = []
    for name, value in names.items():
        if not name.strip():
            raise InvalidArgument("a header must have a name")
        key, text = name.translate(_REFERENCES), value.translate(_REFERENCES)
        infos.append(f"<HeaderInfo><Key>{key}</Key><Value>{text}</Value></HeaderInfo>")
    try:
        extension = (_DOCUMENT % "".join(infos)).encode()
    except UnicodeEncodeError:
        raise InvalidArgument("headers must be text that UTF-8 can say") from None
    if len(extension) > MOST_BYTES:
        raise InvalidArgument(f"headers must have at most {MOST_BYTES:,} bytes together, got {len(extension):,}")
    return extension


def _of_json(extension: bytes) -> Headers:
    """Rebus writes a dictionary as JSON; its first versions in UTF-7."""
    text = extension.decode("utf-7" if extension.startswith(b"+AHs") else "utf-8-sig").strip()
    text.encode()  # UTF-7 can have half a pair, which nobody can write
    if not text.startswith("{"):
        return _NONE
    return of_dictionary(json_value(text))


def of_dictionary(value: Any) -> Headers:
    """A dictionary of headers, whose values are mostly text."""
    if not isinstance(value, dict) or len(value) > MOST_HEADERS:
        return _NONE
    is_rebus = any(name.startswith(("rbs2-", "rebus-")) for name in value)
    return Headers({name: header_text(each) for name, each in value.items()}, REBUS if is_rebus else None)


def type_of(headers: Mapping[str, str]) -> str | None:
    """The type of the message by its headers: of several the first, without its assembly."""
    for name in _TYPE_HEADERS:
        if found := headers.get(name, "").partition(";")[0]:
            return type_name(found)
    return None


def type_name(qualified: str) -> str:
    """The name of a type of .NET without its assembly, which follows the first comma outside of brackets."""
    depth = 0
    for place, character in enumerate(qualified):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            return qualified[:place].strip()
    return qualified.strip()


def failure_of(headers: Mapping[str, str]) -> Failure | None:
    """What a framework wrote when it gave the message up; None if it did not."""
    exception, message = _first(headers, _EXCEPTION_TYPES), _first(headers, _EXCEPTION_TEXTS)
    if exception is None and message is None:
        return None
    if exception is None:
        words = _WORDS.findall((message or "")[:_LONGEST_SEARCHED])
        exception = next((each for each in words if each.endswith(("Exception", "Error"))), None)
    return Failure(exception, message, _first(headers, _FAILED_QUEUES))


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if name in headers), None)
