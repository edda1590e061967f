"""What a client must know to sign a message: the names and the manager that will stand in its packets."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.values.plain import listed


@dataclass(frozen=True, slots=True)
class Destination:
    """A format name as packets have it. `manager` is the id of the manager that has a public queue; zero if unknown."""

    name: str
    manager: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """`manager` is the id of the sending manager. `names` are format names, in the order of the question. `sender_id`
    is the SID that the certificate is registered for."""

    manager: str
    signature_profile: str
    destinations: tuple[Destination, ...] = field(metadata=listed(Destination))
    names: tuple[str, ...]
    sender_id: str | None = None
