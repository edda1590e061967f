"""Forms: what many messages of one sender have in common, read once.

Messages that one manager sends to one queue within one second differ only in their ids and bodies. The second such
message makes a form: its packet, with gaps for the id and the body. All further ones only fill the gaps.

A form is for plain messages to a local queue: they are unsigned, belong to no stream, and want no receipt of
arrival.
"""

from __future__ import annotations

from typing import Final

from postroad.errors import MalformedSoap
from postroad.names import DirectName
from postroad.soap.addresses import destination_of
from postroad.soap.elements import Attachments, Envelope, MessageType, identify
from postroad.soap.envelope import read_fast
from postroad.soap.packets import packet_of
from postroad.wire.headers import SECTION_SIZE, soap_sections
from postroad.wire.patch import Pattern, brought_by
from postroad.wire.view import MessageView

MAX_FORMS: Final = 256
MAX_TEXT: Final = 2048  # bytes of an envelope that can have a form, so that all forms together stay small

_ID: Final = b"<id>uuid:"  # no text that `read_fast` accepts contains markup, so this is the element in the path
_MAX_DIGITS: Final = 10
_MAX_LONG: Final = b"3999999999"  # of ten digits: it fits 32 bits


class Form:
    """`view` is a message of this form without a body. The other messages differ from it only in ids and sizes."""

    __slots__ = (
        "_ends",
        "_header",
        "_pattern",
        "_tail",
        "caller",
        "durable",
        "name",
        "priority",
        "source",
        "view",
    )

    def __init__(self, envelope: Envelope, name: DirectName, packet: bytes, header: tuple[str, str]) -> None:
        """`packet` has no body. `header` is the text around the number in the id, as the SoapHeader keeps it."""
        assert envelope.source is not None
        self.view = view = MessageView(packet)
        self.name = name
        self.priority = view.priority
        self.durable = view.recoverable
        self.source = view.source_queue_manager_bytes
        self.caller = brought_by(packet)
        self._header = header
        self._tail = envelope.source.body
        self._ends: dict[int, tuple[bytes, bytes]] = {}  # by the number of digits: the SoapHeader around it
        self._pattern = Pattern(view)

    def packet(self, digits: bytes, body: bytes) -> bytes:
        """Returns the packet of the message with this number and body. It may be larger than allowed."""
        ends = self._ends.get(len(digits))
        if ends is None:
            ends = self._ends[len(digits)] = self._soap_ends(len(digits))
        return self._pattern.filled(
            int(digits), body, b"".join((ends[0], digits.decode("ascii").encode("utf-16-le"), ends[1]))
        )

    def _soap_ends(self, digits: int) -> tuple[bytes, bytes]:
        before, after = self._header
        soap = soap_sections(f"{before}{'0' * digits}{after}", self._tail)
        at = SECTION_SIZE + len(before.encode("utf-16-le"))
        return soap[:at], soap[at + 2 * digits :]


class Forms:
    """The newest forms, by the text around the number in the id and by the address that brings the messages."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, str], Form | None] = {}  # None: seen once, or without a form

    def find(self, text: bytes, address: str) -> tuple[Form, bytes] | None:
        """The form of an envelope, and the digits of its message's number. None if the envelope has to be read."""
        if len(text) > MAX_TEXT:
            return None
        start = text.find(_ID) + len(_ID)
        stop = text.find(b"@", start, start + _MAX_DIGITS + 1)
        digits = text[start:stop]
        if not digits.isdigit() or (len(digits) == _MAX_DIGITS and digits > _MAX_LONG):
            return None
        key = (text[:start], text[stop:], address)
        try:
            form = self._known[key]
        except KeyError:
            if len(self._known) >= MAX_FORMS:
                del self._known[next(iter(self._known))]
            self._known[key] = None
            return None
        if form is None:
            form = self._known[key] = form_of(text, digits, address)
        return None if form is None else (form, digits)


def form_of(text: bytes, digits: bytes, address: str) -> Form | None:
    """Makes the form of the message with this envelope. None if the message is not plain, or not valid."""
    try:
        envelope = read_fast(text.decode("utf-8"))
        if envelope is None or not _is_plain(envelope):
            return None
        name = destination_of(envelope.path.to)
        assert envelope.source is not None
        assert envelope.properties.sent_at is not None
        if not isinstance(name, DirectName):
            return None
        packet = packet_of(envelope, Attachments(), envelope.properties.sent_at, name, address=address)
    except (MalformedSoap, UnicodeDecodeError):
        return None  # the XML reader will say what is wrong
    before, mark, rest = envelope.source.header.partition(_ID.decode())
    form = Form(envelope, name, packet, (before + mark, rest[len(digits) :]))
    return form if form.packet(digits, b"") == packet else None  # they differ if the SoapHeader was too large


def _is_plain(envelope: Envelope) -> bool:
    services, msmq = envelope.services, envelope.msmq
    return (
        envelope.stream is None
        and envelope.properties.sent_at is not None  # else the time of arrival takes its place
        and identify(envelope) is MessageType.USER
        and (services is None or not (services.delivery_receipt_request or services.commitment_receipt_request))
        and msmq is not None
        and not (msmq.journal or msmq.trace)
    )
