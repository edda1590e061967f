"""The queue names of a UserHeader, and format names made from them and back. It knows which manager a number belongs
to.

A packet has no code for a multicast address. Such a name takes the place of a direct name, with its own prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING
from uuid import UUID

from postroad.errors import LocalProtocolError
from postroad.names import DirectName, FormatName, MulticastName, PrivateName, PublicName, parse_format_name
from postroad.wire.constants import QueueCode
from postroad.wire.octets import NULL_GUID, Reader, Writer, encode_text

if TYPE_CHECKING:
    from postroad.wire.view import MessageView

MULTICAST_PREFIX = "MULTICAST="
_U32 = Struct("<I")
_NAME_COUNT = Struct("<H")
_MAX_COUNT = 0xFFFF


@dataclass(frozen=True, slots=True)
class QueueField:
    """A queue name in the form of the UserHeader. The code says which manager a private number belongs to."""

    code: QueueCode = QueueCode.NONE
    number: int = 0
    guid: UUID = NULL_GUID
    direct_name: str = ""

    @classmethod
    def decode(cls, code: int, reader: Reader, what: str) -> QueueField:
        match QueueCode(code):
            case QueueCode.NONE | QueueCode.SAME_AS_ADMIN as kind:
                return cls(kind)
            case QueueCode.PUBLIC as kind:
                return cls(kind, guid=reader.guid(what))
            case QueueCode.PRIVATE_ON_OTHER as kind:
                guid = reader.guid(what)
                return cls(kind, reader.unpack(_U32, what)[0], guid)
            case QueueCode.DIRECT as kind:
                (count,) = reader.unpack(_NAME_COUNT, what)
                name = reader.text(count, what)
                reader.align(4, what)
                return cls(kind, direct_name=name)
            case kind:
                return cls(kind, reader.unpack(_U32, what)[0])

    def encode(self, writer: Writer) -> None:
        match self.code:
            case QueueCode.NONE | QueueCode.SAME_AS_ADMIN:
                pass
            case QueueCode.PUBLIC:
                writer.put(self.guid.bytes_le)
            case QueueCode.PRIVATE_ON_OTHER:
                writer.put(self.guid.bytes_le + _U32.pack(self.number))
            case QueueCode.DIRECT:
                name = encode_text(self.direct_name, "a direct format name")
                if len(name) > _MAX_COUNT:
                    raise LocalProtocolError(f"a direct format name of {len(name)} bytes does not fit a packet")
                writer.put(_NAME_COUNT.pack(len(name)) + name)
                writer.align(4)
            case _:
                writer.put(_U32.pack(self.number))


NO_QUEUE = QueueField()


def destination_name(view: MessageView) -> FormatName | None:
    """The destination's name. Raises IllegalFormatName if the packet has a direct name that violates the grammar."""
    return _name(view.destination_queue, view, NULL_GUID)


def admin_name(view: MessageView) -> FormatName | None:
    return _name(view.admin_queue, view, NULL_GUID)


def response_name(view: MessageView) -> FormatName | None:
    """[MS-MQMQ] 2.2.19.2 RQ: it can be the administration queue itself, or a private queue of the same manager."""
    field = view.response_queue
    if field.code is QueueCode.SAME_AS_ADMIN:
        return admin_name(view)
    if field.code is QueueCode.PRIVATE_ON_ADMIN:
        admin = admin_name(view)
        return _name(field, view, admin.guid if isinstance(admin, PrivateName) else NULL_GUID)
    return _name(field, view, NULL_GUID)


def _name(field: QueueField, view: MessageView, admin_manager: UUID) -> FormatName | None:
    match field.code:
        case QueueCode.NONE | QueueCode.SAME_AS_ADMIN:
            return None
        case QueueCode.PUBLIC:
            return PublicName(field.guid)
        case QueueCode.DIRECT:
            return written_name(field.direct_name)
        case QueueCode.PRIVATE_ON_SOURCE:
            return PrivateName(view.source_queue_manager, field.number)
        case QueueCode.PRIVATE_ON_DESTINATION:
            return PrivateName(view.queue_manager_address, field.number)
        case QueueCode.PRIVATE_ON_ADMIN:
            return PrivateName(admin_manager, field.number)
        case QueueCode.PRIVATE_ON_OTHER:
            return PrivateName(field.guid, field.number)


def written_name(text: str) -> DirectName | MulticastName:
    """The name in the place of a direct name. Raises IllegalFormatName if it violates the grammar."""
    if text[: len(MULTICAST_PREFIX)].upper() == MULTICAST_PREFIX:
        name = parse_format_name(text)
        if isinstance(name, MulticastName):
            return name
    return DirectName.from_wire(text)


def destination_field(name: FormatName) -> tuple[QueueField, UUID]:
    """A destination in the form of the UserHeader, and its QueueManagerAddress (null if unknown).

    A packet cannot name a journal: its readers would take the name for that of the queue.
    """
    match name:
        case PublicName(journal=False):
            return QueueField(QueueCode.PUBLIC, guid=name.guid), NULL_GUID
        case PrivateName(journal=False):
            return QueueField(QueueCode.PRIVATE_ON_DESTINATION, name.number), name.guid
        case DirectName():
            return QueueField(QueueCode.DIRECT, direct_name=name.wire_text), NULL_GUID
        case MulticastName():
            return QueueField(QueueCode.DIRECT, direct_name=str(name)), NULL_GUID
    raise LocalProtocolError(f"{name} cannot be the destination of a packet")


def other_field(name: FormatName | None, source: UUID, destination: UUID) -> QueueField:
    """An administration or response queue in the form of the UserHeader, which depends on both managers."""
    match name:
        case None:
            return NO_QUEUE
        case PublicName(journal=False):
            return QueueField(QueueCode.PUBLIC, guid=name.guid)
        case DirectName():
            return QueueField(QueueCode.DIRECT, direct_name=name.wire_text)
        case MulticastName():
            return QueueField(QueueCode.DIRECT, direct_name=str(name))
        case PrivateName(journal=False):
            if name.guid == source:
                return QueueField(QueueCode.PRIVATE_ON_SOURCE, name.number)
            if name.guid == destination:
                return QueueField(QueueCode.PRIVATE_ON_DESTINATION, name.number)
            return QueueField(QueueCode.PRIVATE_ON_OTHER, name.number, name.guid)
    raise LocalProtocolError(f"{name} cannot be the administration or response queue of a packet")
