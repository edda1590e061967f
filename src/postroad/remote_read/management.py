"""Management of the queue manager by others, [MS-MQMR]: what administrators see, and the actions they take.

The octets are in qmmgmt.py. Each call is checked on its own, and the server keeps nothing between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Protocol

from postroad.errors import PostroadError, Status
from postroad.names import DirectName, FormatName, PrivateName, PublicName, QueueFormat, QueueKind
from postroad.names.format import ConnectorName
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import (
    CarrierReport,
    IncomingTransferInfo,
    OutgoingState,
    OutgoingTransferInfo,
    SequenceInfo,
)
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.remote_read import qmcomm
from postroad.remote_read.qmmgmt import (
    ACTION,
    GET_INFO,
    NULL,
    QMMGMT,
    Action,
    ActionIn,
    GetInfoIn,
    GetInfoOut,
    MachineProperty,
    MgmtObject,
    MgmtObjectType,
    PropVariant,
    QueueProperty,
    VarType,
    i4,
    sequence_info,
    table,
    text,
    ui4,
    vector,
)
from postroad.remote_read.structures import Result
from postroad.rpc.calls import Call, Caller
from postroad.rpc.server import RpcServer
from postroad.runtime.version import __version__
from postroad.security.attempts import Audit

MACHINE_ACTIONS = frozenset({Action.CONNECT, Action.DISCONNECT, Action.TIDY})
_ACTIONS = {each.name: each for each in Action}
_EMPTY = (VarType.NULL, VarType.EMPTY)
_TYPES = {QueueType.PRIVATE: "PRIVATE", QueueType.PUBLIC: "PUBLIC", QueueType.CONNECTOR: "CONNECTOR"}
_KINDS = {QueueKind.PRIVATE: "PRIVATE", QueueKind.PUBLIC: "PUBLIC", QueueKind.SYSTEM: "MACHINE"}
_WHOLE = frozenset({QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR, QueueType.SYSTEM, QueueType.OUTGOING})


class Refusal(Exception):
    """An HRESULT for the caller. No method throws an exception of its own, 3.1.4."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Outlook(Protocol):
    """What the queue manager knows of its outgoing queues."""

    def outgoing(self, queue: Queue) -> CarrierReport: ...


class ManagedManager(Protocol):
    """What management needs from its queue manager."""

    clock: Callable[[], float]
    core: LocalQueueManager

    def outlook(self) -> Outlook: ...

    def commit_soon(self) -> None: ...

    def tidy(self) -> None: ...


