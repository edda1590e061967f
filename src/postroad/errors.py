"""Every error that Postroad raises, with its status code. The type says who is at fault: we, the caller or a peer.

Nothing here knows HTTP or exit codes. The API and the commands translate these errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import ClassVar


class Status(IntEnum):
    """The HRESULT values of [MS-MQMQ] 2.4, and a few from related specifications."""

    OK = 0x00000000
    INFORMATION_OPERATION_PENDING = 0x400E0006
    INFORMATION_REMOTE_CANCELED_BY_CLIENT = 0x400E03E9  # [MS-MQQP]
    ERROR = 0xC00E0001
    QUEUE_NOT_FOUND = 0xC00E0003
    QUEUE_EXISTS = 0xC00E0005
    INVALID_PARAMETER = 0xC00E0006
    INVALID_HANDLE = 0xC00E0007
    OPERATION_CANCELLED = 0xC00E0008
    SHARING_VIOLATION = 0xC00E0009
    NO_DS = 0xC00E0013
    ILLEGAL_QUEUE_PATHNAME = 0xC00E0014
    PROPERTY = 0xC00E0019
    BUFFER_OVERFLOW = 0xC00E001A
    IO_TIMEOUT = 0xC00E001B
    ILLEGAL_CURSOR_ACTION = 0xC00E001C
    MESSAGE_ALREADY_RECEIVED = 0xC00E001D
    ILLEGAL_FORMATNAME = 0xC00E001E
    UNSUPPORTED_FORMATNAME_OPERATION = 0xC00E0020
    ACCESS_DENIED = 0xC00E0025
    INSUFFICIENT_RESOURCES = 0xC00E0027
    ILLEGAL_PROPID = 0xC00E0039
    UNSUPPORTED_ACCESS_MODE = 0xC00E0045
    QUEUE_NOT_AVAILABLE = 0xC00E004B
    TRANSACTION_USAGE = 0xC00E0050
    TRANSACTION_SEQUENCE = 0xC00E0051
    STALE_HANDLE = 0xC00E0056
    QUEUE_DELETED = 0xC00E005A
    ILLEGAL_OPERATION = 0xC00E0064  # [MS-MQMP]
    REMOTE_MACHINE_NOT_AVAILABLE = 0xC00E0069
    MESSAGE_NOT_FOUND = 0xC00E0088
    MESSAGE_NOT_AUTHENTICATED = 0xC00E009B
    MESSAGE_LOCKED_UNDER_TRANSACTION = 0xC00E009C
    STATUS_INVALID_HANDLE = 0xC0000008  # [MS-MQRR]
    STATUS_INVALID_PARAMETER = 0xC000000D  # [MS-MQQP]
    STATUS_ACCESS_DENIED = 0xC0000022  # [MS-MQRR]
    STATUS_SHARING_VIOLATION = 0xC0000043  # [MS-MQMP] 3.1.4.2
    STATUS_NOT_FOUND = 0xC0000225  # [MS-MQDMPR]


CUSTOMER_BIT = 0x20000000  # [MS-MQMQ] 1.7: set in every code that a vendor defines


class VendorStatus(IntEnum):
    """Our own HRESULTs. The customer bit separates them from Microsoft's."""

    STORAGE = 0xE00E0001
    CONFIGURATION = 0xE00E0002
    ENCRYPTION = 0xE00E0003
    SIGNING = 0xE00E0004


class PostroadError(Exception):
    """The base class of our errors. `status` is the HRESULT that a Windows caller would see."""

    status: ClassVar[IntEnum] = Status.ERROR


class LocalProtocolError(PostroadError):
    """The caller of this library asked for something that the protocol cannot express."""

    status = Status.INVALID_PARAMETER


class RemoteProtocolError(PostroadError):
    """A peer sent bytes that the protocol forbids. Only the session with that peer ends.

    `offset` is the position of the fault in the packet or stream. None if there is no single position.
    """

    def __init__(self, fault: str, offset: int | None = None) -> None:
        self.fault = fault
        self.offset = offset
        super().__init__(fault if offset is None else f"at byte {offset}: {fault}")

    def shifted(self, by: int) -> RemoteProtocolError:
        """The same fault, with its offset counted from a position `by` bytes earlier."""
        return RemoteProtocolError(self.fault, by + (self.offset or 0))


