"""Every collection of a manager that has a limit: the common table, or one that is named here with its reason."""

from __future__ import annotations

import ast
import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast
from uuid import UUID

import pytest

import postroad
from postroad.api.logins import KerberosLogins, KerberosSettings
from postroad.binary.neighbours import Neighbours, _Origin
from postroad.binary.sequences import IncomingSequence, IncomingSequences
from postroad.carriers.arrivals import MessageIdHistory
from postroad.config import load_configuration
from postroad.console import sessions as console
from postroad.console.app import Console, Settings
from postroad.pgm.packet import Tsi
from postroad.pgm.receiver import Receiver as PgmReceiver
from postroad.pgm.receiver import Session as PgmSession
from postroad.rpc.server import RpcServer
from postroad.runtime.bounded import BoundedTable, Standing, owner_of
from postroad.security.attempts import FailedLogins
from postroad.server.server import Server
from postroad.soap.streams import INCOMING_STATE, IncomingStream, IncomingStreams

SOURCE = Path(postroad.__file__).parent
CONFIGURATION = r"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.63.1"
binary = 0
http = 0
ping = 0
rpc = 0
api = 0
[limits]
remote_managers = 200
[multicast]
enabled = true
interfaces = ["127.0.63.1"]
encapsulation = "udp"
port_udp = 13163
[[queue]]
path = 'private$\news'
multicast_address = "234.1.2.3:8001"
"""
# What runs in no manager: commands, clients, files of captured packets, pipelines, the simulator, words.
ELSEWHERE = frozenset(
    {"aio", "cli", "client", "columns", "describe", "message", "names", "reports", "simulation", "spark"}
    | {"telemetry", "validation", "wire"}
)

CONNECTION = "of one connection, which ends with it"
CACHE = "a cache: what has left it is found again, and takes a little longer"
OWN = "strangers put nothing into it"
DISK = "the store's own, for speed"
# Collections with a limit that are no BoundedTable, by their classes, each with the reason.
NAMED = {
    "AddressOrder._ranks": CACHE,
    "Agenda._heap": "its spare entries alone",
    "Association.contexts": CONNECTION,
    "Asked._by_id": "messages that applications here have sent",
    "Accounts._absent": CACHE,
    "Accounts._known": "accounts that the domain has; those that nobody uses leave first",
    "Accounts.wanted": CACHE,
    "AuditLog._unlisted": "counts of one minute; further callers are counted together",
    "AuditLog.deque": "the newest for a page; the file has them all",
    "BinaryService.sessions": "a connection each: net/limits.py shares these out by address",
    "Destinations._known": CACHE,
    "Browser.missed": CONNECTION,
    "DirectoryFiles._descriptors": DISK,
    "DomainReader.found.queues": "sent on in parts of this size",
    "Engine._buffer": CONNECTION,
    "Engine.link.parts": CONNECTION,
    "Flood._seen": "kinds of events, which are texts of the program; cleared each half a minute",
    "Forms._known": CACHE,
    "HttpConnection._waiting": CONNECTION,
    "Gate._proved": "logins whose password was right",
    "IdleQueues._queues.outgoing": "holds messages: newcomers are refused, and a tenth is for our applications",
    "Job.rows": "what one job of one login has found",
    "Jobs._jobs": "of one login at the console",
    "Layers._overlay.active.entries": DISK,
    "Leases._ended": "of callers with a right to receive",
    "Limits.group.members": "connections of one address: this is what shares them out",
    "MessageIdHistory._owners": CACHE,
    "MessageIdHistory._blocks": "what the store has of the table `_seen`",
    "MulticastReceiver._arrived": "each leaves in a few seconds, and receipts of multicast messages are off by default",
    "OutgoingInfo.deque": "of one outgoing queue",
    "OtherAce.body": "a value",
    "Presentations.accepted": CONNECTION,
    "Publishing._changed": "public queues that callers with the right to do so have changed",
    "Publishing._gone": "public queues that callers with the right to do so have deleted",
    "Queue._front": "what is read ahead of one queue",
    "Receiver._refusal_acks": "what has left it is written twice, within the share of one address",
    "Relay._named": "hosts that applications of this manager have named",
    "RemoteReadService.parent.subqueues": "of one queue, by callers with a right to receive; newcomers are refused",
    "SecurityContexts._table": CONNECTION,
    "Sender.transfer.unacked": "messages of one outgoing queue",
    "ServerConnection.calls": CONNECTION,
    "Session._missing": "packets of one multicast source",
    "Source._pending": "packets of our own that somebody has missed: each is there once, and leaves with its repair",
    "Sessions._aside": DISK,
    "SqliteStore._damaged": "the first places that are damaged, for the report",
    "Session._apdu": "parts of one message of one multicast source",
    "Shares._queues": "an address each with messages that wait, whose outgoing queues have a limit",
    "SoapService._addresses": CACHE,
    "TimedCache._entries": "[MS-MQQB] 3.1.5.8.3 says what leaves; a key or certificate that has left is read again",
    "Watch._series": "queues of the managers that the console shows",
    "Watch.deque": "samples of one manager",
    "_Channel._buffer": "one answer of a domain controller",
    "_Channel._raw": "one answer of a domain controller",
    "_Link.server.links": "a connection each: net/limits.py shares these out by address",
    "_Resolver.found": "hosts that this manager calls: [relay] says which may be named by strangers",
    "_Run.ids": DISK,
}


def bounded_collections() -> Iterator[tuple[str, str]]:
    """(collection, place) of each that a class compares with a limit, or takes the oldest from."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] in ELSEWHERE:
            continue
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.ClassDef) and each.name != "BoundedTable":
                for found in _limited(each):
                    yield f"{each.name}.{found.removeprefix('self.')}", f"{path}:{each.lineno}"