class Management:
    """Answers qmmgmt for one queue manager.

    With `open_to_all`, everybody counts as an administrator: the manager listens on this computer alone, and asks
    nobody to log in. `directory_server` is the server of the directory service in use, if there is one.
    """

    interfaces = (QMMGMT,)

    def __init__(
        self,
        manager: ManagedManager,
        audit: Audit | None = None,
        *,
        open_to_all: bool = False,
        directory_server: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.manager = manager
        self.core = manager.core
        self.audit = audit
        self.open_to_all = open_to_all
        self.directory_server = directory_server

    def register(self, server: RpcServer) -> None:
        server.register(QMMGMT)
        server.on(GET_INFO, self._get_info)
        server.on(ACTION, self._action)

    def _get_info(self, call: Call, request: GetInfoIn) -> GetInfoOut:
        try:
            return GetInfoOut(tuple(self.get_info(call.caller, request)), Status.OK)
        except Refusal as refusal:
            return GetInfoOut(request.values, refusal.status)  # 3.1.4.1: no value is set

    def _action(self, call: Call, request: ActionIn) -> Result:
        try:
            self.act(call.caller, request.mgmt_object, request.action)
        except Refusal as refusal:
            return Result(refusal.status)
        return Result(Status.OK)

    # Who may

    def _check(self, caller: Caller) -> None:
        """3: the caller must be an administrator. Looks nothing up before that is known."""
        access = self.core.access
        if caller.account is not None:
            administrator = access.login_token(caller.account).everything
        else:
            user = None if caller.user is None else access.users.named(caller.user)
            administrator = user is not None and user.administrator
        if not self.open_to_all and not administrator:
            raise Refusal(Status.ACCESS_DENIED, "only administrators may manage the queue manager")

    # R_QMMgmtGetInfo, 3.1.4.1

    def get_info(self, caller: Caller, request: GetInfoIn) -> list[PropVariant]:
        self._check(caller)
        wanted = request.properties
        if any(each.vt not in _EMPTY for each in request.values):
            raise Refusal(Status.PROPERTY, "each value must be VT_NULL before the call")
        match request.mgmt_object.type:
            case MgmtObjectType.MGMT_MACHINE:
                _require(wanted, MachineProperty)
                figures = {each: self._machine(MachineProperty(each)) for each in set(wanted)}
            case MgmtObjectType.MGMT_QUEUE:
                queue = self._queue(request.mgmt_object)
                _require(wanted, QueueProperty)
                look = _Look(self, queue)
                figures = {each: look.value(QueueProperty(each)) for each in set(wanted)}
            case _:
                raise Refusal(Status.INVALID_PARAMETER, "nobody asks about sessions")
        return [figures[each] for each in wanted]

    def _queue(self, mgmt_object: MgmtObject) -> Queue:
        if mgmt_object.arm is None:
            raise Refusal(Status.INVALID_PARAMETER, "no queue is named")
        try:
            name = QueueFormat(*qmcomm.queue_format_parts(mgmt_object.arm)).to_format_name()
        except PostroadError as fault:
            raise Refusal(Status.ILLEGAL_FORMATNAME, str(fault)) from None
        queue = self.core.queues.find(name)
        if queue is None:
            raise Refusal(Status.QUEUE_NOT_FOUND, f"there is no queue {name}")
        return queue

    def _machine(self, wanted: MachineProperty) -> PropVariant:
        queues = [each for each in self.core.queues if not each.is_internal]
        match wanted:
            case MachineProperty.ACTIVEQUEUES:
                active = [each for each in queues if each.properties.queue_type in _WHOLE and _is_active(each)]
                return vector(VarType.LPWSTR, [str(self.core.queues.format_name(each)) for each in active])
            case MachineProperty.PRIVATEQ:
                private = [each for each in queues if each.properties.queue_type is QueueType.PRIVATE]
                return vector(VarType.LPWSTR, [self.path_name(each) for each in private])
            case MachineProperty.DSSERVER:
                server = self.directory_server()
                return NULL if server is None else text(rf"\\{server}")
            case MachineProperty.CONNECTED:
                return text("CONNECTED" if self.core.connection_active else "DISCONNECTED")
            case MachineProperty.TYPE:
                return text(f"Postroad {__version__}")
            case MachineProperty.BYTES_IN_ALL_QUEUES:
                return PropVariant(VarType.I8, value=sum(each.total_bytes for each in self.core.queues))

    def path_name(self, queue: Queue) -> str:
        return f"{self.core.name}\\{queue.properties.path}"

    # R_QMMgmtAction, 3.1.4.2

    def act(self, caller: Caller, mgmt_object: MgmtObject, word: str) -> None:
        """Does what the word says, and writes down who wanted it and how it went."""
        facts: dict[str, object] = {}
        try:
            self._check(caller)
            action = _ACTIONS.get(word.upper()) if word.isascii() else None
            if action is None or mgmt_object.type is MgmtObjectType.MGMT_SESSION:
                raise Refusal(Status.INVALID_PARAMETER, f"there is no such action: {word[:20]!r}")
            if (action in MACHINE_ACTIONS) != (mgmt_object.type is MgmtObjectType.MGMT_MACHINE):
                raise Refusal(Status.INVALID_PARAMETER, f"{action.name} is for another kind of object")
            if action in MACHINE_ACTIONS:
                self._act_on_machine(action)
            else:
                queue = self._queue(mgmt_object)
                facts["queue"] = queue.name
                self._act_on_queue(action, queue)
        except Refusal as refusal:
            self._write(caller, word, str(refusal), facts)
            raise
        self._write(caller, word, "done", facts)
        self.manager.commit_soon()

    def _act_on_machine(self, action: Action) -> None:
        now = self.manager.clock()
        if action is Action.CONNECT:
            self.core.bring_online(now)
        elif action is Action.DISCONNECT:
            self.core.take_offline(now)
        else:
            self.manager.tidy()  # only frees storage: the rule that purges each queue contradicts the table of 3.1.4.2

    def _act_on_queue(self, action: Action, queue: Queue) -> None:
        if not queue.is_outgoing:
            raise Refusal(Status.UNSUPPORTED_FORMATNAME_OPERATION, "only an outgoing queue sends")
        now = self.manager.clock()
        if action is Action.PAUSE:
            self.core.pause(queue)
        elif action is Action.RESUME:
            self.core.resume(queue, now)
        else:
            self.core.resend(queue, now)

    def _write(self, caller: Caller, word: str, outcome: str, facts: Mapping[str, object]) -> None:
        if self.audit is not None:
            who = caller.user or "anonymous"
            self.audit("manage", who=who, address=caller.address, outcome=outcome, action=word[:20], **facts)


def _require(wanted: Sequence[int], known: type[MachineProperty] | type[QueueProperty]) -> None:
    for each in wanted:
        if each not in known._value2member_map_:
            raise Refusal(Status.ILLEGAL_PROPID, f"there is no property {each}")


def _is_active(queue: Queue) -> bool:
    return bool(queue.count or queue.descriptors)


class _Look:
    """One look at a queue. It opens nothing, so it does not disturb those who have the queue for themselves."""

    def __init__(self, management: Management, queue: Queue) -> None:
        self.management = management
        self.core = management.core
        self.queue = queue
        self.info = self.core.queues.outgoing_info.get(queue)

    def value(self, wanted: QueueProperty) -> PropVariant:
        if QueueProperty.EOD_LAST_ACK <= wanted <= QueueProperty.EOD_RESEND_COUNT:
            return NULL if self.info is None else self._eod(wanted)
        queue, journal = self.queue, self.queue.journal
        match wanted:
            case QueueProperty.PATHNAME:
                path = self._path()
                return NULL if path is None else text(path)
            case QueueProperty.FORMATNAME:
                return text(str(self.core.queues.format_name(queue)))
            case QueueProperty.TYPE:
                return text(self._type())
            case QueueProperty.LOCATION:
                return text("LOCAL" if self.info is None else "REMOTE")
            case QueueProperty.XACT:
                known = "YES" if queue.properties.transactional else "NO"
                return text(known if self.info is None else "UNKNOWN")
            case QueueProperty.FOREIGN:
                return text("NO" if self.info is None and self._type() != "PUBLIC" else "UNKNOWN")
            case QueueProperty.MESSAGE_COUNT:
                return ui4(queue.count)
            case QueueProperty.BYTES_IN_QUEUE:
                return ui4(queue.total_bytes)
            case QueueProperty.JOURNAL_MESSAGE_COUNT:
                return ui4(0 if journal is None else journal.count)
            case QueueProperty.BYTES_IN_JOURNAL:
                return ui4(0 if journal is None else journal.total_bytes)
            case QueueProperty.STATE:
                return text("LOCAL CONNECTION" if self.info is None else self.info.state.value)
            case QueueProperty.NEXTHOPS:
                return self._next_hops()
            case QueueProperty.EOD_SOURCE_INFO:
                return NULL if self.info is not None else self._sources()
            case QueueProperty.CONNECTION_HISTORY:
                return NULL if self.info is None else self._history()
            case QueueProperty.SUBQUEUE_COUNT:
                return ui4(len(queue.subqueues))
            case QueueProperty.SUBQUEUE_NAMES:
                names = [each.properties.path.rpartition(";")[2] for each in queue.subqueues.values()]
                return vector(VarType.LPWSTR, names)
        raise AssertionError(wanted)

    @property
    def _destination(self) -> FormatName | None:
        return None if self.info is None else self.info.destination

    def _path(self) -> str | None:
        """None for an outgoing queue that is named by an identifier: nobody here knows its path."""
        name = self._destination
        if name is None:
            return self.management.path_name(self.queue)
        return str(name.path_name) if isinstance(name, DirectName) else None

    def _type(self) -> str:
        match self._destination:
            case None:
                owner = self.queue.properties.owner
                whole = self.queue if owner is None else self.core.queues.by_number[owner]
                return _TYPES.get(whole.properties.queue_type, "MACHINE")
            case DirectName(tail=tail):
                return _KINDS[tail.kind]
            case PrivateName():
                return "PRIVATE"
            case PublicName():
                return "PUBLIC"
            case ConnectorName():
                return "CONNECTOR"
        return "MULTICAST"

    def _next_hops(self) -> PropVariant:
        info = self.info
        if info is None or info.state not in (OutgoingState.CONNECTED, OutgoingState.WAITING):
            return NULL
        if info.multicast:
            found = [str(info.destination)] if info.state is OutgoingState.CONNECTED else []
        else:
            found = [each for each in map(_address, info.next_hops) if each is not None]
        return vector(VarType.LPWSTR, found) if found else NULL

    def _eod(self, wanted: QueueProperty) -> PropVariant:
        carrier = self.queue.carrier
        transfer = OutgoingTransferInfo() if carrier is None else carrier.transfer(self.queue)
        match wanted:
            case QueueProperty.EOD_LAST_ACK:
                return _sequence(transfer.last_ack)
            case QueueProperty.EOD_LAST_ACK_TIME:
                return i4(transfer.last_ack_time)
            case QueueProperty.EOD_LAST_ACK_COUNT:
                return ui4(transfer.last_ack_count)
            case QueueProperty.EOD_FIRST_NON_ACK:
                return _sequence(transfer.first_non_ack)
            case QueueProperty.EOD_LAST_NON_ACK:
                return _sequence(transfer.last_non_ack)
            case QueueProperty.EOD_NEXT_SEQ:
                sequence, number = self.core.transacting.next_place(self.queue.properties.path)
                used = number > 1 or transfer.last_ack is not None or transfer.no_ack_count
                return sequence_info(sequence.value, number, number - 1) if used else NULL
            case QueueProperty.EOD_NO_READ_COUNT:
                return ui4(self.management.manager.outlook().outgoing(self.queue).awaiting_final_ack)
            case QueueProperty.EOD_NO_ACK_COUNT:
                return ui4(transfer.no_ack_count)
            case QueueProperty.EOD_RESEND_TIME:
                return i4(transfer.resend_time)
            case QueueProperty.EOD_RESEND_INTERVAL:
                return ui4(transfer.resend_interval)
        return ui4(transfer.resend_count)

    def _sources(self) -> PropVariant:
        found = [each for carrier in self.core.queues.carriers for each in carrier.incoming() if self._is_for_it(each)]
        columns: list[tuple[VarType, list[Any]]] = [
            (VarType.LPWSTR, [each.format_name for each in found]),
            (VarType.CLSID, [each.sender for each in found]),
            (VarType.UI8, [each.sequence_id for each in found]),
            (VarType.UI4, [each.number for each in found]),
            (VarType.I4, [each.last_access_s for each in found]),
            (VarType.UI4, [each.rejects for each in found]),
        ]
        return table(columns)

    def _is_for_it(self, transfer: IncomingTransferInfo) -> bool:
        try:
            return self.core.queues.find(transfer.format_name) is self.queue
        except PostroadError:
            return False  # an older version wrote it down

    def _history(self) -> PropVariant:
        assert self.info is not None
        history = self.info.history
        columns: list[tuple[VarType, list[Any]]] = [
            (VarType.UI4, [int(each.status) for each in history]),
            (VarType.I4, [each.time_s for each in history]),
            (VarType.I4, [each.error for each in history]),
            (VarType.LPWSTR, [",".join(each.addresses) for each in history]),
        ]
        return table(columns)


def _sequence(place: SequenceInfo | None) -> PropVariant:
    return NULL if place is None else sequence_info(*place)


def _address(host: str) -> str | None:
    """[MS-MQMQ] 2.3.12.12. None for a host name, for which the property has no form."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return f"{'IP' if address.version == 4 else 'IPv6'}={address}"