class MalformedSoap(RemoteProtocolError):
    """A SOAP request violates [MC-MQSRM] 2.2. `place` is the faulty element or part, such as `path/to`."""

    _MOST_CHARACTERS: ClassVar[int] = 300  # the text quotes input, which can be long

    def __init__(self, place: str, fault: str) -> None:
        sentence = f"{place}: {fault}"
        most = self._MOST_CHARACTERS
        super().__init__(sentence if len(sentence) <= most else f"{sentence[: most - 3]}...")
        self.place = place


class IllegalName(PostroadError):
    """A queue name that violates the grammar. The text says what is wrong and at which character."""

    def __init__(self, name: str, position: int, fault: str) -> None:
        self.name = name
        self.position = position
        self.fault = fault
        super().__init__(f"{name!r}, character {position + 1}: {fault}")


class IllegalFormatName(IllegalName):
    """[MS-MQMQ] 2.1.2 to 2.1.7"""

    status = Status.ILLEGAL_FORMATNAME


class IllegalPathName(IllegalName):
    """[MS-MQMQ] 2.1.1"""

    status = Status.ILLEGAL_QUEUE_PATHNAME


class IllegalIdentifier(IllegalName):
    """Text that is not a valid GUID or message id."""

    status = Status.INVALID_PARAMETER


class IllegalQueueFormat(PostroadError):
    """A QUEUE_FORMAT that violates [MS-MQMQ] 2.2.7, or a name that a QUEUE_FORMAT cannot hold."""

    status = Status.ILLEGAL_FORMATNAME


class IllegalExpression(IllegalName):
    """A message filter that cannot be parsed. The text says what is wrong and at which character."""

    status = Status.INVALID_PARAMETER


class PipelineError(PostroadError):
    """A Spark pipeline, route or replay command failed. Nothing was changed."""


class ConfigurationError(PostroadError):
    """A configuration file is wrong: the file, the key (dotted, as in `listen.binary`) and the fault."""

    status = VendorStatus.CONFIGURATION

    def __init__(self, file: str, key: str, fault: str) -> None:
        self.file = file
        self.key = key
        self.fault = fault
        super().__init__(": ".join(part for part in (file, key, fault) if part))


class DirectoryError(PostroadError):
    """The directory cannot be read, or its objects contradict each other."""

    status = Status.NO_DS


class LdapFault(Enum):
    """Why a domain controller could not be used, or why it refused."""

    LIBRARY_MISSING = "library missing"
    NAME_NOT_FOUND = "name not found"
    NO_ANSWER = "no answer"
    TLS = "TLS failed"
    CERTIFICATE_UNTRUSTED = "certificate untrusted"
    CERTIFICATE_EXPIRED = "certificate expired"
    CERTIFICATE_OTHER_HOST = "certificate of another host"
    STRONG_AUTHENTICATION = "strong authentication required"
    WRONG_PASSWORD = "wrong password"
    ACCOUNT = "account cannot log in"
    NO_TICKET = "no ticket"
    TICKET_EXPIRED = "ticket expired"
    CLOCK_SKEW = "clock skew"
    SERVICE_UNKNOWN = "service unknown"
    NO_PERMISSION = "no permission"
    NOT_FOUND = "not found"
    EXISTS = "exists"
    SIZE_LIMIT = "size limit"
    REFUSED = "refused"
    BAD_ANSWER = "bad answer"


class LdapError(DirectoryError):
    """A domain controller could not be used, or refused a request. `fault` tells the causes apart, and `code` is the
    LDAP result code, if the controller gave one."""

    def __init__(self, fault: LdapFault, sentence: str, code: int | None = None) -> None:
        self.fault = fault
        self.code = code
        super().__init__(sentence)


