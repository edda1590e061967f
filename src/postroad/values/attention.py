"""What needs an operator's attention, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postroad.values.info import ManagerInfo, QueueInfo

LOW_DISK_BYTES = 1 << 30  # free, if it is also less than one part in LOW_DISK_SHARE
LOW_DISK_SHARE = 20
MOST_NAMED = 20  # stuck queues in the list: those whose messages wait longest


def attention(info: ManagerInfo, queues: Sequence[QueueInfo]) -> Iterator[str]:
    """One sentence each, the most urgent first."""
    if info.storage_error is not None:
        yield f"the store cannot be written: {info.storage_error}"
    free, total = info.disk.get("free", 0), info.disk.get("total", 0)
    if free < LOW_DISK_BYTES and free * LOW_DISK_SHARE < total:
        yield f"the disk is nearly full: {free >> 20} MiB of {total >> 20} MiB are free"
    for task in info.down:
        yield f"the background task {task}"
    if info.directory_error is not None:
        yield f"the directory's file cannot be loaded, and an earlier copy is used: {info.directory_error}"
    if info.damaged:
        yield f"{info.damaged} stored records have a wrong checksum; see the log"
    for name, limit in info.limits.items():
        if limit["reached"]:
            yield f"the limit {name} of {limit['maximum']} was reached {limit['reached']} times"
    stuck = sorted((queue for queue in queues if queue.stuck), key=lambda queue: queue.oldest_arrived_ms or 0)
    for queue in stuck[:MOST_NAMED]:
        count = "1 message waits" if queue.messages == 1 else f"{queue.messages} messages wait"
        yield f"{count} for {queue.path}: {queue.why}"
    if rest := stuck[MOST_NAMED:]:
        yield f"{len(rest)} more outgoing queues are stuck, with {sum(queue.messages for queue in rest)} messages"
    for queue in queues:
        if queue.nearly_full:
            yield f"{queue.path} is nearly full: {queue.bytes} of {(queue.quota_kb or 0) * 1024} bytes"
    if info.journal_overflows:
        copies = "1 copy" if info.journal_overflows == 1 else f"{info.journal_overflows} copies"
        yield f"{copies} dropped, because a journal or dead-letter queue is full: {', '.join(info.overflowed)}"
    if info.follow_up_errors:
        yield f"{info.follow_up_errors} acknowledgments or copies could not be made; see the log"