def _limited(of: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(of):
        match node:
            case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[ast.Attribute() as table]), ops=[how]):
                if isinstance(how, ast.Gt | ast.GtE | ast.Lt):
                    found.add(ast.unparse(table))
            case ast.Call(func=ast.Attribute(attr="popitem", value=table)):
                found.add(ast.unparse(table))
            case ast.keyword(arg="maxlen"):
                found.add("deque")
            case ast.Delete(targets=[ast.Subscript(value=table, slice=key)]) if "next(iter(" in ast.unparse(key):
                found.add(ast.unparse(table))
    return found


def tables_in_the_source() -> set[str]:
    """Classes that make one."""
    return {
        each.name
        for path in SOURCE.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.ClassDef) and each.name != "BoundedTable"
        for node in ast.walk(each)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "BoundedTable"
    }


def reachable(*roots: object) -> Iterator[object]:
    """Every object that these lead to; of a function only what it has closed over."""
    seen: set[int] = set()
    waiting: list[object] = list(roots)
    kept = []  # an id is its object's only as long as that lives
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | str | bytes | int | float | None):
            continue
        seen.add(id(each))
        kept.append(each)
        yield each
        if isinstance(each, FunctionType):
            waiting += each.__closure__ or ()
        else:
            waiting += gc.get_referents(each)


def tables_of(*roots: object) -> dict[str, tuple[Any, BoundedTable[Any, Any]]]:
    found: dict[str, tuple[Any, BoundedTable[Any, Any]]] = {}
    for each in reachable(*roots):
        if isinstance(each, BoundedTable) or not type(each).__module__.startswith("postroad."):
            continue
        names = {*getattr(each, "__dict__", ())}
        for kind in type(each).__mro__:
            names.update(getattr(kind, "__slots__", ()))
        for name in names:
            value = getattr(each, name, None)
            if isinstance(value, BoundedTable):
                found[f"{type(each).__name__}.{name}"] = each, value
    return found


class _Link:
    def abort(self) -> None:
        """Nobody is connected."""


Add = Callable[[Any, BoundedTable[Any, Any], int, str, Standing], object]


def _add(key: Callable[[int, str], object], value: Callable[[int, str], object]) -> Add:
    def add(holder: object, table: BoundedTable[Any, Any], number: int, address: str, standing: Standing) -> object:
        made = key(number, address)
        table.put(made, value(number, address), owner_of(address), standing)
        return made

    return add


def _add_stream(
    holder: IncomingStreams, table: BoundedTable[Any, Any], number: int, address: str, standing: Standing
) -> object:
    name = f"{INCOMING_STATE}{number:032x}/{number:016x}/{address}"
    holder._keep(name, IncomingStream(), standing)
    return name


