"""AMQP on sockets: the listener, its connections, and logins. What connections do is in service.py."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, Protocol

from postroad.amqp.engine import EngineSettings
from postroad.amqp.service import TIMER_S, AmqpService, Visitor
from postroad.errors import PostroadError
from postroad.net.endpoints import is_loopback
from postroad.net.limits import Admission, Limits, Standing
from postroad.net.listening import Connection, Listener
from postroad.queues.durability import Durability
from postroad.queues.leases import Leases
from postroad.queues.local import LocalQueueManager
from postroad.runtime.deadlines import Source
from postroad.runtime.logs import RateLimitedLog
from postroad.runtime.supervision import Supervisor
from postroad.security.access import Token
from postroad.security.attempts import FailedLogins
from postroad.security.audit import ACCESS_REFUSED, AuditLog

log = logging.getLogger(__name__)

WRITE_BUFFER = 256 << 10  # bytes that a peer has not read, above which its links get nothing more
MOST_UNCOMMITTED = 8 << 20  # bytes of messages that wait for the disk, above which a connection is not read
MOST_UNREAD = 4 << 20  # bytes of answers that a peer has not read, above which it is not read either
TOKEN_USER: Final = "token"  # the user name that stands for the API's token
_ADMINISTRATOR, _NOBODY = Token.administrator(), Token.nobody()


class AmqpManager(Protocol):
    """What the listener needs from its queue manager."""

    core: LocalQueueManager
    clock: Callable[[], float]
    supervisor: Supervisor
    limits: Limits
    audit: AuditLog
    logins: FailedLogins
    durability: Durability


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who may log in. `token` is the API's. `everybody` may do everything: the API asks nobody either."""

    passwords: Mapping[str, str]
    token: str | None = None
    everybody: bool = False


class Door:
    """Checks logins. Each attempt costs the same, whoever exists."""

    def __init__(self, manager: AmqpManager, credentials: Credentials) -> None:
        self._access = manager.core.access
        self.logins = manager.logins
        self.clock = manager.clock
        self._no_password = secrets.token_bytes(32)
        self.use(credentials)

    def use(self, credentials: Credentials) -> None:
        """From now on these count, for those who are connected too."""
        self.everybody = credentials.everybody
        self._token = None if credentials.token is None else _digest(credentials.token)
        self._passwords = {name.casefold(): _digest(word) for name, word in credentials.passwords.items() if word}

    def mechanisms(self, address: str, *, secure: bool, certificate: bool) -> tuple[str, ...]:
        """Those that a peer may use: passwords travel only where nobody else can read them."""
        found = ["EXTERNAL"] if certificate else []
        found += ["PLAIN"] if secure or _is_here(address) else []
        found += ["ANONYMOUS"] if self.everybody else []
        return tuple(found)

    def anonymous(self, address: str) -> Visitor:
        return Visitor("local", address, lambda: _ADMINISTRATOR if self.everybody else _NOBODY)

    def plain(self, response: bytes, address: str) -> Visitor | None:
        """[RFC 4616]. None if the name or the password is wrong."""
        name, word = _login(response)
        given = _digest(word)
        if name == TOKEN_USER and self._token is not None:
            token = self._token
            if compare_digest(given, token):
                return Visitor("token", address, lambda: _ADMINISTRATOR if self._token == token else _NOBODY)
            return None
        expected = self._passwords.get(name.casefold())
        right = compare_digest(given, expected or self._no_password) and expected is not None
        user = self._access.users.named(name) if right else None
        return None if user is None else Visitor(user.name, address, partial(self._right, user.name, expected))

    def external(self, name: str, address: str) -> Visitor | None:
        """A certificate of `[amqp] client_ca` with this common name."""
        user = self._access.users.named(name)
        return None if user is None else Visitor(user.name, address, partial(self._right, user.name, None))

    def _right(self, name: str, password: bytes | None) -> Token:
        users = self._access.users
        user = users.named(name)
        if user is None or (password is not None and self._passwords.get(name.casefold()) != password):
            return _NOBODY
        return users.token(user.sid)


