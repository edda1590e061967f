"""Every queue that somebody can name, as lists, the status and the metrics tell of them."""

from __future__ import annotations

from postroad.manager import Manager
from postroad.queues.info import QueueInfo, describe_queue
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue


def all_queues(manager: Manager) -> list[QueueInfo]:
    queues = manager.core.queues
    return [describe_queue(queues, each, manager.store.damaged) for each in queues if not _is_nameless(manager, each)]


def _is_nameless(manager: Manager, queue: Queue) -> bool:
    """No format name can say "the journal of system$;journal", [MS-MQMQ] 2.1.6, and nothing is ever put there."""
    owner = manager.core.queues.by_number.get(queue.properties.owner or 0)
    return (
        queue.properties.queue_type is QueueType.JOURNAL
        and owner is not None
        and owner.properties.queue_type is QueueType.SYSTEM
    )
