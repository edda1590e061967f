"""Messages that NServiceBus gave up and put into its error queue: why, and what a retry sends where.

Commands, the console and the manager follow these rules. Nothing here reads a queue or sends a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address

from postroad.bodies import failure_of, read_headers, write_headers
from postroad.describe.received import ReceivedMessage, new_message
from postroad.errors import InvalidArgument, PostroadError
from postroad.message import Message
from postroad.names import parse_name

FAILED_QUEUE = "NServiceBus.FailedQ"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
ERROR_QUEUE = r"private$\error"  # what NServiceBus calls its error queue unless it is told otherwise
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S:%f Z"
# What NServiceBus adds when it gives a message up, and ServiceControl when it has sent one again. A retry counts its
# attempts from the start, as ServiceControl's do.
_OF_FAILURE = (
    FAILED_QUEUE,
    TIME_OF_FAILURE,
    "NServiceBus.ExceptionInfo.",
    "NServiceBus.Retries",
    "NServiceBus.FLRetries",
    "NServiceBus.DelayedRetries",
    "ServiceControl.",
)


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """Why a message failed, and the format name of the queue where that was."""

    destination: str
    exception: str | None
    text: str | None  # of the exception
    message_type: str | None
    failed_at: datetime | None

    @property
    def key(self) -> tuple[str | None, str | None, str]:
        """Messages with the same key are of one group."""
        return self.exception, self.message_type, self.destination.lower()

    def matches(self, exception: str | None = None, message_type: str | None = None) -> bool:
        """Whether the exception and the type are these: whole names, or names without their namespace, in any case."""
        return _is_named(self.exception, exception) and _is_named(self.message_type, message_type)


@dataclass(frozen=True, slots=True)
class FailedGroup:
    """Messages that failed alike. `text` is that of the exception which came last."""

    destination: str
    exception: str | None
    message_type: str | None
    messages: int
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    text: str | None


def failed_message(message: ReceivedMessage) -> FailedMessage:
    """Raises InvalidArgument if the message does not say where it failed."""
    headers = read_headers(message.extension, message.app_tag).names
    named = headers.get(FAILED_QUEUE)
    if not named:
        raise InvalidArgument(f"the message has no header {FAILED_QUEUE}, which names the queue where it failed")
    failure = failure_of(headers)
    return FailedMessage(
        destination=_format_name(named),
        exception=failure.exception if failure else None,
        text=failure.message if failure else None,
        message_type=message.message_type,
        failed_at=_time(headers.get(TIME_OF_FAILURE, "")),
    )


def retry(message: ReceivedMessage, ttbr: int | None = None) -> Message:
    """The message to send again: as `new_message`, without the headers of its failure."""
    headers = read_headers(message.extension).names  # without the application tag, which stays what it is
    return replace(new_message(message, ttbr), extension=write_headers(without_failure(headers)))


def without_failure(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.startswith(_OF_FAILURE)}


def failed_groups(messages: Iterable[FailedMessage]) -> list[FailedGroup]:
    """Messages by exception, type and destination, the largest group first."""
    groups: dict[tuple[str | None, str | None, str], FailedGroup] = {}
    for each in messages:
        groups[each.key] = joined(groups.get(each.key), each)
    return sorted(groups.values(), key=lambda group: -group.messages)


def joined(group: FailedGroup | None, message: FailedMessage) -> FailedGroup:
    """The group with one message more, or the first group of it."""
    first = last = message.failed_at
    count, text = 1, message.text
    if group is not None:
        times = [each for each in (group.first_failed_at, group.last_failed_at, last) if each is not None]
        if last is None or (group.last_failed_at is not None and last < group.last_failed_at):
            text = group.text
        count, first, last = group.messages + 1, min(times, default=None), max(times, default=None)
    return FailedGroup(message.destination, message.exception, message.message_type, count, first, last, text)


def _format_name(address: str) -> str:
    r"""`orders@SRV1`, as NServiceBus names queues of MSMQ, is `DIRECT=OS:SRV1\private$\orders`."""
    queue, _, machine = (part.strip() for part in address.partition("@"))
    if "@" in machine:
        raise InvalidArgument(f"{FAILED_QUEUE}: must be queue@machine, got {address[:200]!r}")
    if machine in ("", "."):
        name = rf".\private$\{queue}"
    else:
        name = rf"DIRECT={'TCP' if _is_address(machine) else 'OS'}:{machine}\private$\{queue}"
    try:
        parse_name(name)
    except PostroadError as fault:
        raise InvalidArgument(f"{FAILED_QUEUE}: must be queue@machine, got {address[:200]!r}: {fault}") from None
    return name


def _is_address(machine: str) -> bool:
    try:
        ip_address(machine)
    except ValueError:
        return False
    return True


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _is_named(name: str | None, wanted: str | None) -> bool:
    if wanted is None:
        return True
    name, wanted = (name or "").lower(), wanted.lower()
    return name == wanted or name.endswith((f".{wanted}", f"+{wanted}"))
