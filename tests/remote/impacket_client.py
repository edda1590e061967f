"""A remote reader that is a process of its own and no part of Postroad: `python -m tests.remote.impacket_client`.

One JSON object a line comes in: {"id", "on": connection, "do": verb, ...}; one goes out: {"id", ...}. Each connection
has a thread, so that a call that blocks keeps no other one waiting. An RPC fault is {"fault": status}.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from typing import Any

from impacket.dcerpc.v5 import epm, rpcrt, transport
from impacket.dcerpc.v5.ndr import NULL
from impacket.dcerpc.v5.rpcrt import DCERPCException, rpc_status_codes
from impacket.uuid import uuidtup_to_bin

from tests.remote import impacket_stubs as stubs

INTERFACES = {"qm2qm": stubs.QM2QM, "qmcomm": stubs.QMCOMM, "remoteread": stubs.REMOTE_READ}
_printing = threading.Lock()
_binding = threading.Lock()


class _JoiningBind(rpcrt.MSRPCBind):  # type: ignore[misc]
    """A bind that asks for an association that exists."""

    association = 0

    def __init__(self, data: Any = None, alignment: int = 0) -> None:
        super().__init__(data, alignment)
        self["assoc_group"] = self.association


rpcrt.MSRPCBind = _JoiningBind


class Connection:
    """Verbs by their names; each returns what goes out."""

    def __init__(self) -> None:
        self.dce: Any = None
        self.contexts: dict[str, bytes] = {}

    def connect(
        self,
        host: str,
        port: int,
        interface: str,
        *,
        ndr64: bool = False,
        user: str = "",
        password: str = "",
        level: int = 0,
        association: int = 0,
    ) -> dict[str, object]:
        """impacket always makes an association of its own; a nonzero one is put into its bind."""
        rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]")
        if user:
            rpc.set_credentials(user, password, "")
        self.dce = rpc.get_dce_rpc()
        if level:
            self.dce.set_auth_level(level)
        self.dce.connect()
        uuid = INTERFACES[interface]
        with _binding:
            _JoiningBind.association = association
            acknowledgment = self.dce.bind(uuid, transfer_syntax=stubs.NDR64 if ndr64 else stubs.NDR)
        return {"association": rpcrt.MSRPCBindAck(acknowledgment.getData())["assoc_group"]}

    def bind_to(self, host: str, port: int, uuid: str, version: str) -> dict[str, object]:
        """Whether any interface of this name can be bound; DCERPCException says why not."""
        self.dce = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]").get_dce_rpc()
        self.dce.connect()
        self.dce.bind(uuidtup_to_bin((uuid, version)))
        return {}

    def map(self, host: str, port: int, interface: str) -> dict[str, object]:
        """Where an endpoint mapper says that the interface is."""
        rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]")
        dce = rpc.get_dce_rpc()
        dce.connect()
        uuid = INTERFACES[interface]
        try:
            return {"binding": epm.hept_map(host, uuid, protocol="ncacn_ip_tcp", dce=dce)}
        finally:
            dce.disconnect()

    def disconnect(self) -> dict[str, object]:
        self.dce.disconnect()
        return {}

    def send_raw(self, data: str) -> dict[str, object]:
        """Octets as they are; what comes back, or nothing where the server hangs up."""
        rpc = self.dce.get_rpc_transport()
        rpc.send(bytes.fromhex(data), forceWriteAndx=0, forceRecv=0)
        try:
            return {"answer": rpc.recv().hex()}
        except Exception as error:
            return {"closed": repr(error)}

    # qmcomm

    def open(self, name: str, access: int = 1, share: int = 0, keep: str = "open") -> dict[str, object]:
        call = stubs.R_QMOpenRemoteQueue()
        format_ = call["pQueueFormat"]
        format_["m_qft"] = 3
        format_["m_SuffixAndFlags"] = 0
        format_["m_reserved"] = 0
        format_["u"]["tag"] = 3
        format_["u"]["m_pDirectID"] = name + "\0"
        call["dwCallingProcessID"] = 0
        call["dwDesiredAccess"] = access
        call["dwShareMode"] = share
        call["pLicGuid"] = bytes(range(16))
        call["dwMQS"] = 0x500
        answer = self._request(call)
        self.contexts[keep] = bytes(answer["pphContext"])
        names = ("pdwContext", "dwpQueue", "phQueue")
        return {"status": answer["Status"], "handles": [answer[name] for name in names]}

    def close_context(self, keep: str = "open") -> dict[str, object]:
        call = stubs.R_QMCloseRemoteQueueContext()
        call["pphContext"] = self.contexts[keep]
        return {"context": bytes(self._request(call)["pphContext"]).hex()}

    def create_cursor(self, handle: int) -> dict[str, object]:
        call = stubs.R_QMCreateRemoteCursor()
        call["ptb1"] = bytes(228)
        call["hQueue"] = handle
        answer = self._request(call)
        return {"status": answer["Status"], "cursor": answer["phCursor"]}

    def rt_port(self, kind: int) -> dict[str, object]:
        call = stubs.R_QMGetRTQMServerPort()
        call["fIP"] = kind
        return {"port": self._request(call)["Port"]}

    def remote_queue_name(self) -> dict[str, object]:
        call = stubs.R_QMGetRemoteQueueName()
        call["pQueue"] = 1
        call["lplpRemoteQueueName"] = NULL
        return {"status": self._request(call)["Status"]}

    # qm2qm

    def open_queue(
        self, queue: int, context: int | None = None, handle: int | None = None, mqs: int = 0, keep: str = "session"
    ) -> dict[str, object]:
        call = stubs.RemoteQMOpenQueue()
        call["pLicGuid"] = bytes(range(16))
        call["dwMQS"] = mqs
        call["hQueue"] = queue if handle is None else handle
        call["pQueue"] = queue
        call["dwpContext"] = queue if context is None else context
        answer = self._request(call)
        self.contexts[keep] = bytes(answer["phContext"])
        return {"status": answer["Status"], "context": self.contexts[keep].hex()}

    def close_queue(self, keep: str = "session", context: str | None = None) -> dict[str, object]:
        call = stubs.RemoteQMCloseQueue()
        call["pphContext"] = self.contexts[keep] if context is None else bytes.fromhex(context)
        answer = self._request(call)
        return {"status": answer["Status"], "context": bytes(answer["pphContext"]).hex()}

    def start(self, keep: str = "read", **fields: int) -> dict[str, object]:
        call = stubs.RemoteQMStartReceive()
        _fill(call["lpRemoteReadDesc"], fields)
        answer = self._request(call)
        return self._read(answer, answer["lpRemoteReadDesc"], keep)

    def start2(self, keep: str = "read", sequential: int = 0, null: bool = False, **fields: int) -> dict[str, object]:
        call = stubs.RemoteQMStartReceive2()
        call["lpRemoteReadDesc2"]["SequentialId"] = sequential
        if null:
            call["lpRemoteReadDesc2"]["pRemoteReadDesc"] = NULL
        else:
            _fill(call["lpRemoteReadDesc2"]["pRemoteReadDesc"], fields)
        return self._read2(self._request(call), keep, null)

    def start2_raw(self, keep: str = "read", **fields: int) -> dict[str, object]:
        """The stub as it came: impacket takes its time to unpack a large one."""
        call = stubs.RemoteQMStartReceive2()
        if self.dce.transfer_syntax == uuidtup_to_bin(stubs.NDR64):
            call.changeTransferSyntax(self.dce.transfer_syntax)
        call["lpRemoteReadDesc2"]["SequentialId"] = 0
        _fill(call["lpRemoteReadDesc2"]["pRemoteReadDesc"], fields)
        self.dce.call(call.opnum, call)
        stub = bytes(self.dce.recv())
        self.contexts[keep] = stub[:20]
        return {"stub": stub.hex()}

    def lookup(self, lookup_id: int, keep: str = "read", null: bool = False, **fields: int) -> dict[str, object]:
        call = stubs.RemoteQMStartReceiveByLookupId()
        call["LookupId"] = lookup_id
        call["lpRemoteReadDesc2"]["SequentialId"] = 0
        if null:
            call["lpRemoteReadDesc2"]["pRemoteReadDesc"] = NULL
        else:
            _fill(call["lpRemoteReadDesc2"]["pRemoteReadDesc"], fields)
        return self._read2(self._request(call), keep, null)

    def end(self, ack: int, keep: str = "read", context: str | None = None) -> dict[str, object]:
        call = stubs.RemoteQMEndReceive()
        call["pphContext"] = self.contexts[keep] if context is None else bytes.fromhex(context)
        call["dwAck"] = ack
        answer = self._request(call)
        return {"status": answer["Status"], "context": bytes(answer["pphContext"]).hex()}

    def cancel(self, handle: int, request_id: int, queue: int | None = None) -> dict[str, object]:
        call = stubs.RemoteQMCancelReceive()
        call["hQueue"] = handle
        call["pQueue"] = handle if queue is None else queue
        call["dwRequestID"] = request_id
        return {"status": self._request(call)["Status"]}

    def close_cursor(self, handle: int, cursor: int) -> dict[str, object]:
        call = stubs.RemoteQMCloseCursor()
        call["hQueue"] = handle
        call["hCursor"] = cursor
        return {"status": self._request(call)["Status"]}

    def purge(self, handle: int) -> dict[str, object]:
        call = stubs.RemoteQMPurgeQueue()
        call["hQueue"] = handle
        return {"status": self._request(call)["Status"]}

    def port(self, kind: int) -> dict[str, object]:
        call = stubs.RemoteQMGetQMQMServerPort()
        call["dwPortType"] = kind
        return {"port": self._request(call)["Port"]}

    def version(self) -> dict[str, object]:
        answer = self._request(stubs.RemoteQmGetVersion())
        return {"version": [answer["pMajor"], answer["pMinor"], answer["pBuildNumber"]]}

    def beyond(self) -> dict[str, object]:
        self._request(stubs.RemoteQMBeyond())
        return {}

    # RemoteRead

    def rr_port(self) -> dict[str, object]:
        return {"port": self._request(stubs.R_GetServerPort())["Port"]}

    def rr_open(
        self, name: str, access: int = 1, share: int = 0, keep: str = "queue", move: bool = False
    ) -> dict[str, object]:
        call = stubs.R_OpenQueueForMove() if move else stubs.R_OpenQueue()
        format_ = call["pQueueFormat"]
        format_["m_qft"] = format_["u"]["tag"] = 8 if ";" in name else 3
        format_["m_SuffixAndFlags"] = 5 if ";" in name else 0
        format_["m_reserved"] = 0
        format_["u"]["m_pDirectSubqueueID" if ";" in name else "m_pDirectID"] = name + "\0"
        call["dwAccess"], call["dwShareMode"] = 4 if move else access, share
        call["pClientId"] = bytes(range(16))
        call["fNonRoutingServer"] = call["fWorkgroup"] = 1
        call["Major"], call["Minor"], call["BuildNumber"] = 6, 1, 7601
        answer = self._request(call)
        self.contexts[keep] = bytes(answer["pphContext"])
        return {"context": self.contexts[keep].hex(), "move": answer["pMoveContext"] if move else 0}

    def rr_keep(self, context: str, keep: str = "queue") -> dict[str, object]:
        """Uses a handle of another connection."""
        self.contexts[keep] = bytes.fromhex(context)
        return {}

    def rr_close(self, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_CloseQueue()
        call["pphContext"] = self.contexts[keep]
        answer = self._request(call)
        return {"status": answer["Status"], "context": bytes(answer["pphContext"]).hex()}

    def rr_cursor(self, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_CreateCursor()
        call["phContext"] = self.contexts[keep]
        answer = self._request(call)
        return {"status": answer["Status"], "cursor": answer["phCursor"]}

    def rr_close_cursor(self, cursor: int, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_CloseCursor()
        call["phContext"], call["hCursor"] = self.contexts[keep], cursor
        return {"status": self._request(call)["Status"]}

    def rr_purge(self, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_PurgeQueue()
        call["phContext"] = self.contexts[keep]
        return {"status": self._request(call)["Status"]}

    def rr_start(
        self,
        action: int,
        request: int,
        keep: str = "queue",
        timeout: int = 0,
        cursor: int = 0,
        lookup: int = 0,
        body: int = 0xFFFFFFFF,
    ) -> dict[str, object]:
        call = stubs.R_StartReceive()
        call["phContext"] = self.contexts[keep]
        call["LookupId"], call["hCursor"], call["ulAction"] = lookup, cursor, action
        call["ulTimeout"], call["dwRequestId"], call["dwMaxBodySize"] = timeout, request, body
        call["dwMaxCompoundMessageSize"] = 0
        answer = self._request(call)
        count = answer["pdwNumberOfSections"]
        sections = [
            (
                each["SectionBufferType"],
                each["SectionSizeAlloc"],
                each["SectionSize"],
                b"".join(each["pSectionBuffer"]).hex(),
            )
            for each in (answer["ppPacketSections"] if count else ())
        ]
        return {
            "status": answer["Status"],
            "arrived": answer["pdwArriveTime"],
            "sequence": answer["pSequenceId"],
            "sections": sections,
        }

    def rr_cancel(self, request: int, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_CancelReceive()
        call["phContext"], call["dwRequestId"] = self.contexts[keep], request
        return {"status": self._request(call)["Status"]}

    def rr_end(self, ack: int, request: int, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_EndReceive()
        call["phContext"], call["dwAck"], call["dwRequestId"] = self.contexts[keep], ack, request
        return {"status": self._request(call)["Status"]}

    def rr_move(self, target: int, lookup: int, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_MoveMessage()
        call["phContextFrom"], call["ullContextTo"], call["LookupId"] = self.contexts[keep], target, lookup
        call["pTransactionId"] = bytes(16)
        return {"status": self._request(call)["Status"]}

    def rr_class(self, lookup: int, number: int, keep: str = "queue") -> dict[str, object]:
        call = stubs.R_SetUserAcknowledgementClass()
        call["phContext"], call["LookupId"], call["usClass"] = self.contexts[keep], lookup, number
        return {"status": self._request(call)["Status"]}

    def _request(self, call: Any) -> Any:
        return self.dce.request(call, checkError=False)

    def _read2(self, answer: Any, keep: str, null: bool) -> dict[str, object]:
        desc2 = answer["lpRemoteReadDesc2"]
        if null:
            return {"status": answer["Status"]}
        return {**self._read(answer, desc2["pRemoteReadDesc"], keep), "sequential": desc2["SequentialId"]}

    def _read(self, answer: Any, desc: Any, keep: str) -> dict[str, object]:
        context = bytes(answer["pphContext"])
        self.contexts[keep] = context
        size = desc["dwSize"]
        packet = b"".join(desc["lpBuffer"]) if size else b""
        return {
            "status": answer["Status"],
            "context": context.hex(),
            "size": size,
            "arrived": desc["dwArriveTime"],
            "packet": packet.hex(),
        }


_FIELDS = {
    "queue_handle": "hRemoteQueue",
    "cursor": "hCursor",
    "action": "ulAction",
    "timeout": "ulTimeout",
    "size": "dwSize",
    "queue": "dwQueue",
    "request_id": "dwRequestID",
    "reserved": "Reserved",
    "arrive_time": "dwArriveTime",
    "ack_nack": "eAckNack",
}


def _fill(desc: Any, fields: dict[str, int]) -> None:
    for name, member in _FIELDS.items():
        desc[member] = fields.get(name, 0)
    desc["lpBuffer"] = NULL


_STATUSES = {text: status for status, text in rpc_status_codes.items()}


def _fault_status(text: str) -> int | None:
    """The status of a fault, out of impacket's words for it; None where it is about something else."""
    if text in _STATUSES:
        return int(_STATUSES[text])
    number = text.rpartition("fault status code: ")[2]
    return int(number, 16) if re.fullmatch("[0-9a-f]{8}", number) else None


def _serve(connection: Connection, work: queue.Queue[dict[str, Any]]) -> None:
    while True:
        line = work.get()
        identifier, verb = line.pop("id"), line.pop("do")
        line.pop("on")
        try:
            answer = getattr(connection, verb)(**line)
        except DCERPCException as error:
            answer = {"fault": _fault_status(str(error)), "text": str(error)}
        except Exception as error:
            answer = {"error": repr(error)}
        with _printing:
            print(json.dumps({"id": identifier, **answer}), flush=True)


def main() -> None:
    workers: dict[str, queue.Queue[dict[str, Any]]] = {}
    for text in sys.stdin:
        line = json.loads(text)
        name = line["on"]
        if name not in workers:
            workers[name] = queue.Queue()
            threading.Thread(target=_serve, args=(Connection(), workers[name]), daemon=True).start()
        workers[name].put(line)


if __name__ == "__main__":
    main()
