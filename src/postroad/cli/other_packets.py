"""What `postroad decode` shows besides packets of sessions: SOAP messages, RPC fragments, and bodies of messages."""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroad.bodies import decode, read_headers
from postroad.describe import message_json
from postroad.describe.capture import Kind, Origin, OtherPacket
from postroad.errors import RemoteProtocolError
from postroad.wire import MessageView

if TYPE_CHECKING:
    from uuid import UUID

    from postroad.rpc.interface import Interface
    from postroad.rpc.pdu import Bind, SecTrailer

MAX_CONNECTIONS = 10_000  # whose interfaces are remembered; the oldest goes first
_XML_TYPE = "text/xml"


@dataclass(frozen=True, slots=True)
class Described:
    """`facts` are ready for JSON. `text` is what a body says."""

    kind: str
    facts: Mapping[str, object]
    text: str | None = None
    body: bytes = b""


def decoded_fields(view: MessageView) -> dict[str, Any] | None:
    """What the body and the extension of a message say. None for an encrypted body."""
    if view.encrypted:
        return None
    return decode(view.body, view.body_type, view.extension, app_tag=view.application_tag).fields()


class OtherPackets:
    """Describes them one after the other. It remembers what an RPC connection was bound to."""

    def __init__(self) -> None:
        self._bound: OrderedDict[tuple[str | None, ...], dict[int, UUID]] = OrderedDict()

    def describe(self, item: OtherPacket) -> Described:
        """Raises RemoteProtocolError if it is damaged."""
        match item.kind:
            case Kind.HTTP:
                return _http(item.data)
            case Kind.RPC:
                return self._rpc(item.data, item.origin)
        return _soap({}, _XML_TYPE, item.data) or _body(item.data)

    def _rpc(self, data: bytes, origin: Origin) -> Described:
        from postroad.rpc import pdu as pdus

        pdu = pdus.decode(data)
        facts: dict[str, object] = {"call_id": pdu.call_id, "first": pdu.first, "last": pdu.last}
        match pdu:
            case pdus.Bind():  # and AlterContext
                self._remember(pdu, origin)
                facts["contexts"] = [
                    {
                        "context_id": each.context_id,
                        **_interface(each.abstract.uuid),
                        "version": f"{each.abstract.major}.{each.abstract.minor}",
                        "transfer_syntaxes": [_syntax(transfer) for transfer in each.transfers],
                    }
                    for each in pdu.contexts
                ]
            case pdus.BindAck():  # and AlterContextResponse
                facts["secondary_address"] = pdu.secondary_address
                facts["results"] = [
                    {"result": each.result, "reason": each.reason, "transfer_syntax": _syntax(each.transfer)}
                    for each in pdu.results
                ]
            case pdus.BindNak():
                facts["reason"] = pdu.reason
            case pdus.Request():
                facts |= {"context_id": pdu.context_id, "opnum": pdu.opnum}
                facts |= self._operation(origin, pdu.context_id, pdu.opnum)
                facts |= _stub(pdu.stub)
            case pdus.Response():
                facts |= {"context_id": pdu.context_id} | _stub(pdu.stub)
            case pdus.Fault():
                facts |= {"context_id": pdu.context_id, "status": f"{pdu.status:#010x}"}
        return Described(f"Rpc{type(pdu).__name__}", facts | _authentication(pdu.trailer))

    def _remember(self, bind: Bind, origin: Origin) -> None:
        key = (origin.source, origin.destination)
        self._bound.setdefault(key, {}).update({each.context_id: each.abstract.uuid for each in bind.contexts})
        if len(self._bound) > MAX_CONNECTIONS:
            self._bound.popitem(last=False)

    def _operation(self, origin: Origin, context_id: int, opnum: int) -> dict[str, object]:
        """What is called, if the bind of the connection was seen."""
        uuid = self._bound.get((origin.source, origin.destination), {}).get(context_id)
        if uuid is None:
            return {}
        known = _interfaces().get(uuid)
        operation = known.operations.get(opnum) if known else None
        return _interface(uuid) | ({"operation": operation.name} if operation else {})


