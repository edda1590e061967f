"""Which messages may move into a queue without being sent."""

from __future__ import annotations

from postroad.errors import AccessDenied, TransactionUsage, UnsupportedFormatNameOperation
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.wire.view import MessageView


def check_movable(target: Queue) -> None:
    if target.is_outgoing:
        raise UnsupportedFormatNameOperation(
            f"messages move within a queue manager, and {target.name} is another one's: send them anew"
        )
    if target.properties.queue_type is QueueType.JOURNAL or target.is_internal:
        raise AccessDenied(f"messages cannot be moved to {target.name}")


def check_kind(target: Queue, view: MessageView) -> None:
    """A queue for applications holds transactional messages or others, never both."""
    properties = target.properties
    if (
        properties.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC, QueueType.SUBQUEUE)
        and properties.transactional != view.transactional
    ):
        kind, other = ("transactional", "is not") if properties.transactional else ("not transactional", "is")
        raise TransactionUsage(f"the queue {target.name} is {kind} and the message {other}")