class AmqpConnection(Connection):
    """One connection: moves bytes between a socket and an engine."""

    def __init__(self, owner: AmqpListener, listener: Listener, admission: Admission) -> None:
        super().__init__(listener, admission)
        self.owner = owner
        self.guest: Any = None
        self._scheduled = False
        self._waits = False  # for the disk or for the peer to read: nothing is read meanwhile
        self._turn: asyncio.TimerHandle | None = None
        self._certificate: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(WRITE_BUFFER)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (found := tls.getpeercert()):
            self._certificate = _common_name(found)
        mechanisms = self.owner.door.mechanisms(
            self.admission.address, secure=tls is not None, certificate=self._certificate is not None
        )
        self.guest = self.owner.service.connect(self, mechanisms)

    def data_received(self, data: bytes) -> None:
        guest = self.guest
        if guest is None:
            return
        now = self.owner.clock()
        try:
            guest.engine.receive(data, now)
            held = guest.engine.held
            if held != self.admission.held:
                self.admission.hold(held)
            self.flush()
        except Exception:  # a bug: this peer has its messages back, and no other suffers
            log.exception("connection broken off", extra={"peer": self.admission.address})
            self.transport.abort()

    def output(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Serves the links, and sends what there is."""
        self._scheduled = False
        guest = self.guest
        if guest is None or self.transport.is_closing():
            return
        now = self.owner.clock()
        try:
            guest.serve(now)
            engine = guest.engine
            was_full = engine.full
            data = engine.data_to_send(now)
            if data:
                self.transport.write(data)
            self._choose_reading(guest.uncommitted)
            if engine.finished:
                self.transport.close()
            elif was_full and not engine.blocked:
                engine.resume(now)
                self.output()
        except Exception:  # the same
            log.exception("connection broken off", extra={"peer": self.admission.address})
            self.transport.abort()
        self.owner.commit_soon()

    def _choose_reading(self, uncommitted: int) -> None:
        """Reads nothing while much waits: messages for the disk, or answers for a peer that does not read them."""
        unread = self.transport.get_write_buffer_size()
        if self._waits and uncommitted <= MOST_UNCOMMITTED // 2 and unread <= MOST_UNREAD // 2:
            self._waits = False
            self.transport.resume_reading()
        elif not self._waits and (uncommitted > MOST_UNCOMMITTED or unread > MOST_UNREAD):
            self._waits = True
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.guest is not None:
            self.guest.blocked(self.owner.clock())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.guest is not None:
            self.guest.unblocked(self.owner.clock())
            self.output()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._turn is not None:
            self._turn.cancel()
        guest, self.guest = self.guest, None
        if guest is not None:
            fault = guest.engine.fault
            if fault is not None:
                facts = {"peer": self.admission.address, "condition": fault.condition, "reason": str(fault)}
                self.owner.faults.warn(self.owner.clock(), facts)
            guest.lost(self.owner.clock())
            self.owner.commit_soon()

    def shutdown(self) -> None:
        """The peer learns why, and what it holds goes back."""
        if self.guest is not None:
            self.guest.shut_down(self.owner.clock())
            self.flush()
        self.transport.close()

    # Logins

    def check(self, mechanism: str, response: bytes) -> None:
        door, address = self.owner.door, self.admission.address
        if mechanism == "ANONYMOUS":
            self._admit(door.anonymous(address))
            return
        if wait := door.logins.delay(address, door.clock()):  # guessing is slow
            self.transport.pause_reading()
            self._turn = asyncio.get_running_loop().call_later(wait, self._try_again, mechanism, response)
            return
        if mechanism == "PLAIN":
            visitor, who = door.plain(response, address), _login(response)[0]
        else:
            who = self._certificate or ""
            visitor = door.external(who, address)
        if visitor is None:
            door.logins.failed(address, door.clock(), door="amqp", who=who)
            self.guest.engine.refused()
            return
        self._admit(visitor)

    def _try_again(self, mechanism: str, response: bytes) -> None:
        self._turn = None
        if self.guest is not None:
            self.transport.resume_reading()
            self.check(mechanism, response)
            self.output()

    def _admit(self, visitor: Visitor) -> None:
        if self.admission.standing is Standing.FRESH:
            self.admission.busy()
        self.guest.logged_in(visitor)


class AmqpListener:
    """Call `start`, then `stop`."""

    def __init__(
        self,
        manager: AmqpManager,
        leases: Leases,
        host: str,
        port: int,
        settings: EngineSettings,
        credentials: Credentials,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.clock = manager.clock
        self._audit = manager.audit
        self.commit_soon = manager.durability.soon
        self.door = Door(manager, credentials)
        self.service = AmqpService(
            manager.core, leases, manager.durability, manager.clock, settings, self._note_refusal
        )
        self.faults = RateLimitedLog(log, "AMQP connection ended with an error")
        self.listener = Listener(
            "amqp",
            manager.limits,
            partial(AmqpConnection, self),
            host,
            port,
            tls=tls,
            supervisor=manager.supervisor,
        )
        self._timers: Source[None] = manager.core.deadlines.source("amqp", self._run_timers)

    @property
    def address(self) -> str:
        return self.listener.address

    def use_tls(self, tls: ssl.SSLContext) -> None:
        self.listener.use_tls(tls)

    def use(self, credentials: Credentials) -> None:
        self.door.use(credentials)

    async def start(self) -> None:
        """Raises OSError if an address is not available."""
        await self.listener.start()
        self.service.start(self.clock())
        self.commit_soon()
        self._timers.set(None, self.clock() + TIMER_S)

    async def stop(self) -> None:
        self._timers.set(None, None)
        await self.listener.stop()

    def _note_refusal(self, visitor: Visitor, address: str | None, error: PostroadError) -> None:
        who, where = visitor.who, visitor.address
        self._audit(ACCESS_REFUSED, who=who, address=where, queue=address, call="AMQP link", why=str(error))

    def _run_timers(self, keys: object, now: float) -> None:
        try:
            self.service.run_timers(now)
        finally:
            self._timers.set(None, now + TIMER_S)


def _digest(text: str) -> bytes:
    """Has the same length for every text, so that comparing digests does not reveal the length of a password."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _login(response: bytes) -> tuple[str, str]:
    """The name and the password of a login by PLAIN. An empty name if the login cannot be read."""
    parts = response.split(b"\0")
    try:
        return (parts[1].decode(), parts[2].decode()) if len(parts) == 3 else ("", "")
    except UnicodeDecodeError:
        return "", ""


def _is_here(address: str) -> bool:
    try:
        return is_loopback(address)
    except ValueError:  # the address is not known
        return False


def _common_name(certificate: Mapping[str, Any]) -> str | None:
    names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return names[0] if len(names) == 1 else None
