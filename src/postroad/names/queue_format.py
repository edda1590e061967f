"""QUEUE_FORMAT as a value, [MS-MQMQ] 2.2.6 to 2.2.11, to and from format names.

This does no marshalling: `rpc` makes the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TypeAlias, TypeVar
from uuid import UUID

from postroad.errors import IllegalQueueFormat
from postroad.names.format import (
    ConnectorName,
    DirectName,
    DistributionListName,
    MachineName,
    MulticastName,
    PrivateName,
    PublicName,
)
from postroad.names.grammar import FormatName, QueueFormatType, QueueSuffixType
from postroad.names.ids import ObjectId

SUFFIX_MASK = 0x0F
FLAGS_MASK = 0xF0
QUEUE_FORMAT_FLAG_NOT_SYSTEM = 0x00
QUEUE_FORMAT_FLAG_SYSTEM = 0x80


@dataclass(frozen=True, slots=True)
class DlId:
    """DL_ID, [MS-MQMQ] 2.2.9"""

    dl_guid: UUID
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class MulticastId:
    """MULTICAST_ID, [MS-MQMQ] 2.2.10.

    The specification does not give the byte order of the address. We read it as an IPv4 `in_addr`: the first octet is
    the low byte of the number, so the octets are in their normal order on the little-endian wire.
    """

    address: int
    port: int

    @classmethod
    def from_name(cls, name: MulticastName) -> MulticastId:
        return cls(int.from_bytes(name.address.packed, "little"), name.port)

    def to_name(self) -> MulticastName:
        return MulticastName(IPv4Address(self.address.to_bytes(4, "little")), self.port)


Arm: TypeAlias = UUID | ObjectId | str | DlId | MulticastId | None
_ArmT = TypeVar("_ArmT", UUID, ObjectId, str, DlId, MulticastId)

_ARMS: dict[QueueFormatType, type[UUID | ObjectId | str | DlId | MulticastId] | None] = {
    QueueFormatType.UNKNOWN: None,
    QueueFormatType.PUBLIC: UUID,
    QueueFormatType.PRIVATE: ObjectId,
    QueueFormatType.DIRECT: str,
    QueueFormatType.MACHINE: UUID,
    QueueFormatType.CONNECTOR: UUID,
    QueueFormatType.DL: DlId,
    QueueFormatType.MULTICAST: MulticastId,
    QueueFormatType.SUBQUEUE: str,
}

_ALL = frozenset(QueueFormatType)
_GROUPS = frozenset({QueueFormatType.CONNECTOR, QueueFormatType.DL, QueueFormatType.MULTICAST})
_COMPUTERS = frozenset({QueueFormatType.DIRECT, QueueFormatType.MACHINE})
_PLAIN = frozenset({QUEUE_FORMAT_FLAG_NOT_SYSTEM})
_SYSTEM = frozenset({QUEUE_FORMAT_FLAG_SYSTEM})

# [MS-MQMQ] 2.2.7: each suffix, with its legal flags and types.
_SUFFIX_RULES: dict[QueueSuffixType, tuple[frozenset[int], frozenset[QueueFormatType]]] = {
    QueueSuffixType.NONE: (_PLAIN, _ALL - {QueueFormatType.MACHINE}),
    QueueSuffixType.JOURNAL: (_SYSTEM, _ALL - _GROUPS - {QueueFormatType.UNKNOWN}),
    QueueSuffixType.DEADLETTER: (_SYSTEM, _COMPUTERS),
    QueueSuffixType.DEADXACT: (_SYSTEM, _COMPUTERS),
    QueueSuffixType.XACTONLY: (_PLAIN | _SYSTEM, frozenset({QueueFormatType.CONNECTOR})),  # no flags are prescribed
    QueueSuffixType.SUBQUEUE: (_PLAIN, frozenset({QueueFormatType.SUBQUEUE})),
}
_SENT_FLAGS = {
    QueueSuffixType.JOURNAL: QUEUE_FORMAT_FLAG_SYSTEM,
    QueueSuffixType.DEADLETTER: QUEUE_FORMAT_FLAG_SYSTEM,
    QueueSuffixType.DEADXACT: QUEUE_FORMAT_FLAG_SYSTEM,
}


@dataclass(frozen=True, slots=True)
class QueueFormat:
    """A queue as RPC calls name it. The constructor checks the rules of 2.2.7. Raises IllegalQueueFormat."""

    m_qft: int
    m_suffix_and_flags: int
    arm: Arm = None

    def __post_init__(self) -> None:
        if self.m_qft not in _ARMS:
            raise self._fault("m_qft must be from 0 to 8")
        arm_type = _ARMS[self.format_type]
        if not (self.arm is None if arm_type is None else isinstance(self.arm, arm_type)):
            raise self._fault(f"a {self.format_type.name} name cannot have an arm of type {type(self.arm).__name__}")
        suffix_number = self.m_suffix_and_flags & ~FLAGS_MASK
        if suffix_number not in _SUFFIX_RULES:
            raise self._fault(f"suffix {suffix_number} is not defined")
        flags, types = _SUFFIX_RULES[self.suffix]
        if self.flags not in flags:
            raise self._fault(f"the suffix {self.suffix.name} cannot have the flags 0x{self.flags:02x}")
        if self.format_type not in types:
            raise self._fault(f"a {self.format_type.name} name cannot have the suffix {self.suffix.name}")

    @property
    def format_type(self) -> QueueFormatType:
        return QueueFormatType(self.m_qft)

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType(self.m_suffix_and_flags & SUFFIX_MASK)

    @property
    def flags(self) -> int:
        return self.m_suffix_and_flags & FLAGS_MASK

    @classmethod
    def from_format_name(cls, name: FormatName) -> QueueFormat:
        """Converts a format name. Raises IllegalQueueFormat for the two kinds that it cannot hold: lists, and machines
        without a suffix."""
        suffix_and_flags = name.suffix | _SENT_FLAGS.get(name.suffix, QUEUE_FORMAT_FLAG_NOT_SYSTEM)
        match name:
            case PublicName(guid=guid):
                return cls(QueueFormatType.PUBLIC, suffix_and_flags, guid)
            case PrivateName(object_id=object_id):
                return cls(QueueFormatType.PRIVATE, suffix_and_flags, object_id)
            case DirectName(wire_text=text, tail=tail):
                direct = QueueFormatType.DIRECT if tail.subqueue is None else QueueFormatType.SUBQUEUE
                return cls(direct, suffix_and_flags, text)
            case MachineName(guid=guid):
                return cls(QueueFormatType.MACHINE, suffix_and_flags, guid)
            case ConnectorName(guid=guid):
                return cls(QueueFormatType.CONNECTOR, suffix_and_flags, guid)
            case DistributionListName(guid=guid, domain=domain):
                return cls(QueueFormatType.DL, suffix_and_flags, DlId(guid, domain))
            case MulticastName():
                return cls(QueueFormatType.MULTICAST, suffix_and_flags, MulticastId.from_name(name))
        raise IllegalQueueFormat(f"a QUEUE_FORMAT must hold one name, got {name}")

    def to_format_name(self) -> FormatName:
        """Converts to a format name. Raises IllegalFormatName if the arm is not a valid name, and IllegalQueueFormat
        for UNKNOWN."""
        journal = self.suffix is QueueSuffixType.JOURNAL
        match self.format_type:
            case QueueFormatType.PUBLIC:
                return PublicName(self._arm(UUID), journal)
            case QueueFormatType.PRIVATE:
                return PrivateName.from_object_id(self._arm(ObjectId), journal)
            case QueueFormatType.DIRECT | QueueFormatType.SUBQUEUE:
                return self._direct_name(self._arm(str))
            case QueueFormatType.MACHINE:
                return MachineName(self._arm(UUID), self.suffix)
            case QueueFormatType.CONNECTOR:
                return ConnectorName(self._arm(UUID), self.suffix is QueueSuffixType.XACTONLY)
            case QueueFormatType.DL:
                dl_id = self._arm(DlId)
                return DistributionListName(dl_id.dl_guid, dl_id.domain or None)
            case QueueFormatType.MULTICAST:
                return self._arm(MulticastId).to_name()
        raise self._fault("it names no queue")

    def _direct_name(self, text: str) -> DirectName:
        # The grammar has the suffix in the text. We also accept it from a client that sets only m_SuffixAndFlags.
        system_suffix = f";{self.suffix.name}"
        if self.suffix in _SENT_FLAGS and not text.lower().endswith(system_suffix.lower()):
            text += system_suffix
        name = DirectName.from_wire(text)
        if self.format_type is QueueFormatType.SUBQUEUE:
            # 2.2.7 does not demand the suffix of a subqueue.
            agrees = name.tail.subqueue is not None and name.suffix is (self.suffix or QueueSuffixType.SUBQUEUE)
        else:
            agrees = name.tail.subqueue is None and name.suffix is self.suffix
        if not agrees:
            raise self._fault(f"the text {text} contradicts the type or the suffix")
        return name

    def _arm(self, arm_type: type[_ArmT]) -> _ArmT:
        assert isinstance(self.arm, arm_type)  # __post_init__ has checked the rest
        return self.arm

    def _fault(self, fault: str) -> IllegalQueueFormat:
        head = f"QUEUE_FORMAT with m_qft {self.m_qft}, m_SuffixAndFlags 0x{self.m_suffix_and_flags:02x}"
        return IllegalQueueFormat(f"{head}: {fault}")