class WrongIdentity(DirectoryError):
    """The directory knows this computer's queue manager by another id than the data directory has."""


class ManagerNotFound(PostroadError):
    """The directory has no queue manager with this name."""


class NoRoute(PostroadError):
    """[MS-MQBR] 3.1.5.1: a routing attempt failed. The text names the rule that found no next hop."""


class StorageError(PostroadError):
    """The store could not complete an operation: the disk is full, read-only or damaged. Nothing was changed."""

    status = VendorStatus.STORAGE


class LeaseLost(StorageError):
    """Another process has taken the store over, so this one may store and answer nothing more."""


class CorruptRecord(StorageError):
    """The checksum of one stored record is wrong. The rest of its queue stays readable."""


class InvalidMessage(PostroadError):
    """A message property has a value that a packet cannot hold. The text starts with the property's name."""

    status = Status.INVALID_PARAMETER


class UnreadableBody(PostroadError):
    """The body of a message is not text, or not JSON, as its reader asked for."""

    status = Status.INVALID_PARAMETER


class InvalidArgument(PostroadError):
    """An argument of a call is invalid. The text starts with the argument's name."""

    status = Status.INVALID_PARAMETER


class MessageTooLarge(PostroadError):
    """The packet would be larger than 4 MiB. Windows returns the same code."""

    status = Status.INSUFFICIENT_RESOURCES


class QuotaExceeded(PostroadError):
    """A size limit was reached. The text names the limit, its use, and the setting that raises it."""

    status = Status.INSUFFICIENT_RESOURCES

    def __init__(self, what: str, limit_bytes: int, current_bytes: int, needed_bytes: int, setting: str) -> None:
        self.limit_bytes = limit_bytes
        self.current_bytes = current_bytes
        self.setting = setting
        super().__init__(
            f"{what} is full: {current_bytes} of {limit_bytes} bytes are used and {needed_bytes} more are needed; "
            f"receive or purge messages, or raise {setting}"
        )


class LimitReached(QuotaExceeded):
    """A limit that does not count bytes was reached."""

    def __init__(self, sentence: str, setting: str) -> None:
        self.limit_bytes = self.current_bytes = 0
        self.setting = setting
        Exception.__init__(self, sentence)


class TooManyHeld(LimitReached):
    """One owner holds as much as one may. The call succeeds once the owner has released some of it."""


