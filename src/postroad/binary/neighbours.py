"""Where managers are: which addresses belong to which manager, by the directory, our own connections, and first
contact.

Anybody can put any GUID into a packet. This module judges by address whether a message or an acknowledgment comes from
the manager that it names. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol
from uuid import UUID

from postroad.binary.session import Session
from postroad.errors import NoRoute
from postroad.names import DirectName, FormatName, PrivateName, PublicName
from postroad.net.endpoints import is_address
from postroad.queues.local import LocalQueueManager
from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.wire.octets import NULL_GUID

ADDRESS_STATE = "address/"  # followed by a manager's GUID: the address that its messages come from
REACHED_STATE = "reached/"  # followed by a host's name: the addresses that our own connections to it had
MAX_ADDRESSES = 8  # of one host, the newest: a name may have several
REFRESH_S = 3600  # how often the time of a manager's last message is stored


@dataclass(frozen=True, slots=True)
class Hop:
    """Where to connect: a host, and the manager that must answer there, or the null GUID if a direct name does not
    say. `others` are further hosts at which the same manager may be."""

    host: str
    manager: UUID = NULL_GUID
    others: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.host, *self.others)


# The next hops of a destination, in the order to try. Empty, or NoRoute with the reason, if there is no way.
Resolve = Callable[[FormatName], list[Hop]]


class DirectoryView(Protocol):
    """What the directory says of hosts, which are given by name or address."""

    def hosts_of(self, manager: UUID) -> tuple[str, ...]:
        """The hosts at which a manager may be. Empty if the directory does not know the manager."""

    def routes(self, host: str) -> bool:
        """Whether a manager at this host routes messages for others."""

    def forwards(self, source: UUID, name: FormatName, listed: Callable[[str], bool], *, trusted: bool) -> bool:
        """Whether this manager must forward a message to `name`, by [MS-MQBR]. `listed` tells which other hosts the
        configuration allows. For a trusted sender it also forwards to managers that the directory does not know yet."""


class NoDirectory:
    """The view of a manager without a directory."""

    def hosts_of(self, manager: UUID) -> tuple[str, ...]:
        return ()

    def routes(self, host: str) -> bool:
        return False

    def forwards(self, source: UUID, name: FormatName, listed: Callable[[str], bool], *, trusted: bool) -> bool:
        return False


class Trust(IntEnum):
    """How far a message in a manager's name is believed: another is known by that name, somebody forwarded it, or it is
    the manager's own."""

    NONE = 0
    SECOND_HAND = 1
    FIRST_HAND = 2  # or forwarded by a routing server of the directory


@dataclass(slots=True, eq=False)
class _Origin:
    """Where a manager's messages come from. A `kept` origin is durable: a queue has taken a message from there."""

    address: str
    seen_s: float
    kept: bool = False
    gone: bool = False  # the manager could not be reached there and has not been heard of since


