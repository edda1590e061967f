"""The objects of a directory, [MS-MQDMPR] 3.1.1: queue managers, sites, routing links and public queues, frozen.

They refer to each other by identifier. Directory resolves these references.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from postroad.errors import DirectoryError
from postroad.names import PathName

MIN_COST = 1
MAX_COST = 999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryObject:
    """[MS-MQDMPR] 3.1.1"""

    identifier: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManager(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.1. Without an address, its name is resolved. `public_encryption_keys` is an MQDSPUBLICKEYS."""

    computer_name: str
    address: str | None = None
    site_identifier_list: tuple[UUID, ...] = ()
    routing_server: bool = False
    in_routing_server_identifier_list: tuple[UUID, ...] = ()
    out_routing_server_identifier_list: tuple[UUID, ...] = ()
    public_encryption_keys: bytes = b""

    @property
    def host(self) -> str:
        """Where to connect to: an address, or a name to resolve."""
        return self.address or self.computer_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.7. `site_gate_identifier_list` is ours: gates that no routing link has to name."""

    name: str
    site_gate_identifier_list: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingLink(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.8. It has two directions: the order of its two sites does not matter."""

    site1_identifier: UUID
    site2_identifier: UUID
    actual_cost: int
    site_gate_identifier_list: tuple[UUID, ...] = ()

    def __post_init__(self) -> None:
        if not MIN_COST <= self.actual_cost <= MAX_COST:
            raise DirectoryError(
                f"link {self.identifier}: the cost must be from {MIN_COST} to {MAX_COST}, got {self.actual_cost}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(DirectoryObject):
    """[MS-MQDMPR] 3.1.1.2, the public part: a public queue."""

    pathname: PathName
    queue_manager_identifier: UUID
    base_priority: int = 0
