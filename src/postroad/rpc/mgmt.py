"""The remote management interface that every RPC server has, [C706] Appendix Q: its interfaces and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from postroad.rpc import ndr
from postroad.rpc.calls import Call, Endpoint
from postroad.rpc.epm_interface import InterfaceId, StatusReply
from postroad.rpc.interface import Interface, Nothing, Operation

ACCESS_DENIED: Final = 5
UNKNOWN_AUTHN_SERVICE: Final = 0x6D3


@dataclass(frozen=True, slots=True)
class InterfaceIds:
    """rpc_if_id_vector_t"""

    count: ndr.Ulong
    if_id: Annotated[tuple[InterfaceId | None, ...], ndr.array(ndr.full(ndr.struct(InterfaceId)), size_is="count")]


@dataclass(frozen=True, slots=True)
class InterfaceIdsReply:
    if_id_vector: Annotated[InterfaceIds | None, ndr.full(ndr.struct(InterfaceIds))]
    status: ndr.Ulong


@dataclass(frozen=True, slots=True)
class Statistics:
    count: ndr.Ulong


@dataclass(frozen=True, slots=True)
class StatisticsReply:
    count: ndr.Ulong
    statistics: Annotated[tuple[int, ...], ndr.array(ndr.ulong, size_is="count")]
    status: ndr.Ulong


@dataclass(frozen=True, slots=True)
class ListeningReply:
    status: ndr.Ulong
    listening: ndr.Ulong


@dataclass(frozen=True, slots=True)
class PrincipalName:
    authn_proto: ndr.Ulong
    princ_name_size: ndr.Ulong


@dataclass(frozen=True, slots=True)
class PrincipalNameReply:
    princ_name: Annotated[str, ndr.string]
    status: ndr.Ulong


INQ_IF_IDS = Operation(0, "rpc__mgmt_inq_if_ids", Nothing, InterfaceIdsReply)
INQ_STATS = Operation(1, "rpc__mgmt_inq_stats", Statistics, StatisticsReply)
IS_SERVER_LISTENING = Operation(2, "rpc__mgmt_is_server_listening", Nothing, ListeningReply)
STOP_SERVER_LISTENING = Operation(3, "rpc__mgmt_stop_server_listening", Nothing, StatusReply)
INQ_PRINC_NAME = Operation(4, "rpc__mgmt_inq_princ_name", PrincipalName, PrincipalNameReply)

MGMT = Interface(
    "mgmt",
    "afa8bd80-7d8a-11c9-bef4-08002b102989",
    (1, 0),
    *(INQ_IF_IDS, INQ_STATS, IS_SERVER_LISTENING, STOP_SERVER_LISTENING, INQ_PRINC_NAME),
)


class Management:
    """The handlers, for one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def interface_ids(self, call: Call, request: Nothing) -> InterfaceIdsReply:
        found = tuple([InterfaceId(each.uuid, *each.version) for each in self._endpoint.interfaces.values()])
        return InterfaceIdsReply(InterfaceIds(len(found), found), 0)

    def statistics(self, call: Call, request: Statistics) -> StatisticsReply:
        """The endpoint's counters. It counts no outgoing calls, because a server makes none."""
        endpoint = self._endpoint
        found = (endpoint.calls_in, 0, endpoint.pdus_in, endpoint.pdus_out)
        shown = tuple([each & 0xFFFFFFFF for each in found[: request.count]])
        return StatisticsReply(len(shown), shown, 0)

    def is_listening(self, call: Call, request: Nothing) -> ListeningReply:
        return ListeningReply(0, 1)

    def stop_listening(self, call: Call, request: Nothing) -> StatusReply:
        """Refuses: no caller may stop the server."""
        return StatusReply(ACCESS_DENIED)

    def principal_name(self, call: Call, request: PrincipalName) -> PrincipalNameReply:
        """Returns an empty name, because our providers register no principal name."""
        known = request.authn_proto in self._endpoint.providers
        return PrincipalNameReply("", 0 if known else UNKNOWN_AUTHN_SERVICE)