class Neighbours:
    """The neighbours of one queue manager. Each table has at most `limit` entries, shared fairly among addresses."""

    def __init__(
        self,
        core: LocalQueueManager,
        resolve: Resolve,
        directory: DirectoryView,
        limit: int,
    ) -> None:
        self.core = core
        self.directory = directory
        self._resolve = resolve
        self._own = core.identifier.bytes_le
        self._own_addresses: BoundedTable[str, None] = BoundedTable(limit)  # where our own connections led to ourselves
        self._origins: BoundedTable[bytes, _Origin] = BoundedTable(
            limit,
            standing=lambda source, origin: self._standing(source, origin.address),
            dropped=self._forget_origin,
        )
        # Addresses by host in lower case, the newest last.
        self._reached: BoundedTable[str, tuple[str, ...]] = BoundedTable(
            limit, standing=lambda host, _: self._host_standing(host), dropped=self._forget_reached
        )
        self._hosts: dict[str, set[str]] = {}  # the inverse: hosts by address
        stored = []
        for name, value in core.store.state(ADDRESS_STATE).items():
            address, _, seen_s = value.decode().partition(" ")
            source = bytes.fromhex(name.removeprefix(ADDRESS_STATE))
            stored.append((float(seen_s or 0), source, address))
        for seen, source, address in sorted(stored):
            origin = _Origin(address, seen, kept=True)
            self._origins.put(source, origin, owner_of(address), Standing.PROVEN)
        for name, value in core.store.state(REACHED_STATE).items():
            self._set_reached(name.removeprefix(REACHED_STATE), tuple(value.decode().split()))

    # Hosts that we have connected to

    def reached(self, host: str, address: str, manager: UUID) -> None:
        """Notes that our own connection to `host` led to `address`, where `manager` answered."""
        host, address = host.lower(), plain(address)
        if manager == self.core.identifier:
            self._own_addresses.put(address, None, owner_of(address))
        else:
            origin = self._origins.get(manager.bytes_le)
            if origin is not None and origin.address == address:
                origin.gone = False
        self._add_address(host, address)

    def found(self, host: str, addresses: Iterable[str]) -> None:
        """Notes the addresses of a name that has several: its manager may answer, and call, from each of them."""
        for address in sorted(addresses)[:MAX_ADDRESSES]:
            self._add_address(host.lower(), plain(address))

    def _add_address(self, host: str, address: str) -> None:
        known = self._reached.get(host) or ()
        if host == address or address in known:
            return
        addresses = (*known, address)[-MAX_ADDRESSES:]
        if self._set_reached(host, addresses):
            self.core.tick.set_state(f"{REACHED_STATE}{host}", " ".join(addresses).encode())

    def _set_reached(self, host: str, addresses: tuple[str, ...]) -> bool:
        if not self._reached.put(host, addresses, owner_of(addresses[-1]), self._host_standing(host)):
            return False
        for address in addresses:
            self._hosts.setdefault(address, set()).add(host)
        return True

    def _host_standing(self, host: str) -> Standing:
        return Standing.KNOWN if self.core.delivery.relay.names(host) else Standing.STRANGER

    def _forget_reached(self, host: str, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            hosts = self._hosts.get(address, set())
            hosts.discard(host)
            if not hosts:
                self._hosts.pop(address, None)
        self.core.tick.set_state(f"{REACHED_STATE}{host}", None)

    def unreachable(self, hop: Hop) -> None:
        """Notes that our own connection to a manager failed: nobody answered there, or another manager did."""
        origin = self._origins.get(hop.manager.bytes_le)
        if origin is not None and origin.address in hop.hosts:
            origin.gone = True

    def addresses(self, host: str) -> tuple[str, ...]:
        """The known addresses of a host."""
        host = host.lower()
        return (host, *(self._reached.get(host) or ()))

    def places(self, hop: Hop) -> dict[str, None]:
        """The hosts and addresses at which the manager of a hop may be."""
        return {address: None for host in hop.hosts for address in self.addresses(plain(host))}

    def elsewhere(self, hop: Hop, address: str) -> list[str]:
        """The places of a hop that are not this address: addresses, and names whose addresses are not known yet."""
        found: dict[str, None] = {}
        for host in map(plain, hop.hosts):
            known = self.addresses(host)[1:] or ((host,) if hop.others or is_address(host) else ())
            found |= dict.fromkeys(known)
        found.pop(address, None)
        return list(found)

    def names(self, address: str) -> Iterable[str]:
        """The names of the manager at an address: the address, and hosts that led us there."""
        return (address, *self._hosts.get(address, ()))

    # Where messages come from

    def admit(self, source: bytes, address: str, session: Session, now: float) -> Trust:
        """How far to believe a message in the name of `source` from this address.

        A manager is known by its address of first contact, by the directory, and by our own connections to it. Another
        address replaces the first only if nobody answers to the manager's GUID at the first one any more.
        """
        origin = self._origins.get(source)
        if origin is not None and origin.address == address:
            if origin.gone or now - origin.seen_s > REFRESH_S:
                self._refresh(source, origin, now)
            return Trust.FIRST_HAND
        first_hand = session.peer.bytes_le == source
        if source == self._own:
            return Trust.FIRST_HAND if self._is_own(address) or self._routes(address) else Trust.NONE
        if session.initiator and first_hand:
            if origin is None and not self.directory.hosts_of(session.peer):
                self._pin(source, address, now)
            return Trust.FIRST_HAND
        hosts = self.directory.hosts_of(UUID(bytes_le=source))
        if any(address in self.addresses(host) for host in hosts):
            self._pin(source, address, now)
            return Trust.FIRST_HAND
        if self._routes(address):
            return Trust.FIRST_HAND
        if (origin is not None and not origin.gone) or any(self._is_known(host) for host in hosts):
            return Trust.NONE
        if first_hand:
            return Trust.FIRST_HAND if self._pin(source, address, now) else Trust.NONE
        return Trust.SECOND_HAND

    def is_unknown(self, source: bytes) -> bool:
        """Whether nothing tells where this manager is."""
        listed = self.directory.hosts_of(UUID(bytes_le=source))
        return source != self._own and source not in self._origins and not listed

    def standing_at(self, address: str) -> Standing:
        """The standing of an address, by what we know independently of who is there."""
        named = any(self.core.delivery.relay.names(name) for name in self.names(address))
        return Standing.KNOWN if named or self._routes(address) else Standing.STRANGER

    def standing(self, source: bytes) -> Standing:
        """The standing of a manager, by the address that its messages come from."""
        origin = self._origins.get(source)
        return Standing.STRANGER if origin is None else self._standing(source, origin.address)

    def _standing(self, source: bytes, address: str) -> Standing:
        if self._is_listed(UUID(bytes_le=source), address):
            return Standing.KNOWN
        return self.standing_at(address)

    def trusts(self, source: UUID, address: str) -> bool:
        """Whether the directory has a manager at the address: the source itself, or a routing server."""
        return self._is_listed(source, address) or self._routes(address)

    def _is_own(self, address: str) -> bool:
        return address in self._own_addresses or address in self.core.queues.local_hosts

    def _is_known(self, host: str) -> bool:
        """Whether we know the addresses of a host in the directory. An address is its own; for a name, we know those
        that our own connections had."""
        return is_address(host) or host.lower() in self._reached

    def _is_listed(self, manager: UUID, address: str) -> bool:
        return any(address in self.addresses(host) for host in self.directory.hosts_of(manager))

    def _routes(self, address: str) -> bool:
        return any(self.directory.routes(name) for name in self.names(address))

    def _pin(self, source: bytes, address: str, now: float) -> bool:
        """Remembers the address of a manager. Returns False if there is no room, because all other entries rank
        higher."""
        return self._origins.put(source, _Origin(address, now), owner_of(address), self._standing(source, address))

    def _forget_origin(self, source: bytes, origin: _Origin) -> None:
        if origin.kept:
            self.core.tick.set_state(f"{ADDRESS_STATE}{source.hex()}", None)

    def _refresh(self, source: bytes, origin: _Origin, now: float) -> None:
        origin.seen_s = now
        origin.gone = False
        self._origins.touch(source)
        if origin.kept:
            self._write(source, origin)

    def delivered(self, source: bytes, *, recoverable: bool) -> None:
        """Notes that a queue has taken a message from `source`. If the message is recoverable, the address becomes
        durable with it."""
        origin = self._origins.get(source)
        if origin is None or origin.kept:
            return
        self._origins.rise(source, Standing.PROVEN)
        if recoverable:
            origin.kept = True
            self._write(source, origin)

            def lost(error: Exception) -> None:
                origin.kept = False

            self.core.tick.on_failure.append(lost)

    def _write(self, source: bytes, origin: _Origin) -> None:
        self.core.tick.set_state(f"{ADDRESS_STATE}{source.hex()}", f"{origin.address} {int(origin.seen_s)}".encode())

    def address_of(self, source: bytes) -> str | None:
        """The address that this manager's messages come from, by first contact or else the directory. None if
        unknown."""
        origin = self._origins.get(source)
        if origin is not None:
            return origin.address
        return next((host for host in self.directory.hosts_of(UUID(bytes_le=source)) if is_address(host)), None)

    def held_address(self, manager: UUID) -> str | None:
        """The address of the manager that no other may replace now; None if there is none."""
        origin = self._origins.get(manager.bytes_le)
        return None if origin is None or origin.gone else origin.address

    # Where messages go

    def hops(self, name: FormatName) -> list[Hop]:
        """The next hops to a name. If no way is known, the address that its manager's messages come from. Raises
        NoRoute if there is neither."""
        try:
            hops = self._resolve(name)
        except NoRoute:
            hops = self._origin_hops(name)
            if not hops:
                raise
        return hops or self._origin_hops(name)

    def _origin_hops(self, name: FormatName) -> list[Hop]:
        if not isinstance(name, PrivateName) or self.directory.hosts_of(name.guid):
            return []
        origin = self._origins.get(name.guid.bytes_le)
        return [] if origin is None else [Hop(origin.address, name.guid)]

    def hosts(self, name: FormatName) -> list[str]:
        """The hosts that a message to this name would make us connect to."""
        try:
            return [host for hop in self.hops(name) for host in hop.hosts]
        except NoRoute:
            return []

    def speaks_for(self, name: FormatName, address: str, manager: UUID | None) -> bool:
        """Whether an acknowledgment by `manager` of a message to `name` may come from this address: that of the
        destination, of a next hop, or of a routing server in the directory. None stands for any manager on the way."""
        address = plain(address)
        if isinstance(name, DirectName):
            if name.host == address:
                return True
        else:
            destination = self.core.delivery.manager_of(name) if isinstance(name, PublicName) else NULL_GUID
            if isinstance(name, PrivateName):
                destination = name.guid
            if destination != NULL_GUID and manager not in (destination, None):
                return False
            if self._is_listed(destination, address) or self._routes(address):
                return True
        return any(address in self.addresses(plain(host)) for host in self.hosts(name))


def plain(address: str) -> str:
    """The address without its zone, which is no part of a queue's name."""
    return address.partition("%")[0]
