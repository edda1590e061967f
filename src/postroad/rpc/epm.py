"""The endpoint mapper, as a server and as a client. The server runs one if the port is free; else it registers with the
one that has the port."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from postroad.errors import InterfaceNotOffered, PostroadError, RemoteProtocolError, RpcFault, RpcUnavailable
from postroad.net.endpoints import endpoint, is_loopback
from postroad.net.limits import Limits
from postroad.net.ports import ENDPOINT_MAPPER
from postroad.rpc import epm_interface as ept
from postroad.rpc.calls import Call
from postroad.rpc.client import CONNECT_TIMEOUT_S, connect
from postroad.rpc.client_connection import syntax_of
from postroad.rpc.epm_interface import Tower
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import NULL_HANDLE, Handle
from postroad.rpc.pdu import SyntaxId
from postroad.rpc.security import Provider
from postroad.rpc.server import RpcServer
from postroad.security.attempts import FailedLogins

_log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 4096
_NO_OBJECT: Final = UUID(int=0)
AGAIN_S: Final = 1.0  # between two tries to take the place of a mapper that has ended
_ANY: Final = ("", "0.0.0.0", "::")
_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)  # why a process does not get a port


class Inquiry(IntEnum):
    """[MS-RPCE] 2.2.1.2.4 inquiry_type"""

    ALL = 0
    BY_INTERFACE = 1
    BY_OBJECT = 2
    BY_BOTH = 3


class Versions(IntEnum):
    """[MS-RPCE] 2.2.1.2.4 vers_option"""

    ALL = 1
    COMPATIBLE = 2
    EXACT = 3
    MAJOR_ONLY = 4
    UP_TO = 5


@dataclass(frozen=True, slots=True)
class Registration:
    """An interface that this machine serves at a port."""

    interface: SyntaxId
    port: int
    address: str = "0.0.0.0"
    annotation: str = ""
    object: UUID = _NO_OBJECT

    @classmethod
    def of(cls, interface: Interface, host: str, port: int, annotation: str = "") -> Registration:
        return cls(syntax_of(interface), port, "0.0.0.0" if host in _ANY else host, annotation)

    def tower(self, called: str) -> ept.Twr:
        """The tower of this registration. An interface that is served at all addresses gets `called`, the address that
        the client used."""
        address = called if self.address in _ANY else self.address
        return ept.Twr.of(Tower(self.interface, self.port, address).encode())

    def entry(self, called: str) -> ept.Entry:
        return ept.Entry(self.object, self.tower(called), self.annotation[: ept.ANNOTATION - 1])


class EndpointMapper:
    """The table of registrations, and the handlers of the interface. When an association ends, so do its
    registrations."""

    def __init__(self) -> None:
        self._own: list[Registration] = []
        self._inserted: dict[Registration, int] = {}  # the id of the association that registered it

    @property
    def registrations(self) -> list[Registration]:
        return [*self._own, *self._inserted]

    def add(self, registrations: Iterable[Registration]) -> None:
        self._own += registrations

    def attach(self, server: RpcServer) -> None:
        server.register(ept.EPMAPPER)
        server.on(ept.EPT_INSERT, self._insert)
        server.on(ept.EPT_DELETE, self._delete)
        server.on(ept.EPT_LOOKUP, self._lookup)
        server.on(ept.EPT_MAP, self._map)
        server.on(ept.EPT_LOOKUP_HANDLE_FREE, self._free)

    # [MS-RPCE] 3.1.3.5.3: only interfaces of this machine are registered, so only clients on this machine may register.

    def _insert(self, call: Call, request: ept.Insert) -> ept.StatusReply:
        found = _read(request.entries) if is_local(call) else []
        room = MAX_ENTRIES - len(self._inserted)
        if not found or len(found) != len(request.entries) or len(found) > room:
            return ept.StatusReply(ept.CANNOT_PERFORM)
        if call.association.identifier not in self._inserted.values():
            call.open_context("registrations", call.association.identifier, self._withdraw)
        for registration in found:
            self._inserted.setdefault(registration, call.association.identifier)
        return ept.StatusReply(0)

    def _delete(self, call: Call, request: ept.Delete) -> ept.StatusReply:
        own = call.association.identifier
        found = [each for each in _read(request.entries) if self._inserted.get(each) == own]
        for registration in found:
            del self._inserted[registration]
        return ept.StatusReply(0 if found else ept.NOT_REGISTERED)

    def _withdraw(self, association: int) -> None:
        self._inserted = {each: owner for each, owner in self._inserted.items() if owner != association}

    def _lookup(self, call: Call, request: ept.Lookup) -> ept.LookupReply:
        def find() -> list[Registration]:
            return [each for each in self.registrations if _is_wanted(each, request)]

        handle, found = self._page(call, request.entry_handle, request.max_ents, find)
        entries = tuple([each.entry(call.local_address) for each in found])
        return ept.LookupReply(handle, len(entries), entries, 0 if entries else ept.NOT_REGISTERED)

    def _map(self, call: Call, request: ept.Map) -> ept.MapReply:
        def find() -> list[Registration]:
            wanted = None if request.map_tower is None else Tower.decode(request.map_tower.tower_octet_string)
            return [each for each in self.registrations if wanted and serves(each.interface, wanted.interface)]

        try:
            handle, found = self._page(call, request.entry_handle, request.max_towers, find)
        except RemoteProtocolError:
            return ept.MapReply(NULL_HANDLE, 0, (), ept.CANNOT_PERFORM)
        towers = tuple([each.tower(call.local_address) for each in found])
        return ept.MapReply(handle, len(towers), towers, 0 if towers else ept.NOT_REGISTERED)

    def _page(
        self, call: Call, handle: Handle, limit: int, find: Callable[[], list[Registration]]
    ) -> tuple[Handle, list[Registration]]:
        """Returns the next `limit` matches, and a handle if there are more."""
        if handle != NULL_HANDLE:
            found = call.context(handle, list)
            call.close_context(handle)
        else:
            found = find()
        page, rest = found[:limit], found[limit:]
        return (call.open_context(ept.LOOKUP_HANDLE, rest) if rest and page else NULL_HANDLE), page

    def _free(self, call: Call, request: ept.HandleFree) -> ept.HandleFreeReply:
        return ept.HandleFreeReply(call.close_context(request.entry_handle), 0)


def is_local(call: Call) -> bool:
    return call.address == call.local_address or is_loopback(call.address)


def serves(offered: SyntaxId, wanted: SyntaxId) -> bool:
    """[C706] 6.1.2: the same major version, and at least the wanted minor version."""
    return (offered.uuid, offered.major) == (wanted.uuid, wanted.major) and offered.minor >= wanted.minor


def _is_wanted(registration: Registration, request: ept.Lookup) -> bool:
    if request.inquiry_type in (Inquiry.BY_OBJECT, Inquiry.BY_BOTH) and registration.object != request.object:
        return False
    wanted = request.if_id
    if request.inquiry_type not in (Inquiry.BY_INTERFACE, Inquiry.BY_BOTH) or wanted is None:
        return request.inquiry_type in (Inquiry.ALL, Inquiry.BY_OBJECT)
    offered = registration.interface
    if offered.uuid != wanted.uuid:
        return False
    have, want = (offered.major, offered.minor), (wanted.vers_major, wanted.vers_minor)
    match request.vers_option:
        case Versions.ALL:
            return True
        case Versions.COMPATIBLE:
            return have[0] == want[0] and have[1] >= want[1]
        case Versions.EXACT:
            return have == want
        case Versions.MAJOR_ONLY:
            return have[0] == want[0]
        case Versions.UP_TO:
            return have <= want
        case _:
            return False


def _read(entries: Sequence[ept.Entry]) -> list[Registration]:
    """Returns the entries of ncacn_ip_tcp and leaves out those of other protocols."""
    return [
        Registration(tower.interface, tower.port, tower.address, entry.annotation, entry.object)
        for entry in entries
        if (tower := _tower(entry.tower)) is not None
    ]


def _tower(found: ept.Twr | None) -> Tower | None:
    """None for a tower of another protocol, and for octets that are not a tower."""
    try:
        return None if found is None else Tower.decode(found.tower_octet_string)
    except RemoteProtocolError:
        return None


# As a client


async def resolve(
    host: str,
    interface: Interface,
    *,
    port: int = ENDPOINT_MAPPER,
    local_host: str | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
) -> int:
    """Asks the endpoint mapper of `host` for the port of an interface."""
    client = await connect(host, port, ept.EPMAPPER, local_host=local_host, timeout=timeout)
    try:
        tower = ept.Twr.of(Tower(syntax_of(interface), 0).encode())
        reply = await client.call(ept.EPT_MAP, ept.Map(None, tower, NULL_HANDLE, 4), timeout=timeout)
    except (RpcFault, TimeoutError) as error:
        raise RpcUnavailable(f"the endpoint mapper of {host} does not answer: {error}") from None
    finally:
        await client.close()
    for found in reply.towers:
        decoded = _tower(found)
        if decoded is not None and decoded.port:
            return decoded.port
    raise InterfaceNotOffered(f"the endpoint mapper of {host} does not list the interface {interface.name}")


# As a server


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the registrations are, and what removes them. `lost` ends when another process's mapper has ended."""

    port: int
    stop: Callable[[], Awaitable[None]]
    lost: Callable[[], Awaitable[None]] | None = None


