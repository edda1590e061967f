"""Queue managers joined by a network in memory. A test moves the one clock by hand, and says when bytes travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from postroad.binary.neighbours import DirectoryView
from postroad.binary.service import BinaryService, Hop, Peer
from postroad.binary.session import BinarySettings, Session
from postroad.carriers.flights import TransferWatcher
from postroad.names import DirectName, FormatName, PrivateName, PublicName
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import ConnectionStatus, Watcher
from postroad.security.guard import Protection, Verdict
from postroad.store.memory import MemoryStore
from postroad.wire.framer import Framer, Packet, decode_packet
from postroad.wire.internal import SessionAck
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.view import MessageView
from tests.follow_ups import raised
from tests.unit.stations import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    JOURNAL,
    LEDGER,
    ORDERS,
    STARTED,
    BaseNetwork,
    BaseStation,
    Done,
    chance,
    whole,
)

__all__ = ["ACKS", "DEADLETTER", "DEADXACT", "JOURNAL", "LEDGER", "ORDERS", "STARTED", "whole"]  # as tests know them

WINDOWS_DEFAULTS = BinarySettings(window_size=64)  # a window that a test fills with few messages

P = TypeVar("P", bound=Packet)


@dataclass(eq=False)
class Link:
    """One connection. `transit` has what one end has written and the other has not read; `written` has everything."""

    ends: dict[Session, Party]
    transit: dict[Session, list[bytes]] = field(default_factory=dict)
    written: dict[Session, bytearray] = field(default_factory=dict)
    closing: Session | None = None

    def other(self, session: Session) -> Session:
        (other,) = (each for each in self.ends if each is not session)
        return other


class Party:
    """Anybody with an address on the network."""

    def __init__(self, network: Network, name: str, number: int, address: str | None = None) -> None:
        self.network = network
        self.name = name
        self.address = address or f"10.0.0.{number}"
        self.identifier = UUID(int=number << 96 | 0xAA)
        network.parties[self.address] = self

    def direct(self, path: str) -> str:
        """The name that others use for a queue here, by address."""
        return f"DIRECT=TCP:{self.address}\\{path}"

    def accepted(self, address: str) -> Session | None:
        raise NotImplementedError

    def received(self, session: Session, data: bytes) -> None:
        raise NotImplementedError

    def disconnected(self, session: Session) -> None:
        raise NotImplementedError

    @property
    def deadline(self) -> float | None:
        raise NotImplementedError

    def on_timer(self) -> None:
        raise NotImplementedError

    def flush(self, session: Session) -> None:
        self.network.write(session)


class Station(Party, BaseStation):
    """A queue manager, and the Driver of its binary service."""

    network: Network

    def __init__(
        self, network: Network, name: str, number: int, settings: BinarySettings, insecure_nacks: bool = False
    ) -> None:
        super().__init__(network, name, number)
        network.stations.append(self)
        self.settings = settings
        self.insecure_nacks = insecure_nacks
        self.store = MemoryStore()
        self.resolved: list[FormatName] = []
        self.reachable: list[tuple[str, str | None]] = []  # what was said of hosts
        self.suspicions: list[tuple[str, Mapping[str, object]]] = []  # events and their facts
        self.watcher = TransferWatcher(
            reachable=lambda host, fault: self.reachable.append((host, fault)),
            suspicious=lambda event, facts: self.suspicions.append((event, facts)),
        )
        self._start()
        self._make_queues()

    def _start(self) -> None:
        self._promises, self._out = [], None
        self.core = LocalQueueManager(
            self.name,
            self.identifier,
            self.store,
            chance(self.identifier),
            insecure_nacks=self.insecure_nacks,
            hosts=(self.address,),
            knows_host=self.network.knows,
            locate=self.network.owner,
            base_priority=lambda name: self.network.base_priorities.get(name, 0),
            protection=self.network.protections.get(self.name),
            public_keys=lambda manager: self.network.public_keys.get(manager, b""),
        )
        self.core.watch(Watcher(follow_up_failed=raised))
        self.core.start(self.network.now)
        self.commit()
        self.service = BinaryService(
            self.core, self.settings, self._resolve, self, self.network.directory, self.watcher
        )
        self.service.start(self.network.now)

    def stop(self) -> None:
        """The process dies. Its connections are gone, and so is everything that no tick has committed."""
        self.network.parties.pop(self.address, None)
        self.network.pending = [each for each in self.network.pending if each[0] is not self]
        for link in self.network.linksof(self):
            self.network.break_link(link, tell=lambda party: party is not self)

    def restart(self) -> None:
        self.stop()
        self.network.parties[self.address] = self
        self._start()
        self.network.run()

    # Driver

    def connect(self, peer: Peer) -> None:
        self.network.pending.append((self, peer))

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        done([self.core.protection.opener.open(packet, self.network.now) for packet in packets])

    def when_durable(self, done: Done, *, repeats: bool) -> None:
        self._promises.append(done)

    def _resolve(self, name: FormatName) -> list[Hop]:
        self.resolved.append(name)
        return self.network.resolve(self, name)

    # Party

    def accepted(self, address: str) -> Session | None:
        return self.service.accepted(address, self.network.now)

    def received(self, session: Session, data: bytes) -> None:
        self.service.received(session, data, self.network.now)

    def disconnected(self, session: Session) -> None:
        self.service.disconnected(session, self.network.now)

    @property
    def deadline(self) -> float | None:
        return self.core.deadlines.first

    def on_timer(self) -> None:
        self.core.run_timers(self.network.now)
        self.core.deadlines.run(self.network.now)

    def private(self, path: str) -> str:
        """The name that others use for a queue of this station, by its GUID."""
        return str(self.core.queues.format_name(self.queue(path)))


class Network(BaseNetwork):
    """What stations share: the clock, the connections, the directory and the routes."""

    def __init__(self) -> None:
        self.parties: dict[str, Party] = {}
        self.links: list[Link] = []
        self.history: list[Link] = []  # those that are gone too
        self.pending: list[tuple[Station, Peer]] = []
        self.refused: set[str] = set()  # addresses that take no connection
        self.held: set[tuple[Party, Party]] = set()  # bytes of the one do not reach the other
        self.routes: dict[tuple[Party, UUID], list[Party]] = {}  # next hops; those not listed lead straight there
        self.public: dict[UUID, Party] = {}  # who has a public queue
        self.base_priorities: dict[FormatName, int] = {}  # of public queues, by the directory
        self.protections: dict[str, Protection] = {}  # by the name of the station
        self.public_keys: dict[UUID, bytes] = {}  # of managers, by the directory
        self.connections: list[tuple[str, str]] = []  # every attempt: who, and which address
        self.names: dict[str, str] = {}  # addresses of hosts that direct names call by name
        self.listed = True  # whether there is a directory, which has all stations and no stranger
        self.stations: list[Station] = []
        self.directory: DirectoryView = _Known(self)

    def station(
        self, name: str, number: int, settings: BinarySettings | None = None, *, insecure_nacks: bool = False
    ) -> Station:
        return Station(self, name, number, settings or WINDOWS_DEFAULTS, insecure_nacks)

    def resolve(self, station: Station, name: FormatName) -> list[Hop]:
        if isinstance(name, DirectName):
            return [Hop(name.host)]
        if not self.listed:
            return []
        if isinstance(name, PublicName):
            manager = self.owner(name)
        else:
            manager = name.guid if isinstance(name, PrivateName) else None
        if manager is None:
            return []
        known = [party for party in self.parties.values() if party.identifier == manager]
        known = [party for party in known if isinstance(party, Station)] or known  # whatever a stranger claims
        hops = self.routes.get((station, manager), known)
        return [Hop(each.address, each.identifier) for each in hops]

    def knows(self, host: str) -> bool:
        """Whether the directory has a manager of this address or name."""
        return self.listed and any(host in (each.address, each.name) for each in self.stations)

    def owner(self, name: PublicName) -> UUID | None:
        """The manager that has a public queue, according to the directory."""
        owner = self.public.get(name.guid)
        return None if owner is None else owner.identifier

    # What travels

    def join(self, party: Party, session: Session, target: Party) -> None:
        """Connects a session to whatever the target makes of the call."""
        answering = target.accepted(party.address)
        if answering is None:
            party.disconnected(session)
            return
        link = Link({session: party, answering: target})
        for each in link.ends:
            link.transit[each], link.written[each] = [], bytearray()
        self.links.append(link)
        self.history.append(link)
        party.flush(session)
        target.flush(answering)

    def write(self, session: Session) -> None:
        for link in self.links:
            if session in link.ends:
                if data := session.data_to_send():
                    link.transit[session].append(data)
                    link.written[session] += data
                if session.closed:
                    link.closing = session
                return

    def linksof(self, *parties: Party) -> list[Link]:
        return [link for link in self.links if all(party in link.ends.values() for party in parties)]

    def break_link(self, link: Link, tell: Callable[[Party], bool] = lambda party: True) -> None:
        """Breaks a link. What is on its way is lost."""
        self.links.remove(link)
        for session, party in link.ends.items():
            if tell(party):
                party.disconnected(session)

    def cut(self, one: Party, other: Party) -> None:
        """Breaks every connection between the two."""
        for link in self.linksof(one, other):
            self.break_link(link)
        self.run()

    def hold(self, sender: Party, receiver: Party) -> None:
        """From now on nothing from the first reaches the second, although both believe that they are connected."""
        self.held.add((sender, receiver))

    def release(self) -> None:
        self.held.clear()
        self.run()

    def _step(self) -> bool:
        return self._commit() or self._connect() or self._carry()

    def _commit(self) -> bool:
        committed = [each.commit() for each in self._stations() if each.commits]
        return any(committed)

    def _connect(self) -> bool:
        pending, self.pending = self.pending, []
        for station, peer in pending:
            hosts = [self.names.get(each, each) for each in peer.hop.hosts]
            hosts.sort(key=station.service.order.place)
            host = next((each for each in hosts if each in self.parties and each not in self.refused), hosts[0])
            self.connections.append((station.name, host))
            target = self.parties.get(host)
            if target is None or host in self.refused:
                station.service.connect_failed(
                    peer, ConnectionStatus.CONNECT_SOCKET_FAILURE, f"cannot connect to {host}", self.now
                )
            else:
                self.join(station, station.service.connected(peer, host, self.now), target)
        return bool(pending)

    def _carry(self) -> bool:
        carried = False
        for link in list(self.links):
            for session, party in list(link.ends.items()):
                other = link.other(session)
                if link.transit[session] and (party, link.ends[other]) not in self.held and link in self.links:
                    link.ends[other].received(other, link.transit[session].pop(0))
                    carried = True
            if link in self.links and link.closing is not None and not link.transit[link.closing]:
                self.break_link(link)
                carried = True
        return carried

    def _stations(self) -> list[Station]:
        return [each for each in self.parties.values() if isinstance(each, Station)]

    def _deadlines(self) -> Iterable[float | None]:
        return [each.deadline for each in self.parties.values()]

    def _on_timer(self) -> None:
        for party in list(self.parties.values()):
            party.on_timer()

    # What was seen

    def packets(self, sender: Party, receiver: Party) -> list[Packet]:
        """Everything that the first has written to the second, on all their connections, oldest first."""
        found: list[Packet] = []
        for link in self.history:
            for session, party in link.ends.items():
                if party is sender and link.ends[link.other(session)] is receiver:
                    found += [decode_packet(each) for each in Framer().feed(bytes(link.written[session]))]
        return found

    def sent(self, sender: Party, receiver: Party) -> list[str]:
        """The labels of the messages that the first has written to the second."""
        return [each.label for each in self.packets(sender, receiver) if isinstance(each, MessageView)]

    def order_acks(self, sender: Party, receiver: Party) -> list[OrderAck]:
        return of(OrderAck, self.packets(sender, receiver))

    def final_acks(self, sender: Party, receiver: Party) -> list[FinalAck]:
        return of(FinalAck, self.packets(sender, receiver))

    def session_acks(self, sender: Party, receiver: Party) -> list[SessionAck]:
        return of(SessionAck, self.packets(sender, receiver))

    def user_messages(self, sender: Party, receiver: Party) -> list[MessageView]:
        return of(MessageView, self.packets(sender, receiver))


class _Known:
    """What stations know of each other. Those in the directory are listed even while they are down."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def hosts_of(self, manager: UUID) -> tuple[str, ...]:
        return tuple(each.address for each in self._stations() if each.identifier == manager)

    def routes(self, host: str) -> bool:
        return any(each.address == host for each in self._stations())

    def forwards(self, source: UUID, name: FormatName, listed: Callable[[str], bool], *, trusted: bool) -> bool:
        return self._network.listed

    def _stations(self) -> list[Station]:
        return self._network.stations if self._network.listed else []


def of(kind: type[P], packets: Iterable[Packet]) -> list[P]:
    return [each for each in packets if isinstance(each, kind)]