def _add_source(
    holder: PgmReceiver, table: BoundedTable[Any, Any], number: int, address: str, standing: Standing
) -> object:
    tsi = Tsi(number.to_bytes(6, "big"), 1)
    session = PgmSession(tsi, address, holder.settings, lambda: 0.5, [], holder.counts, 0.0)
    session.confirmed = standing > Standing.STRANGER
    table.put((tsi, address), session, owner_of(address))
    return tsi, address


# How each table gets an entry.
TABLES: dict[str, tuple[type, Add]] = {
    "Neighbours._own_addresses": (Neighbours, _add(lambda number, address: f"{address}.{number}", lambda *_: None)),
    "Neighbours._origins": (
        Neighbours,
        _add(lambda number, _: number.to_bytes(16, "little"), lambda _, address: _Origin(address, 0.0)),
    ),
    "Neighbours._reached": (Neighbours, _add(lambda number, _: f"host{number}", lambda _, address: (address,))),
    "IncomingSequences._sequences": (
        IncomingSequences,
        _add(
            lambda number, _: f"incoming/{number:032x}/0",
            lambda number, _: IncomingSequence(UUID(int=number), "DIRECT="),
        ),
    ),
    "MessageIdHistory._seen": (
        MessageIdHistory,
        _add(lambda number, _: number.to_bytes(20, "little"), lambda *_: 0),
    ),
    "IncomingStreams._streams": (IncomingStreams, _add_stream),
    "FailedLogins._failures": (FailedLogins, _add(lambda number, _: f"host{number}", lambda *_: (9, 0.0))),
    "RpcServer.half_open": (RpcServer, _add(lambda *_: _Link(), lambda *_: None)),
    "Receiver.sessions": (PgmReceiver, _add_source),
    "KerberosLogins._sessions": (
        KerberosLogins,
        _add(lambda number, _: number.to_bytes(32, "little"), lambda *_: None),
    ),
    "Sessions._sessions": (
        console.Sessions,
        _add(lambda number, _: f"cookie {number}", lambda *_: console.Session()),
    ),
}


def test_every_collection_with_a_limit_is_the_common_table_or_has_a_reason() -> None:
    found = dict(bounded_collections())
    new = {f"{place} {name}" for name, place in found.items() if name not in NAMED}
    assert not set(NAMED) - set(found), "they are gone, so that no reason is needed"
    assert not new, "make it a BoundedTable, or say in NAMED why strangers cannot fill it"


def test_the_scan_finds_a_new_one() -> None:
    text = "class Visitors:\n    def note(self, who):\n        if len(self._seen) >= 10: self._seen.popitem()"
    (made,) = ast.parse(text).body
    assert isinstance(made, ast.ClassDef)
    assert _limited(made) == {"self._seen"}


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION)
    return file


def test_no_flood_of_any_table_takes_what_another_has_proven(configuration: Path) -> None:
    """By one address with all its entries proven, and by many that nobody knows."""

    async def run() -> None:
        server = Server(load_configuration(configuration))
        await server.start()
        shown = Console(Settings(apis=["http://127.0.0.1:1"]))
        logins = KerberosLogins(cast(KerberosSettings, None), time.time)  # a server has them where it has a keytab
        try:
            found = tables_of(server, shown, logins)
            assert set(found) == set(TABLES), "say in TABLES how the new table gets an entry"
            assert {type(holder).__name__ for holder, _ in found.values()} == tables_in_the_source()
            for name, (holder, table) in found.items():
                kind, add = TABLES[name]
                assert type(holder) is kind
                partner = add(holder, table, 1, "192.0.2.1", Standing.PROVEN)
                assert partner in table, name
                flood(table, partial(add, holder, table), name)
                assert partner in table, name
        finally:
            await shown._sessions.close()
            await server.stop()

    asyncio.run(run())


def flood(table: BoundedTable[Any, Any], add: Callable[[int, str, Standing], object], name: str) -> None:
    number = 1000
    for standing in Standing:
        if standing is Standing.KNOWN:
            continue  # nobody floods from an address that our own people have named
        for many in (False, True):
            if many and standing is Standing.PROVEN:
                continue  # as many proven managers as there is room for: the longest silent leaves
            for _ in range(table.limit + table.limit // 4):
                number += 1
                add(number, f"10.{number >> 8 & 255}.{number & 255}.1" if many else "10.0.0.1", standing)
                assert len(table) <= table.limit, name
