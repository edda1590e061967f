"""A server's answers for a client: HRESULTs become exceptions with a text, buffers become messages."""

from __future__ import annotations

from typing import Any

from postroad.errors import PostroadError, RpcFault, Status, rebuild_error
from postroad.received import ReceivedMessage
from postroad.remote_read.values import is_failure
from postroad.rpc.interface import Operation
from postroad.store.interface import PRIORITY_SHIFT

HIGHEST_PRIORITY = 7
FACILITY_MQ = 0x0E  # the facility of an HRESULT that is raised as a fault


def told_by_fault(fault: RpcFault, operation: Operation[Any, Any]) -> PostroadError:
    """Some methods raise their HRESULT as an exception, which arrives as a fault with that status."""
    if is_failure(fault.fault_status) and fault.fault_status >> 16 & 0xFF == FACILITY_MQ:
        return error_of(fault.fault_status, operation.name)
    return fault


def check(status: int, what: str) -> None:
    if status != Status.OK:
        raise error_of(status, what)


def error_of(status: int, what: str) -> PostroadError:
    """The exception for an HRESULT. All failures are treated alike; the code is for people."""
    if status == Status.STATUS_SHARING_VIOLATION:  # [MS-MQMP] 3.1.4.2: only when opening; means the same as the HRESULT
        status = Status.SHARING_VIOLATION
    words = WORDS.get(status, f"the server answered 0x{status:08X}")
    return rebuild_error("", status, f"{what}: {words}", {})


WORDS: dict[int, str] = {
    Status.INFORMATION_REMOTE_CANCELED_BY_CLIENT: "the read was cancelled",
    Status.QUEUE_NOT_FOUND: "there is no such queue on the server",
    Status.SHARING_VIOLATION: "another reader has the queue open and does not share it",
    Status.ACCESS_DENIED: "the server denies access",
    Status.IO_TIMEOUT: "no message came in time",
    Status.MESSAGE_NOT_FOUND: "there is no such message",
    Status.MESSAGE_ALREADY_RECEIVED: "another reader has received the message",
    Status.ILLEGAL_CURSOR_ACTION: "the cursor is new: peek the current message first, then the next",
    Status.QUEUE_NOT_AVAILABLE: "the queue was deleted while it was open",
    Status.OPERATION_CANCELLED: "the queue was closed or deleted meanwhile",
    Status.TRANSACTION_SEQUENCE: "the receive of this message has already ended",
    Status.INVALID_HANDLE: "the server does not know the handle",
    Status.UNSUPPORTED_FORMATNAME_OPERATION: "this kind of name is only for sending, not for reading",
}


def message_of(packet: bytes, sequential_id: int, arrive_time: int) -> ReceivedMessage:
    """The message of a UserMessage packet. The answer lacks the top octet of the lookup identifier, which follows from
    the priority; an old server gives no identifier at all."""
    message = ReceivedMessage(packet, 0, arrive_time * 1000)
    view = message.view  # which checks the packet
    if sequential_id:
        rank = HIGHEST_PRIORITY - (0 if view.transactional else view.priority)
        message.lookup_id = rank << PRIORITY_SHIFT | sequential_id
    return message
