"""What a message says: the kind of its body, readable text, plain values, and headers.

For every body there is an answer, in bounded time and memory. Nothing in a body is executed, loaded or fetched. A body
that only looks like a kind is text or bytes, and `fault` says why.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import unescape
from typing import Any

from postroad.bodies import nrbf
from postroad.bodies.activex import BYTE_VECTORS, activex_value, is_activex
from postroad.bodies.amqp import header_text
from postroad.bodies.bounds import LIMIT
from postroad.bodies.headers import (
    MASSTRANSIT,
    SYSTEM_MESSAGING,
    WCF,
    Failure,
    Headers,
    failure_of,
    of_dictionary,
    read_headers,
    type_name,
    type_of,
)
from postroad.bodies.json_text import indented_json, json_value
from postroad.bodies.nbfx import read_document
from postroad.bodies.wcf import is_envelope, is_framed, read_framed, start_of_envelope
from postroad.bodies.xml_text import TYPE, indented_xml, xml_value
from postroad.errors import RemoteProtocolError
from postroad.wire.constants import BodyType
from postroad.wire.octets import body_text

BINARY_OBJECT = 768  # the body type of .NET's BinaryMessageFormatter
_LARGEST = 16 << 20  # bytes; a message of MSMQ has at most 4 MiB
_MARKS = (
    (BOM_UTF8, "utf-8"),
    (BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it starts with
    (BOM_UTF32_BE, "utf-32-be"),
    (BOM_UTF16_LE, "utf-16-le"),
    (BOM_UTF16_BE, "utf-16-be"),
)
_STARTS = {"utf-16-le": re.compile(rb"(?:\s\0)*[<\[{]\0"), "utf-16-be": re.compile(rb"(?:\0\s)*\0[<\[{]")}
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_DECLARED = re.compile(rb"\s*<\?xml\s[^>]{0,100}?encoding\s*=\s*[\"']([\w.-]{1,40})[\"']")
_SINGLE_BYTE = re.compile(r"windows-125[0-8]|iso-8859-\d{1,2}|us-ascii|ibm850|ibm437", re.IGNORECASE)
_BEFORE_ROOT = re.compile(r"(?:\s*+(?:<\?(?>.*?\?>)|<!--(?>.*?-->)))*+\s*+<", re.DOTALL)
_ROOT = re.compile(r"(?:[^\s<>/:!?=\"']{1,1000}:)?([^\s<>/:!?=\"']{1,1000})[\s/>]")
_JSON_TYPE = re.compile(r'\s*\{\s*"\$type"\s*:\s*"([^"\\]{1,1000})"')
_ACTION = re.compile(r"<(?:\w{1,100}:)?Action\b[^<>]{0,1000}+>([^<>]{1,2000}+)</")
_IN_BODY = re.compile(
    r"<(?:\w{1,100}:)?Body\b[^<>]{0,1000}+>\s{0,100}+<(?:[^\s<>/:!?=\"']{1,1000}:)?([^\s<>/:!?=\"']{1,1000})[\s/>]"
)
_URN = "urn:message:"
_MASSTRANSIT_TYPE = re.compile(r'"messageType"\s*:\s*\[\s*"urn:message:([^"\\]{1,1000})"')
_LOOK = 8192  # characters at the start in which the type of a message is looked for
_ENVELOPE = "Envelope"


class BodyKind(StrEnum):
    """How a body is written."""

    TEXT = "text"
    JSON = "json"
    XML = "xml"
    NRBF = "nrbf"
    ACTIVEX = "activex"
    WCF = "wcf"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Decoded:
    """`text` is None for bytes. `value` is a dictionary, a list, text, a number, a truth, bytes or None."""

    kind: BodyKind
    text: str | None = None
    text_cut: bool = False
    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    system: str | None = None
    message_type: str | None = None
    fault: str | None = None  # why a body is not what it claims

    @property
    def failure(self) -> Failure | None:
        """Why a framework gave the message up, if it did."""
        return failure_of(self.headers)

    def fields(self) -> dict[str, Any]:
        """Ready for JSON, under the names that every door uses."""
        found: dict[str, Any] = {"body_kind": str(self.kind), "body_text": self.text}
        if self.text_cut:
            found["body_text_cut"] = True
        found["headers"] = dict(self.headers)
        if self.system is not None:
            found["system"] = self.system
        if self.message_type is not None:
            found["message_type"] = self.message_type
        return found


def decode(body: bytes, body_type: int = 0, extension: bytes = b"", *, app_tag: int = 0, limit: int = LIMIT) -> Decoded:
    """What the body and the extension say. The text has at most `limit` characters."""
    headers = read_headers(extension, app_tag)
    found = _read(body, body_type, limit)
    of_body = Headers(found.headers, found.system)
    names = headers.names or of_body.names
    system = headers.system or of_body.system or (SYSTEM_MESSAGING if body_type == BINARY_OBJECT else None)
    return replace(found, headers=names, system=system, message_type=type_of(headers.names) or found.message_type)


@dataclass(frozen=True, slots=True)
class Outline:
    """What a message says of itself before anybody reads its body."""

    headers: Mapping[str, str]
    message_type: str | None


def outline(body: bytes, body_type: int = 0, extension: bytes = b"", *, app_tag: int = 0) -> Outline:
    """The headers and the type that `decode` gives, for many messages: several times as fast. Only the start of the
    body is read, so a body that is damaged further on has a type, too."""
    names = read_headers(extension, app_tag).names
    if not names and _URN.encode() in body:  # MassTransit has its headers in the body
        names = decode(body, body_type, limit=0).headers
    return Outline(names, type_of(names) or _type_in(body, body_type))


def message_type(body: bytes, body_type: int = 0, extension: bytes = b"") -> str | None:
    """The type that `outline` gives."""
    return type_of(read_headers(extension).names) or _type_in(body, body_type)


def _type_in(body: bytes, body_type: int) -> str | None:
    if body_type in (BINARY_OBJECT, BodyType.VT_EMPTY) and nrbf.is_nrbf(body):
        return _short(nrbf.root_class(body))
    text = start_of(body, body_type)
    if text.startswith("<"):
        return _type_of_envelope(text)
    if text.startswith("{"):
        if own := _JSON_TYPE.match(text):
            return type_name(own[1])
        urn = _MASSTRANSIT_TYPE.search(text)
        return None if urn is None else urn[1].replace(":", ".", 1)
    return None


def _type_of_envelope(start: str) -> str | None:
    """The action, else the first element of the body, else the root; of text that may end anywhere."""
    root = _root(start)
    found = (_ACTION.search(start) or _IN_BODY.search(start)) if root == _ENVELOPE else None
    return unescape(found[1]) if found else root


def _root(start: str) -> str | None:
    before = _BEFORE_ROOT.match(start)
    root = before and _ROOT.match(start, before.end())
    return root[1] if root else None


def start_of(body: bytes, body_type: int = 0) -> str:
    """The first characters of a text or a binary envelope, "" for other bodies. The rest of the body is not read."""
    if body_type == BodyType.VT_EMPTY and (is_framed(body) or is_envelope(body)):
        return start_of_envelope(body, _LOOK)
    head = body[: _LOOK * 4]
    shorter = (head[: len(head) - cut] for cut in range(4 if len(body) > len(head) else 1))  # not inside a character
    text = next((each for part in shorter if (each := text_of(part, body_type)) is not None), "")
    return text.lstrip("\ufeff \t\r\n")[:_LOOK]


def text_of(body: bytes, body_type: int) -> str | None:
    """The body as text if its type, a byte order mark or its bytes show that it is text, else None."""
    if body_type != BodyType.VT_EMPTY:
        return body_text(body, body_type)
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return _readable(body[len(mark) :], encoding)
    for encoding, start in _STARTS.items():
        if start.match(body):
            return _readable(body, encoding)
    text = body_text(body, body_type)
    if text is None and body.endswith(b"\0"):  # C programs send the end of their texts, too
        text = _readable(body, "utf-8")
    if text is None and (declared := _DECLARED.match(body)) and _SINGLE_BYTE.fullmatch(declared[1].decode("latin-1")):
        text = _readable(body, declared[1].decode("latin-1"))
    return text


def _readable(body: bytes, encoding: str) -> str | None:
    try:
        text = body.decode(encoding).rstrip("\0")
    except (UnicodeDecodeError, LookupError):
        return None
    return None if _CONTROLS.search(text) or not text else text


# Kinds


def _read(body: bytes, body_type: int, limit: int) -> Decoded:
    if len(body) > _LARGEST:
        return Decoded(BodyKind.BYTES, fault=f"the body must have at most {_LARGEST:,} bytes")
    if not body:
        return Decoded(BodyKind.TEXT, "", value="")
    fault: str | None = None
    try:
        if body_type == BINARY_OBJECT or (body_type == BodyType.VT_EMPTY and nrbf.is_nrbf(body)):
            return _nrbf(body, limit)
        if body_type == BodyType.VT_EMPTY and (is_framed(body) or is_envelope(body)):
            return _wcf(body, limit)
        if is_activex(body_type):
            return _activex(body, body_type, limit)
    except RemoteProtocolError as error:
        fault = str(error)
    text = text_of(body, body_type)
    if text is None:
        return Decoded(BodyKind.BYTES, value=body, fault=fault)
    found = _text(text, limit)
    if body_type != BodyType.VT_EMPTY and found.kind != BodyKind.TEXT:
        found = replace(found, kind=BodyKind.ACTIVEX)  # a text by its type, which has XML or JSON
    return found if fault is None else replace(found, fault=fault)


def _text(text: str, limit: int) -> Decoded:
    text = text.removeprefix("\ufeff")
    start = text.lstrip(" \t\r\n")[:1]
    fault = None
    try:
        if start == "<":
            return _xml(text, limit)
        if start in ("{", "["):
            return _json(text, limit)
    except RemoteProtocolError as error:
        fault = str(error)
    return Decoded(BodyKind.TEXT, text[:limit], len(text) > limit, text, fault=fault)


def _json(text: str, limit: int) -> Decoded:
    value = json_value(text)
    shown, cut = indented_json(text, limit)
    own = value.get(TYPE) if isinstance(value, dict) else None
    found = Decoded(BodyKind.JSON, shown, cut, value, message_type=type_name(own) if isinstance(own, str) else None)
    if not isinstance(value, dict) or "message" not in value:
        return found
    types = value.get("messageType")
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not types or not isinstance(types[0], str) or not types[0].startswith(_URN):
        return found
    headers = of_dictionary(value.get("headers"))
    name = types[0].removeprefix(_URN).replace(":", ".", 1)
    return replace(found, headers=headers.names, system=MASSTRANSIT, message_type=name)


def _xml(text: str, limit: int) -> Decoded:
    root, value = xml_value(text)
    shown, cut = indented_xml(text, limit)
    return Decoded(BodyKind.XML, shown, cut, value, message_type=_action(root, value) or root)


def _nrbf(body: bytes, limit: int) -> Decoded:
    value = nrbf.read(body)
    shown, cut = plain_text(value, limit)
    return Decoded(BodyKind.NRBF, shown, cut, value, message_type=_short(nrbf.root_class(body)))


def _short(name: str | None) -> str | None:
    return None if name is None else type_name(name)


def _activex(body: bytes, body_type: int, limit: int) -> Decoded:
    value = activex_value(body, body_type)
    if body_type not in BYTE_VECTORS:
        shown, cut = plain_text(value, limit)
        return Decoded(BodyKind.ACTIVEX, shown, cut, value)
    text = text_of(body, BodyType.VT_EMPTY)
    if text is None:
        return Decoded(BodyKind.BYTES, value=body)
    found = _text(text, limit)  # bytes that are text, which is what the sender has put into its array
    return replace(found, kind=BodyKind.ACTIVEX, value=body)


def _wcf(body: bytes, limit: int) -> Decoded:
    envelopes = read_framed(body).envelopes if is_framed(body) else (read_document(body),)
    values: list[Any] = []
    texts: list[str] = []
    name: str | None = None
    left, cut = limit, False
    for envelope in envelopes:
        try:
            root, value = xml_value(envelope)
            shown, cut = indented_xml(envelope, left)
            name = name or _action(root, value) or root
        except RemoteProtocolError:  # text that XML cannot say, such as a comment with two hyphens
            value, shown, cut = envelope, envelope[:left], len(envelope) > left
        values.append(value)
        texts.append(shown)
        left -= len(shown) + 1
        if cut or left <= 0:
            cut = cut or len(texts) < len(envelopes)
            break
    only = values[0] if len(envelopes) == 1 else values
    return Decoded(BodyKind.WCF, "\n".join(texts), cut, only, system=WCF, message_type=name)


def _action(root: str, value: Any) -> str | None:
    """The action of a SOAP envelope, else the name of what its body has."""
    if root != _ENVELOPE or not isinstance(value, dict):
        return None
    header, content = value.get("Header"), value.get("Body")
    action = header.get("Action") if isinstance(header, dict) else None
    action = action.get("#text") if isinstance(action, dict) else action
    if isinstance(action, str) and action:
        return str(action)
    names = [name for name in content if name[0] not in "@#"] if isinstance(content, dict) else []
    return names[0] if names else None


def plain_text(value: Any, limit: int = LIMIT) -> tuple[str, bool]:
    """A value for people: one line for a single one, else indented as JSON; and whether it was cut at the limit."""
    if isinstance(value, dict | list):
        out: list[str] = []
        size = 0
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=header_text).iterencode(value):
            out.append(piece)
            size += len(piece)
            if size > limit:
                return "".join(out)[:limit], True
        return "".join(out), False
    if isinstance(value, str):
        text = str(value)
    elif isinstance(value, bytes):
        text = b64encode(value).decode()
    else:
        text = json.dumps(value)
    return text[:limit], len(text) > limit
