"""Dead letters: in groups by reason and destination, and sent again.

A letter leaves the dead-letter queue once its new message is durable. If the console stops in between, the letter is
there and its message is sent: the same could be sent twice, but nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.console.client import ManagerClient
from postroad.console.jobs import Job
from postroad.console.search import Row, row, scan
from postroad.errors import MessageAlreadyReceived, MessageNotFound, PostroadError
from postroad.message import Message
from postroad.received import ReceivedMessage
from postroad.values.reading import SeekAction
from postroad.values.trace import class_words

SAMPLES = 3
MAX_ERRORS = 20


@dataclass(slots=True)
class Group:
    """Letters of one queue that died for one reason on their way to one destination."""

    queue: str
    reason: str
    words: str
    destination: str
    count: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    samples: list[Row] = field(default_factory=list)


def group_key(message: ReceivedMessage) -> tuple[str, str]:
    """The reason and the destination."""
    return message.class_name, message.destination_queue or ""


async def count_groups(client: ManagerClient, job: Job, queue: str, groups: dict[tuple[str, str, str], Group]) -> None:
    """Adds the groups of one dead-letter queue while it reads; `groups` can be shown meanwhile."""
    inner = Job("count", "", job.manager, queue)
    try:
        await scan(client, inner, lambda message: True, lambda message: _count(groups, queue, message, job))
    finally:
        job.total = (job.total or 0) + inner.done


def _count(groups: dict[tuple[str, str, str], Group], queue: str, message: ReceivedMessage, job: Job) -> None:
    job.done += 1
    try:
        reason, destination = group_key(message)
        words = class_words(message.message_class)
    except PostroadError:
        reason, destination, words = "damaged", "", "it cannot be decoded"
    group = groups.setdefault((queue, reason, destination), Group(queue, reason, words, destination))
    group.count += 1
    group.bytes += len(message.packet)
    group.oldest_ms = min(group.oldest_ms or message.arrived_ms, message.arrived_ms)
    group.newest_ms = max(group.newest_ms, message.arrived_ms)
    if len(group.samples) < SAMPLES:
        group.samples.append(row(message))


def again(message: ReceivedMessage) -> Message:
    """The same message, with a new id and its full time again."""
    view = message.view
    return Message(
        message.body,
        label=message.label,
        priority=message.priority,
        recoverable=message.delivery != "express",
        body_type=message.body_type,
        app_tag=message.app_tag,
        correlation_id=message.correlation_id,
        response_queue=message.response_queue,
        admin_queue=message.admin_queue,
        ack=view.ack_flags,
        dead_letter=True,
        extension=message.extension,
    )


async def send_again(client: ManagerClient, message: ReceivedMessage, to: str) -> None:
    if message.delivery == "transactional":
        await client.send_transactional(to, [again(message)])
    else:
        await client.send(to, [again(message)], None)


async def resend_group(client: ManagerClient, job: Job, reason: str, destination: str, to: str, dry_run: bool) -> None:
    """Only letters that are there at the start: those that die again are not sent in circles."""
    chosen: list[int] = []
    counted = Job("count", "", job.manager, job.queue)

    def choose(message: ReceivedMessage) -> None:
        chosen.append(message.lookup_id)
        if dry_run:
            job.add(row(message))
        job.done = counted.done

    await scan(client, counted, lambda message: group_key(message) == (reason, destination), choose)
    job.total = len(chosen)
    job.done = len(chosen) if dry_run else 0
    if dry_run:
        return
    for lookup_id in chosen:
        job.done += 1
        try:
            message = await client.lookup(job.queue, lookup_id, SeekAction.CURRENT, False, None)
            await send_again(client, message, to or destination)
            await client.lookup(job.queue, lookup_id, SeekAction.CURRENT, True, None)
        except (MessageNotFound, MessageAlreadyReceived):
            continue  # an operator was faster
        except PostroadError as error:
            if len(job.errors) < MAX_ERRORS:
                job.errors.append(f"{lookup_id}: {error}")
        else:
            job.add(row(message))


def sorted_groups(groups: dict[tuple[str, str, str], Group]) -> list[Group]:
    return sorted(groups.values(), key=lambda group: -group.count)
