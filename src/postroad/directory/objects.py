"""The objects of a directory, [MS-MQDMPR] 3.1.1: queue managers, sites, routing links and public queues, all frozen.

They refer to each other by identifier. `Directory` resolves these references.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from uuid import UUID

from postroad.errors import DirectoryError, RemoteProtocolError
from postroad.names import PathName
from postroad.validation.queue_properties import QueueSettings
from postroad.wire.records import decode_user_certificates

MIN_COST = 1
MAX_COST = 999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryObject:
    """[MS-MQDMPR] 3.1.1"""

    identifier: UUID


NO_TYPE = UUID(int=0)
NO_QUOTA = 0xFFFFFFFF  # [MS-MQDSSM] 3.1.6.11: the value of a quota that does not limit


class DirectoryServerType(Enum):
    """[MS-MQDMPR] 3.1.1.1, and the bits of mSMQServiceType that say it."""

    STANDALONE = 0
    BACKUP_SITE_CONTROLLER = 2
    PRIMARY_SITE_CONTROLLER = 4
    PRIMARY_ENTERPRISE_CONTROLLER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManager(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.1. Without an address, its name is resolved. `public_encryption_keys` is an MQDSPUBLICKEYS.

    What only Active Directory holds has a default: an enterprise in a file has none of it.
    """

    computer_name: str
    address: str | None = None
    other_addresses: tuple[str, ...] = ()  # where it may be as well: our addition, for a manager that moves
    site_identifier_list: tuple[UUID, ...] = ()
    routing_server: bool = False
    in_routing_server_identifier_list: tuple[UUID, ...] = ()
    out_routing_server_identifier_list: tuple[UUID, ...] = ()
    public_encryption_keys: bytes = b""
    qualified_computer_name: str | None = None  # dNSHostName
    full_path: str = ""  # the DN of its mSMQConfiguration
    security_identifier: str | None = None  # of the computer, as in S-1-5-21-...
    security: bytes = b""  # the descriptor of its mSMQConfiguration
    public_signing_key_list: bytes = b""  # MQUSERSIGNCERTS of the computer
    queue_manager_quota: int = 0x0010_0000  # KiB
    journal_quota: int = NO_QUOTA  # KiB
    foreign_system: bool = False
    directory_server: bool = False
    directory_server_type: DirectoryServerType | None = None  # None unless it is a directory server
    supporting_server: bool = False
    remote_access_server: bool = False
    clustered: bool = False
    queue_manager_version: str = ""
    operating_system_type: int = 0
    operating_system_version: str = ""
    create_time: int = 0  # seconds since 1970
    modify_time: int = 0

    @property
    def host(self) -> str:
        return self.hosts[0]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where to connect: addresses, or names to resolve, which may have several addresses."""
        return (self.address or self.qualified_computer_name or self.computer_name, *self.other_addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        return () if self.address is None else (self.address, *self.other_addresses)


@lru_cache(maxsize=256)
def signing_certificates(public_signing_key_list: bytes) -> tuple[bytes, ...]:
    """The certificates in MQUSERSIGNCERTS; none if it cannot be read."""
    try:
        found = decode_user_certificates(public_signing_key_list) if public_signing_key_list else ()
    except RemoteProtocolError:
        return ()
    return tuple(each.certificate for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.7. `site_gate_identifier_list` is our addition: gates that need not be named by a routing
    link."""

    name: str
    site_gate_identifier_list: tuple[UUID, ...] = ()
    full_path: str = ""
    foreign_site: bool = False
    intra_site_replication_interval_s: int = 2
    inter_site_replication_interval_s: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingLink(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.8. A link has two directions, so the order of its two sites does not matter."""

    site1_identifier: UUID
    site2_identifier: UUID
    actual_cost: int
    site_gate_identifier_list: tuple[UUID, ...] = ()
    description: str = ""
    full_path: str = ""

    def __post_init__(self) -> None:
        if not MIN_COST <= self.actual_cost <= MAX_COST:
            raise DirectoryError(
                f"link {self.identifier}: the cost must be from {MIN_COST} to {MAX_COST}, got {self.actual_cost}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.2, the part for public queues."""

    pathname: PathName
    queue_manager_identifier: UUID
    base_priority: int = 0
    properties: QueueSettings | None = None  # None if the directory holds only the base priority
    type: UUID = NO_TYPE
    security: bytes = b""  # the descriptor with MSMQ's rights; a domain's is that of this manager's own queues only
    full_path: str = ""
    create_time: int = 0  # seconds since 1970
    modify_time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enterprise(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.6. `default_time_to_live_s` is how long a message may take to reach its queue by default."""

    name: str
    weakened_security: bool = False
    non_ldap_capable_queue_manager_notification: bool = True
    default_time_to_live_s: int = 345_600
    old_directory: bool = True
    security: bytes = b""
    full_path: str = ""


# Reading a directory, [MS-MQDMPR] 3.1.7.1.20 to 23: filters, the events of a query, and a source in memory.
#
# A source can be anything that answers the three events. It does not know what the objects mean.


ObjectT = TypeVar("ObjectT", bound=DirectoryObject)

_TYPES: dict[str, type[DirectoryObject]] = {
    kind.__name__: kind for kind in (QueueManager, Site, RoutingLink, Queue, Enterprise)
}
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class DirectoryOperationResult(Enum):
    """[MS-MQDMPR] 3.1.1.17"""

    SUCCESS = "Success"
    GENERIC_ERROR = "GenericError"
    DIRECTORY_NOT_CONNECTED = "DirectoryNotConnected"
    OBJECT_NOT_FOUND = "ObjectNotFound"
    ATTRIBUTE_NOT_FOUND = "AttributeNotFound"
    END_OF_DATA = "EndOfData"
    OBJECT_ALREADY_EXISTS = "ObjectAlreadyExists"


class Comparison(Enum):
    """The operators of an attribute-filter expression."""

    EQUALS = "EQUALS"
    NOT_EQUALS = "NOT-EQUALS"
    LESS_THAN = "LESS-THAN"
    GREATER_THAN = "GREATER-THAN"
    LESS_THAN_OR_EQUAL = "LESS-THAN-OR-EQUAL"
    GREATER_THAN_OR_EQUAL = "GREATER-THAN-OR-EQUAL"


_OPERATORS: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQUALS: operator.eq,
    Comparison.NOT_EQUALS: operator.ne,
    Comparison.LESS_THAN: operator.lt,
    Comparison.GREATER_THAN: operator.gt,
    Comparison.LESS_THAN_OR_EQUAL: operator.le,
    Comparison.GREATER_THAN_OR_EQUAL: operator.ge,
}


@dataclass(frozen=True, slots=True)
class AttributeFilter:
    """`"ActualCost" LESS-THAN 5`, with the specification's name of an attribute on the left. GUIDs may be text."""

    attribute: str
    comparison: Comparison
    value: object

    @property
    def field(self) -> str:
        """The name of the attribute in our objects."""
        return _WORD.sub("_", self.attribute).lower()

    def admits(self, candidate: DirectoryObject) -> bool:
        held = getattr(candidate, self.field)
        value = UUID(self.value) if isinstance(held, UUID) and isinstance(self.value, str) else self.value
        return _OPERATORS[self.comparison](held, value)


Handle = object


class DirectorySource(Protocol):
    """A source of objects. A handle is valid only for the source that gave it."""

    def read_begin(
        self, object_type: str, filters: Sequence[AttributeFilter]
    ) -> tuple[DirectoryOperationResult, Handle]:
        """3.1.7.1.21: starts a query for all objects of the type that satisfy every filter."""

    def read_next(self, handle: Handle) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.7.1.22: the next object. EndOfData after the last one."""

    def read_end(self, handle: Handle) -> DirectoryOperationResult:
        """3.1.7.1.23: ends the query and invalidates its handle."""


class ObjectSource:
    """A source in memory. It returns objects in the order in which they were given."""

    def __init__(self, objects: Iterable[DirectoryObject]) -> None:
        self._objects: dict[type[DirectoryObject], list[DirectoryObject]] = {kind: [] for kind in _TYPES.values()}
        for each in objects:
            self._objects[type(each)].append(each)
        self._queries: dict[int, Iterator[DirectoryObject]] = {}
        self._last_handle = 0

    def read_begin(
        self, object_type: str, filters: Sequence[AttributeFilter]
    ) -> tuple[DirectoryOperationResult, Handle]:
        kind = _TYPES.get(object_type)
        if kind is None:
            return DirectoryOperationResult.GENERIC_ERROR, None
        attributes = {each.name for each in fields(kind)}
        if not all(each.field in attributes for each in filters):
            return DirectoryOperationResult.ATTRIBUTE_NOT_FOUND, None
        self._last_handle += 1
        self._queries[self._last_handle] = (
            each for each in self._objects[kind] if all(expression.admits(each) for expression in filters)
        )
        return DirectoryOperationResult.SUCCESS, self._last_handle

    def read_next(self, handle: Handle) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        query = self._queries.get(handle) if isinstance(handle, int) else None
        if query is None:
            return DirectoryOperationResult.GENERIC_ERROR, None
        found = next(query, None)
        result = DirectoryOperationResult.END_OF_DATA if found is None else DirectoryOperationResult.SUCCESS
        return result, found

    def read_end(self, handle: Handle) -> DirectoryOperationResult:
        if not isinstance(handle, int) or self._queries.pop(handle, None) is None:
            return DirectoryOperationResult.GENERIC_ERROR
        return DirectoryOperationResult.SUCCESS


def get_directory_data(
    source: DirectorySource, kind: type[ObjectT], filters: Sequence[AttributeFilter] = ()
) -> tuple[ObjectT, ...]:
    """[MS-MQBR] 3.1.5.9: every object of the kind that satisfies all filters, in the source's order.

    Raises DirectoryError if a read fails, at its start or later. The specification returns Nothing in that case, and
    also if no object matches, so a caller could mistake an unreachable directory for an empty one.
    """
    result, handle = source.read_begin(kind.__name__, filters)
    if result is not DirectoryOperationResult.SUCCESS:
        raise DirectoryError(f"the directory cannot be read: {result.value}")
    found: list[ObjectT] = []
    try:
        while True:
            result, candidate = source.read_next(handle)
            if result is not DirectoryOperationResult.SUCCESS:
                break
            if not isinstance(candidate, kind):
                raise DirectoryError(f"the directory must return a {kind.__name__}, got a {type(candidate).__name__}")
            found.append(candidate)
    finally:
        source.read_end(handle)
    if result is not DirectoryOperationResult.END_OF_DATA:
        raise DirectoryError(f"the directory stopped in the middle of a read: {result.value}")
    return tuple(found)
