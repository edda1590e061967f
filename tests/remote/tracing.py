"""What a client really calls: a station whose calls are written down, and whose methods a test can replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from postroad.remote_read import qm2qm, qmcomm, remoteread
from postroad.remote_read.client import Identity
from postroad.remote_read.mqqp_client import RemoteReadClient
from postroad.remote_read.mqrr_client import MqrrClient
from postroad.rpc.calls import Call
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Format
from tests.remote.station import Station

Method = Callable[[Call, Any], Any]
OPNUMS = {
    operation: f"{interface.name} {operation.opnum}"
    for interface in (qm2qm.QM2QM, qmcomm.QMCOMM, remoteread.REMOTE_READ)
    for operation in interface.operations.values()
}


@dataclass(frozen=True, slots=True)
class Traced:
    """One call: on which connection (counted from 1), what, and with which parameters."""

    connection: int
    what: str
    request: Any


class Trace:
    """The calls that reach a station from now on, in their order."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.calls: list[Traced] = []
        self._connections: dict[object, int] = {}
        self._instead: dict[Operation[Any, Any], Method | None] = {}
        self._found = station.server.rpc.handler
        station.server.rpc.handler = self._handler  # type: ignore[method-assign]

    def _handler(self, operation: Operation[Any, Any]) -> Method | None:
        found = self._instead.get(operation, self._found(operation))

        def note(call: Call, request: Any) -> Any:
            number = self._connections.setdefault(call.connection, len(self._connections) + 1)
            self.calls.append(Traced(number, OPNUMS[operation], request))
            return None if found is None else found(call, request)

        return None if found is None else note

    def instead(self, operation: Operation[Any, Any], method: Method | None) -> None:
        """Replaces a method; None takes it away."""
        self._instead[operation] = method

    @property
    def whats(self) -> list[str]:
        return [call.what for call in self.calls]

    def of(self, what: str) -> list[Any]:
        return [call.request for call in self.calls if call.what == what]


def new_client(
    station: Station, identity: Identity, *, layouts: tuple[Format, ...] = (Format.NDR,)
) -> RemoteReadClient:
    """A client of the station."""
    host, port = station.address

    async def reach(interface: Interface, told: int | None) -> RpcClient:
        return await connect(host, told or port, interface, layouts=layouts)

    return RemoteReadClient(reach, identity)


def new_mqrr_client(station: Station, identity: Identity, *, layouts: tuple[Format, ...] = (Format.NDR,)) -> MqrrClient:
    """A client of the station by MS-MQRR."""
    host, port = station.address

    async def reach(interface: Interface, told: int | None) -> RpcClient:
        return await connect(host, told or port, interface, layouts=layouts)

    return MqrrClient(reach, identity)