class DiskFull(LimitReached):
    """The disk has no space for another message. Stored messages can still be received."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault, "the disk's free space")


class QueueNotFound(PostroadError):
    status = Status.QUEUE_NOT_FOUND


class QueueExists(PostroadError):
    status = Status.QUEUE_EXISTS


class QueueNotAvailable(PostroadError):
    """The queue was deleted while it was open."""

    status = Status.QUEUE_NOT_AVAILABLE


class InvalidHandle(PostroadError):
    status = Status.INVALID_HANDLE


class OperationCancelled(PostroadError):
    status = Status.OPERATION_CANCELLED


class RemoteCancelled(OperationCancelled):
    """[MS-MQQP] 3.1.4.6: a remote reader cancelled its pending read. This is not a failure, so the severity bit is
    clear."""

    status = Status.INFORMATION_REMOTE_CANCELED_BY_CLIENT


class SharingViolation(PostroadError):
    status = Status.SHARING_VIOLATION


class AccessDenied(PostroadError):
    status = Status.ACCESS_DENIED


class UnsupportedAccessMode(PostroadError):
    status = Status.UNSUPPORTED_ACCESS_MODE


class UnsupportedFormatNameOperation(PostroadError):
    status = Status.UNSUPPORTED_FORMATNAME_OPERATION


class NoMessage(PostroadError):
    """No message arrived in the queue within the time-out."""

    status = Status.IO_TIMEOUT

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(f"no message came to {queue} within the time to wait")


class MessageNotFound(PostroadError):
    status = Status.MESSAGE_NOT_FOUND


class MessageAlreadyReceived(PostroadError):
    status = Status.MESSAGE_ALREADY_RECEIVED


class IllegalCursorAction(PostroadError):
    status = Status.ILLEGAL_CURSOR_ACTION


class TransactionUsage(PostroadError):
    """A transactional queue was used without a transaction, or another queue with one."""

    status = Status.TRANSACTION_USAGE


class TransactionSequence(PostroadError):
    """The transaction does not exist or has ended, or the steps of a read came in the wrong order."""

    status = Status.TRANSACTION_SEQUENCE


class LeaseEnded(TransactionSequence):
    """A client lost its locks, because it was silent for too long or an operator released them.

    Another client may process the same messages.
    """


class NotAuthenticated(PostroadError):
    status = Status.MESSAGE_NOT_AUTHENTICATED


class NotEncrypted(PostroadError):
    """A message could not be encrypted, or its queue requires another kind of body. It was not sent."""

    status = VendorStatus.ENCRYPTION


class CannotSign(PostroadError):
    """A message could not be signed: its key, its certificate or its destinations do not allow it. It was not sent."""

    status = VendorStatus.SIGNING


class RpcFault(PostroadError):
    """A call ended with a fault instead of a reply. `fault_status` is the status in the fault, [MS-RPCE] 3.1.1.5.5.

    A server's handler raises this to answer with that fault.
    """

    def __init__(self, fault_status: int, fault: str = "") -> None:
        self.fault_status = fault_status
        super().__init__(f"the call failed with 0x{fault_status:08X}" + (f": {fault}" if fault else ""))


class RpcUnavailable(PostroadError):
    """An RPC server cannot be reached, refused the bind, or closed the connection during a call."""

    status = Status.REMOTE_MACHINE_NOT_AVAILABLE


class InterfaceNotOffered(RpcUnavailable):
    """An RPC server, or its endpoint mapper, does not have the interface."""


class BindRefused(RpcUnavailable):
    """An RPC server refused the bind: it does not support the interface or the authentication method."""


class AuthenticationFailed(PostroadError):
    """A peer failed to authenticate, or a protected PDU was changed on its way. `who` is the peer's own name."""

    status = Status.ACCESS_DENIED

    def __init__(self, text: str, *, who: str | None = None) -> None:
        super().__init__(text)
        self.who = who


class ManagerUnavailable(PostroadError):
    """No queue manager answers at an address. The text says what happened and what to check."""

    status = Status.REMOTE_MACHINE_NOT_AVAILABLE

    def __init__(self, url: str, fault: str, *, asked: bool = False) -> None:
        self.url = url
        self.fault = fault
        self.asked = asked  # whether the request may have reached it
        super().__init__(
            f"no queue manager answers at {url}: {fault}; check that it runs, that `api` in its [listen] section is "
            "this port, and that no firewall blocks the port"
        )


class SparkUnavailable(PostroadError):
    """Spark cannot start. The text says what is missing and how to install it."""


class MessagesGone(PostroadError):
    """A stream found fewer messages than have arrived: others received them, or they were purged or have expired."""

    status = Status.MESSAGE_ALREADY_RECEIVED


def rebuild_error(name: str, status: int, sentence: str, members: Mapping[str, object]) -> PostroadError:
    """Rebuilds an error that another process raised. Its class is found by name, or else by status."""
    named = globals().get(name)
    if isinstance(named, type) and issubclass(named, PostroadError):
        kind: type[PostroadError] = named
    else:
        kind = _CLASSES.get(status, PostroadError)
    error = kind.__new__(kind)  # skips __init__, because the text is already complete
    Exception.__init__(error, sentence)
    vars(error).update(members)
    return error


# if several classes have the same status, the first one is used
_CLASSES: dict[int, type[PostroadError]] = {
    kind.status: kind
    for kind in reversed([each for each in globals().values() if isinstance(each, type)])
    if issubclass(kind, PostroadError) and "status" in vars(kind)
}


class ManagerFull(PostroadError):
    """A peer's message exceeds the manager's quota. The session ends without an answer, so the peer keeps the
    message."""

    status = Status.INSUFFICIENT_RESOURCES