def _interfaces() -> Mapping[UUID, Interface]:
    from postroad.remote_read.qm2qm import QM2QM
    from postroad.remote_read.qmcomm import QMCOMM
    from postroad.rpc.epm_interface import EPMAPPER
    from postroad.rpc.mgmt import MGMT

    return {each.uuid: each for each in (QMCOMM, QM2QM, EPMAPPER, MGMT)}


def _interface(uuid: UUID) -> dict[str, object]:
    known = _interfaces().get(uuid)
    return {"interface": known.name if known else str(uuid)}


def _syntax(syntax: object) -> str:
    from postroad.rpc.pdu import NDR, NDR64, SyntaxId, features_of

    assert isinstance(syntax, SyntaxId)
    if features_of(syntax) is not None:
        return "features"
    return {NDR.uuid: "NDR", NDR64.uuid: "NDR64"}.get(syntax.uuid, str(syntax.uuid))


def _stub(stub: bytes) -> dict[str, object]:
    return {"stub_size": len(stub), "stub_base64": b64encode(stub).decode()}


def _authentication(trailer: SecTrailer | None) -> dict[str, object]:
    from postroad.rpc.constants import AuthLevel, AuthType

    if trailer is None:
        return {}
    kinds = {each.value: each.name.lower() for each in AuthType}
    levels = {each.value: each.name.lower() for each in AuthLevel}
    return {
        "authentication": kinds.get(trailer.auth_type, str(trailer.auth_type)),
        "authentication_level": levels.get(trailer.auth_level, str(trailer.auth_level)),
    }


# HTTP and SOAP


def _http(data: bytes) -> Described:
    head, _, entity = data.partition(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    facts: dict[str, object] = {"start": start}
    found = _soap(facts, fields.get("content-type", ""), entity) if entity else None
    if found is not None:
        return found
    if not entity:
        return Described("HttpMessage", facts)
    body = _body(entity)
    return Described("HttpMessage", {**facts, **body.facts}, body.text, entity)


def _soap(facts: Mapping[str, object], content_type: str, entity: bytes) -> Described | None:
    """A message or receipt of [MC-MQSRM]. None if it is none; one that breaks a rule says which."""
    from postroad.errors import MalformedSoap
    from postroad.soap.envelope import is_receipt, read_envelope
    from postroad.soap.multipart import split_entity
    from postroad.soap.packets import packet_of

    try:
        text, attachments = split_entity(content_type, entity)
        envelope = read_envelope(text)
    except MalformedSoap as fault:
        if b"schemas.xmlsoap.org/srmp" not in entity[:65_536]:
            return None
        raise RemoteProtocolError(f"a SOAP message that breaks a rule: {fault}") from None
    try:
        view = MessageView(packet_of(envelope, attachments, 0))
    except MalformedSoap as fault:
        raise RemoteProtocolError(f"a SOAP message that breaks a rule: {fault}") from None
    decoded = decoded_fields(view)
    kind = "SoapReceipt" if is_receipt(envelope) else "SoapMessage"
    envelope_text = text.decode("utf-8", "replace")
    facts = {**facts, **message_json(view), "decoded": decoded, "envelope": envelope_text}
    return Described(kind, facts, decoded["body_text"] if decoded else None, view.body)


def _body(data: bytes) -> Described:
    """A file that is the body of a message, or the headers of one."""
    headers = read_headers(data)
    if headers.system is not None:
        return Described("Headers", {"system": headers.system, "headers": dict(headers.names)})
    found = decode(data)
    fields = {name: value for name, value in found.fields().items() if name != "headers" or value}
    if found.fault is not None:
        fields["fault"] = found.fault
    return Described("Body", fields, found.text, data)