class Offer:
    """What this process has registered, in its own endpoint mapper or in that of another process. `stop` removes it.

    If the other process ends, its mapper ends. Then this one takes the port, or registers with whoever has it by then.
    """

    def __init__(self, arrange: Callable[[], Awaitable[_Place]], place: _Place) -> None:
        self._arrange = arrange
        self._place = place
        self._keeping = asyncio.create_task(self._keep())

    @property
    def port(self) -> int:
        return self._place.port

    async def _keep(self) -> None:
        while self._place.lost is not None:
            await self._place.lost()
            _log.warning("the endpoint mapper has ended", extra={"port": self.port})
            while True:
                try:
                    self._place = await self._arrange()
                    break
                except (OSError, PostroadError):  # nobody has the port, and this process may not take it
                    await asyncio.sleep(AGAIN_S)

    async def stop(self) -> None:
        self._keeping.cancel()
        await asyncio.wait((self._keeping,))
        await self._place.stop()


async def offer(
    registrations: Sequence[Registration],
    host: str,
    port: int = ENDPOINT_MAPPER,
    shared: Limits | None = None,
    providers: Mapping[int, Provider] | None = None,
    logins: FailedLogins | None = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    timeout: float = CONNECT_TIMEOUT_S,
) -> Offer:
    """Starts an endpoint mapper if `port` is free; else registers with the one that has the port.

    `providers` and `logins` are for clients that authenticate, which is optional. `clock` is that of `logins`,
    `timeout` is for the other mapper.
    """

    async def arrange() -> _Place:
        server = RpcServer(shared=shared, providers=providers, logins=logins, clock=clock)
        mapper = EndpointMapper()
        mapper.attach(server)
        mapper.add(registrations)
        try:
            return _Place(await server.listen(host, port), server.stop)
        except BaseException as error:
            await server.stop()
            if not isinstance(error, OSError) or error.errno not in _NOT_OURS:
                raise
        return await _register(registrations, host, port, timeout)

    return Offer(arrange, await arrange())


async def _register(registrations: Sequence[Registration], host: str, port: int, timeout: float) -> _Place:
    _log.info("registering with another endpoint mapper", extra={"port": port})
    mapper_host = "127.0.0.1" if host in _ANY else host
    local_host = None if host in _ANY else host
    client = await connect(mapper_host, port, ept.EPMAPPER, local_host=local_host, timeout=timeout)
    entries = tuple([each.entry("0.0.0.0") for each in registrations])
    refusal = f"the endpoint mapper at {endpoint(mapper_host, port)} refuses the registration"
    try:
        reply = await client.call(ept.EPT_INSERT, ept.Insert(len(entries), entries, 0), timeout=timeout)
        if reply.status:
            raise RpcUnavailable(f"{refusal}: 0x{reply.status:08X}")
    except (RpcFault, TimeoutError) as fault:
        await client.close()
        raise RpcUnavailable(f"{refusal}: {fault}") from None
    except BaseException:
        await client.close()
        raise
    return _Place(port, client.close, client.ended)
