"""The Msmq block, [MC-MQSRM] 2.2.6: what a message of MSMQ has and SRMP has no word for. Read and written."""

from __future__ import annotations

from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.message import MAX_PRIORITY
from postroad.soap.blocks import MSMQ, Children, escape, names, text, value
from postroad.soap.elements import Eod, Msmq, Provider
from postroad.soap.texts import U16, base64_text, date_text, parse_base64, parse_date, parse_guid, parse_number
from postroad.soap.tree import Element
from postroad.wire.multi_queue_header import MAX_ELEMENTS as MAX_LIST
from postroad.wire.properties_header import NO_CORRELATION

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
        raise MalformedSoap("Msmq/Priority", f"{priority} is not between 0 and {MAX_PRIORITY}")
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
        raise MalformedSoap("Msmq/Correlation", f"it has {len(NO_CORRELATION)} bytes, not {len(data)}")
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
        raise MalformedSoap(children.place(name), "a list has one name or more")
    if len(members) > MAX_LIST:
        raise MalformedSoap(children.place(name), f"a list of {len(members)} queues is longer than {MAX_LIST}")
    return members


def write_msmq(msmq: Msmq) -> str:
    """3.1.7.2.4: the children in its order."""
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
    """3.1.7.2.4: a line feed behind each member, which ends a name for every reader of 3.1.5.1.1."""
    return value(name, "".join(f"{escape(member)}\n" for member in members)) if members else ""
