"""TCP for the binary protocol: asyncio protocols, with one write per batch of packets. The rules are in service.py."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol
from uuid import UUID

from postroad.binary.ping_udp import PingClient
from postroad.binary.service import BinaryService, Hop, Peer
from postroad.binary.session import Session
from postroad.binary.states import SessionState
from postroad.carriers.flights import TransferWatcher
from postroad.describe.packets import destination_text
from postroad.names import FormatName, MessageId
from postroad.net.endpoints import endpoint, is_address
from postroad.net.limits import Admission, Limits, Standing
from postroad.net.listening import Connection, Listener
from postroad.net.reaching import Place, find, open_connection
from postroad.queues.durability import Durability
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import ConnectionStatus, Watcher
from postroad.reports.trace import class_words
from postroad.runtime.logs import RateLimitedLog, RateLimitedLogs
from postroad.runtime.supervision import Supervisor
from postroad.security.audit import MESSAGE_REFUSED, AuditLog
from postroad.security.guard import Verdict
from postroad.security.refusals import Refused
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)


class BinaryManager(Protocol):
    """What the transport needs from its queue manager."""

    core: LocalQueueManager
    identifier: UUID
    clock: Callable[[], float]
    supervisor: Supervisor
    limits: Limits
    audit: AuditLog
    durability: Durability

    async def know_senders(self, packets: Sequence[bytes]) -> None:
        """Returns once the directory has said what it knows of the senders that these packets name."""


CONNECT_TIMEOUT_S = 20.0
OPENED_AT_ONCE = 16  # signed or encrypted messages of one session, before another session gets a turn
WRITE_BUFFER = 1 << 20  # bytes that a peer has not read, above which its session sends nothing more


class _Link(Connection):
    """One connection. `peer` is whom we connected to; None if they connected to us."""

    def __init__(
        self,
        owner: BinaryTransport,
        listener: Listener,
        admission: Admission,
        peer: Peer | None = None,
        *,
        pinged: bool = False,
    ) -> None:
        super().__init__(listener, admission)
        self.owner = owner
        self.peer = peer
        self.pinged = pinged
        self.session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        try:
            self._begin(self.transport)
        except Exception:
            self.transport.abort()
            raise

    def _begin(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(WRITE_BUFFER)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = str(transport.get_extra_info("peername")[0])
        owner = self.owner
        if self.peer is not None:
            self.session = owner.service.connected(self.peer, address, owner.clock(), pinged=self.pinged)
        else:
            self.session = owner.service.accepted(address, owner.clock())
            if self.session is None:
                transport.abort()
                return
        owner.links[self.session] = self
        owner.flush(self.session)

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is not None:
            try:
                self.owner.service.received(session, data, self.owner.clock())
            except Exception:  # a bug: this peer sends again what was not acknowledged, and no other suffers
                log.exception("session broken off", extra={"peer": self.owner.service.addresses.get(session)})
                self.transport.abort()
            if self.admission.standing is Standing.FRESH and session.opened_at:
                self.admission.busy()
            if session.buffered != self.admission.held:
                self.admission.hold(session.buffered)
            self.owner.commit_soon()

    def pause_writing(self) -> None:
        """The peer does not read: its session sends nothing until it does. After a while, the connection closes."""
        super().pause_writing()
        if self.session is not None:
            self.session.blocked = True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.session is not None:
            self.owner.service.unblocked(self.session, self.owner.clock())
            self.owner.commit_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.session is not None:
            try:
                self.owner.service.disconnected(self.session, self.owner.clock())
            finally:
                self.owner.links.pop(self.session, None)
                self.owner.commit_soon()


class BinaryTransport:
    """The Driver of a BinaryService on an event loop."""

    def __init__(
        self,
        manager: BinaryManager,
        host: str,
        port: int,
        ports: Callable[[str], int],
        ping_client: PingClient | None = None,
    ) -> None:
        """With a `ping_client`, a peer is pinged before the first connection to it, 3.1.5.2.2."""
        self.manager = manager
        self.clock = manager.clock
        self.host = host
        self.service: BinaryService
        self.links: dict[Session, _Link] = {}
        self._ports = ports
        self._ping_client = ping_client
        self._guard = manager.core.protection.opener
        self._opener = ThreadPoolExecutor(1, "postroad-security")
        self._opening: set[asyncio.Task[None]] = set()
        self.limits = manager.limits
        self.listener = Listener("binary", self.limits, partial(_Link, self), host, port, supervisor=manager.supervisor)
        self.when_durable = manager.durability.when_durable
        self.commit_soon = manager.durability.soon  # for changes of an event
        self._connecting: set[asyncio.Task[None]] = set()
        self._refusals = RateLimitedLog(log, "message refused")
        self._suspicions = RateLimitedLogs(log)
        self._unreachable = RateLimitedLog(log, "peer unreachable")
        self.watcher = TransferWatcher(
            refused=self._log_refusal, suspicious=self._log_suspicion, reachable=self._log_reachability
        )

    @property
    def address(self) -> str:
        return self.listener.address

    @property
    def port(self) -> int:
        return self.listener.port

    async def start(self, service: BinaryService) -> None:
        self.service = service
        service.core.watch(Watcher(withheld=self._log_withheld))
        await self.listener.start()
        service.start(self.clock())
        self.commit_soon()

    async def stop(self) -> None:
        tasks = [*self._connecting, *self._opening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # let tasks that they started end too
        self.service.stop()
        self._opener.shutdown(wait=False, cancel_futures=True)
        await self.listener.stop()

    def _log_reachability(self, host: str, fault: str | None) -> None:
        if fault is None:
            log.info("peer reached again", extra={"peer": host})
        else:
            self._unreachable.warn(self.clock(), {"peer": host, "reason": fault})

    def _log_refusal(self, view: MessageView, refused: Refused) -> None:
        identifier = MessageId(view.source_queue_manager, view.message_id)
        words = class_words(refused.acknowledgment)
        facts = {"id": str(identifier), "to": destination_text(view), "reason": words, "why": refused.reason}
        self._refusals.warn(self.clock(), facts)
        if refused.of_security:
            address = self.service.neighbours.address_of(view.source_queue_manager_bytes)
            self.manager.audit(MESSAGE_REFUSED, address=address, queue=facts["to"], id=facts["id"], why=refused.reason)

    def _log_suspicion(self, event: str, facts: Mapping[str, object]) -> None:
        self._suspicions.warn(event, self.clock(), facts)

    def _log_withheld(self, name: FormatName, origin: str | None) -> None:
        facts = {"to": str(name), "from": origin}
        self._log_suspicion("not sent for a stranger: allow its host in [relay], if it should be", facts)

    # Driver

    def connect(self, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(peer))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, peer: Peer) -> None:
        host = peer.hop.host
        # Connect from our own address, so that the peer sees the address that it would connect to.
        local = None if self.host in ("", "0.0.0.0", "::") else self.host
        pinged = self._ping_client is not None and peer.last_error is None
        admission = self.limits.dial(host)
        if admission is None:
            fault = f"there are {self.limits.outgoing_connections.maximum} connections to other hosts already"
            self._failed(peer, ConnectionStatus.LOW_RESOURCE, fault)
            return
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                places = await self._find(peer.hop)
                if self._ping_client is not None and pinged:
                    place, refusal = await self._ping_client.choose(places, None if local is None else (local, 0))
                    if refusal is not None:
                        self._failed(peer, ConnectionStatus.PING_FAILURE, refusal)
                        admission.close()
                        return
                    places = [place]
                await open_connection(lambda: _Link(self, self.listener, admission, peer, pinged=pinged), places, local)
        except TimeoutError:
            self._failed(peer, ConnectionStatus.CONNECT_SOCKET_FAILURE, f"{host} did not answer in time")
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: not a valid host name
            words = error.strerror if isinstance(error, OSError) else str(error)
            self._failed(peer, ConnectionStatus.NAME_RESOLUTION_FAILURE, f"{host} cannot be found: {words}")
        except OSError as error:
            where = " and ".join(endpoint(each, self._ports(each)) for each in peer.hop.hosts)
            self._failed(peer, ConnectionStatus.CONNECT_SOCKET_FAILURE, f"cannot connect to {where}: {_words(error)}")
        except Exception as error:  # a bug: otherwise we would seem to be still connecting
            log.exception("connection not made", extra={"peer": host})
            self._failed(peer, ConnectionStatus.UNKNOWN_FAILURE, f"cannot connect to {host}: {error!r}")
        else:
            return
        admission.close()

    async def _find(self, hop: Hop) -> list[Place]:
        places = await find(hop.hosts, self._ports, self.service.order)
        for host in hop.hosts:
            addresses = {each.address for each in places if each.host == host}
            if not is_address(host) and (hop.others or len(addresses) > 1):
                self.service.neighbours.found(host, addresses)
        return places

    def _failed(self, peer: Peer, status: ConnectionStatus, error: str) -> None:
        self.service.connect_failed(peer, status, error, self.clock())
        self.commit_soon()

    def flush(self, session: Session) -> None:
        link = self.links.get(session)
        if link is None:
            return
        data = session.data_to_send()
        if data:
            link.transport.write(data)
        if session.state is SessionState.CLOSED:
            link.transport.close()

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        """Runs in a thread, because RSA would block every other session."""
        link = self.links.get(session)
        transport = None if link is None else link.transport
        if transport is not None:
            transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._open(session, transport, packets, done))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(
        self,
        session: Session,
        transport: asyncio.Transport | None,
        packets: list[bytes],
        done: Callable[[list[Verdict] | None], None],
    ) -> None:
        """Takes a few packets at a time, so that sessions take turns: one can make us try keys for seconds."""
        loop = asyncio.get_running_loop()
        verdicts: list[Verdict] = []
        failed = False
        try:
            for start in range(0, len(packets), OPENED_AT_ONCE):
                some = packets[start : start + OPENED_AT_ONCE]
                await self.manager.know_senders(some)
                verdicts += await loop.run_in_executor(self._opener, self._open_all, some)
        except Exception:  # a bug: this peer sends again what was not acknowledged, and no other suffers
            log.exception("session broken off", extra={"peer": self.service.addresses.get(session)})
            failed = True
        try:
            done(None if failed else verdicts)
            if transport is not None and not transport.is_closing():
                transport.resume_reading()
        except Exception:  # the same
            log.exception("session broken off", extra={"peer": self.service.addresses.get(session)})
            if transport is not None:
                transport.abort()
        self.commit_soon()

    def _open_all(self, packets: list[bytes]) -> list[Verdict]:
        now = time.monotonic()
        return [self._guard.open(packet, now) for packet in packets]


def _words(error: OSError) -> str:
    """The system's own words, because asyncio's say less; of several failures, all of them."""
    return os.strerror(error.errno) if error.errno else str(error)
