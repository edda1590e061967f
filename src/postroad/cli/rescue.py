"""`postroad move`, `export`, `import` and `resend`: moves messages between queues and files, and sends them again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO
from urllib.parse import quote

import typer

from postroad.cli.administration import report_locked
from postroad.cli.context import MAX_LOOKUP_ID, Context, QueueName, predicate
from postroad.cli.output import (
    Bar,
    ExitCode,
    fail,
    header_line,
    print_json,
    print_line,
    print_table,
    report,
)
from postroad.reports.info import counted
from postroad.runtime.private_files import open_private

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from postroad import Queue, QueueManager, ReceivedMessage
    from postroad.describe.failed import FailedMessage


STANDARD_STREAM = "-"
BATCH_MESSAGES = 1000
BATCH_BYTES = 16 << 20
READ_BYTES = 1 << 20
FOREVER = (1 << 32) - 1  # seconds

Where = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Messages that match, such as 'label == \"x\" and priority > 3'."),
]

Lookups = Annotated[
    list[int] | None,
    typer.Option(
        "--lookup", metavar="ID", min=0, max=MAX_LOOKUP_ID, help="The message with this lookup id; repeat it for more."
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="Every message.")]


def move(
    context: Context,
    queue: QueueName,
    to: Annotated[str, typer.Argument(metavar="TO", help="The local queue that they move to.")],
    lookup: Lookups = None,
    everything: Everything = False,
    where: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which messages would move.")] = False,
) -> None:
    """Move messages to another local queue.

    Each message keeps its bytes and moves to the end of the target. No acknowledgment is sent. Messages that a reader
    takes in the meantime are not moved.
    """
    if sum((bool(lookup), everything, where is not None)) != 1:
        fail("choose the messages with one of --lookup ID, --all and --where EXPR", ExitCode.USAGE)
    wanted = predicate(where)
    with context.connect() as manager:
        source = manager.queue(queue)
        info = source.info()
        target = manager.queue(to).info()  # so that a missing target is reported before anything else
        if target.id == info.id:
            fail(f"TO: {to} is the queue that the messages are in", ExitCode.USAGE)
        if lookup:
            chosen: Iterator[ReceivedMessage] = (source.peek_by_id(each) for each in dict.fromkeys(lookup))
        else:
            chosen = (each for each in source.messages() if wanted is None or wanted(each))
        expired = Expired(kept=target.type not in ("private", "public", "subqueue"))
        chosen = expired.counted(chosen)
        if dry_run:
            _show(chosen, context.as_json)
            expired.report(to)
            if not lookup:
                report_locked(source, "would not be moved")
            return
        with Bar("moving", info.messages if everything else None) as bar:
            if lookup:
                manager.move(queue, to, list(chosen))
                bar.advance(len(set(lookup)))
            else:
                while batch := list(islice(chosen, BATCH_MESSAGES)):
                    bar.advance(_move_batch(manager, queue, to, batch))
        locked = {} if lookup else report_locked(source, "not moved")
    expired.report(to)
    facts = {"moved": bar.done, **locked, **expired.facts}
    context.print(facts, f"moved {counted(bar.done, 'message')} from {queue} to {to}")


class Expired:
    """Counts messages that will not stay in their new queue, because their time to be received is over.

    With `kept` they stay, as they do in dead-letter queues.
    """

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept
        self._again = self._gone = 0

    def counted(self, messages: Iterator[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        now = time.time()
        for message in messages:
            view = message.view
            lives_s = view.time_to_be_received
            if not self._kept and lives_s != FOREVER and message.sent_at.timestamp() + lives_s < now:
                self._again += view.negative_journaling
                self._gone += not view.negative_journaling
            yield message

    @property
    def facts(self) -> dict[str, int]:
        found = {"expired": self._again + self._gone}
        return found if found["expired"] else {}

    def report(self, to: str) -> None:
        """Reports on stderr what will happen to them."""
        fates = ((self._again, "dead letters again"), (self._gone, "deleted, because they ask for no dead letter"))
        for count, fate in fates:
            if count:
                what = f"expired: {counted(count, 'message')} will not stay in {to}"
                report(f"{what}, and will be {fate}; `postroad resend` sends a message with a new lifetime")


def _move_batch(manager: QueueManager, queue: str, to: str, batch: list[ReceivedMessage]) -> int:
    """Moves a batch in one step, or message by message if another reader took one. Returns how many were moved."""
    from postroad.errors import MessageAlreadyReceived, MessageNotFound

    gone = (MessageNotFound, MessageAlreadyReceived)
    try:
        return len(manager.move(queue, to, batch))
    except gone:
        moved = 0
        for message in batch:
            try:
                moved += len(manager.move(queue, to, [message]))
            except gone:
                continue
        return moved


def _show(messages: Iterator[ReceivedMessage], as_json: bool) -> None:
    count = 0
    for message in messages:
        count += 1
        if as_json:
            print_json(message.describe())
        else:
            print_line(header_line(message))
    if not as_json:
        print_line(f"{counted(count, 'message')} would move")


def export(
    context: Context,
    queue: QueueName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - for standard output.")],
    keep: Annotated[bool, typer.Option("--keep", help="The messages stay in the queue. This is the default.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="They leave the queue once they are in the file.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Write JSON lines that say what bodies and extensions say, and no packets.")
    ] = False,
) -> None:
    """Write the messages of a queue to a file, byte for byte, in queue order.

    The file holds packets one after the other: `postroad import` reads it, and `postroad decode` shows it. With
    --remove a message counts as received once it is safely in the file; those that another reader holds stay.
    """
    if keep and remove:
        fail("--keep and --remove exclude each other: choose one", ExitCode.USAGE)
    if decode and remove:
        fail("--decode writes no packets, so the messages must stay: leave out --remove", ExitCode.USAGE)
    if context.as_json and file == STANDARD_STREAM:
        fail("--json: standard output is where the messages go; export to a file", ExitCode.USAGE)
    with context.connect() as manager:
        source = manager.queue(queue)
        info = source.info()
        if remove and info.type == "outgoing":
            fail(
                f"messages on their way to {queue} cannot be received here: move them to a local queue first, or "
                "export them with --keep",
                ExitCode.FAILED,
            )
        with Bar("exporting", info.messages) as bar:
            try:
                with _writable(file, force) as stream:
                    if remove:
                        _take(source, stream, bar)
                    else:
                        _copy(source, stream, bar, _decoded if decode else _packets)
            except OSError as fault:
                fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.FAILED)
        locked = report_locked(source, "not exported")
    if context.as_json:
        print_json({"exported": bar.done, "file": file, **locked})
    elif file != STANDARD_STREAM:
        print_line(f"exported {counted(bar.done, 'message')} from {queue} to {file}")


def _writable(file: str, force: bool) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD_STREAM:
        return nullcontext(sys.stdout.buffer)
    try:
        return os.fdopen(open_private(Path(file), os.O_WRONLY | (os.O_TRUNC if force else os.O_EXCL)), "wb")
    except FileExistsError:
        fail(f"{file}: exists already; --force writes over it", ExitCode.USAGE)
    except OSError as fault:
        fail(f"{file}: cannot be opened: {fault.strerror}", ExitCode.USAGE)


def _packets(batch: Iterable[ReceivedMessage]) -> bytes:
    from postroad.wire.patch import without_local_part

    return b"".join(without_local_part(message.packet) for message in batch)


def _decoded(batch: Iterable[ReceivedMessage]) -> bytes:
    return b"".join(json.dumps(message.describe(decode=True)).encode() + b"\n" for message in batch)


def _copy(queue: Queue, stream: BinaryIO, bar: Bar, write: Callable[[Iterable[ReceivedMessage]], bytes]) -> None:
    messages = queue.messages()
    while batch := list(islice(messages, BATCH_MESSAGES)):
        stream.write(write(batch))
        bar.advance(len(batch))
    _make_durable(stream)


def _take(queue: Queue, stream: BinaryIO, bar: Bar) -> None:
    """Yields messages that are locked while they are written and deleted once they are on disk.

    It takes at most as many messages as were there at the start. Otherwise a busy sender could keep this running.
    """
    from postroad.errors import NoMessage

    while left := (bar.total or 0) - bar.done:
        try:
            with queue.receiving_many(min(left, BATCH_MESSAGES), timeout=0) as batch:
                stream.write(_packets(batch))
                _make_durable(stream)
        except NoMessage:
            return
        bar.advance(len(batch))


def _make_durable(stream: BinaryIO) -> None:
    stream.flush()
    if stream is not sys.stdout.buffer:
        os.fsync(stream.fileno())


def import_packets(
    context: Context,
    queue: QueueName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - for standard input.")],
) -> None:
    """Put the messages of a file into a local queue, byte for byte.

    The whole file is checked first: if one packet in it is damaged, nothing is imported. No acknowledgment is
    sent. A message whose time to be received is over is treated like any other expired message.
    """
    with _readable(file) as stream:
        total = sum(len(batch) for batch in _batches(stream, file))
        stream.seek(0)
        with context.connect() as manager, Bar("importing", total) as bar:
            target = manager.queue(queue)
            target.info()
            try:
                for batch in _batches(stream, file):
                    target.insert(batch)
                    bar.advance(len(batch))
            except Exception:
                if bar.done:
                    print_line(f"imported the first {bar.done} of {counted(total, 'message')}")
                raise
    context.print({"imported": total, "file": file}, f"imported {counted(total, 'message')} from {file} into {queue}")


def _readable(file: str) -> AbstractContextManager[BinaryIO]:
    """The file, or a copy of standard input, because it is read twice."""
    if file == STANDARD_STREAM:
        import shutil
        import tempfile

        copy = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
        return copy
    try:
        return open(file, "rb")
    except OSError as fault:
        fail(f"{file}: cannot be opened: {fault.strerror}", ExitCode.USAGE)


def _batches(stream: BinaryIO, file: str) -> Iterator[list[bytes]]:
    """The packets of a file in batches, after checking them."""
    from postroad.errors import RemoteProtocolError
    from postroad.wire import Framer, MessageView

    framer = Framer()
    batch: list[bytes] = []
    size = 0
    start = 0
    while data := stream.read(READ_BYTES):
        for packet in framer.feed(data):
            try:
                MessageView(packet)
            except RemoteProtocolError as fault:
                fail(f"{file}: {fault.shifted(start)}", ExitCode.FAILED)
            start += len(packet)
            batch.append(packet)
            size += len(packet)
            if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if framer.error is not None:
            fail(f"{file}: {framer.error.shifted(framer.position)}", ExitCode.FAILED)
    if framer.buffered:
        fail(f"{file}: at byte {framer.position}: the last packet is cut off", ExitCode.FAILED)
    if batch:
        yield batch


# `postroad resend`: sends dead letters and journaled messages again, as new messages.


RESENT_AT_ONCE = 100
SHOWN_REFUSALS = 10
INFINITE = 0xFFFFFFFF


def resend(
    context: Context,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            show_default=False,
            help=r"A path such as private$\orders, a format name, or ;journal, ;deadletter, ;deadxact. With --failed, "
            r"private$\error if absent.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME", help="The new destination; without it, where each message was sent."),
    ] = None,
    lookup: Lookups = None,
    everything: Everything = False,
    where: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent where.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="The old messages stay.")] = False,
    ttbr: Annotated[
        int | None,
        typer.Option("--ttbr", metavar="S", min=0, max=INFINITE, help="Seconds within which they must be received."),
    ] = None,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Messages of NServiceBus' error queue: each goes to the queue where it failed."),
    ] = False,
    exception: Annotated[
        str | None,
        typer.Option("--exception", metavar="NAME", help="With --failed, only those that failed with this exception."),
    ] = None,
    message_type: Annotated[
        str | None, typer.Option("--type", metavar="NAME", help="With --failed, only messages of this type.")
    ] = None,
) -> None:
    """Send dead letters and journaled messages again, as new messages, to where they were sent before or elsewhere.

    A new message has the same content and options, and a new id and time. Its lifetime is that of the old one, counted
    from now, or S seconds with --ttbr. The old message leaves in the same
    commit; with --keep it stays, and so do messages of a journal. A message that is refused stays, and the exit code
    is 1.

    With --failed, messages that NServiceBus gave up go back to the queues where they failed, without the headers of the
    failure. All do, unless some are chosen. --dry-run shows them by exception and type.
    """
    if queue is None and not failed:
        fail("Missing argument 'QUEUE'.", ExitCode.USAGE)
    from postroad.describe.failed import ERROR_QUEUE

    queue = queue or ERROR_QUEUE
    choices = sum((bool(lookup), everything, where is not None))
    if choices > 1 or not (choices or failed):
        fail("choose the messages with one of --lookup ID, --all and --where EXPR", ExitCode.USAGE)
    for option, given in (("--exception", exception), ("--type", message_type)):
        if given is not None and not failed:
            fail(f"{option}: needs --failed", ExitCode.USAGE)
    if to is not None:
        from postroad.names import parse_name

        parse_name(to)
    wanted = predicate(where)
    with context.connect() as manager:
        source = manager.queue(queue)
        info = source.info()
        if lookup:
            chosen: Iterator[ReceivedMessage] = (source.peek_by_id(each) for each in dict.fromkeys(lookup))
        else:
            # otherwise messages that are sent to their own queue would come again
            found = islice(source.messages(), info.messages)
            chosen = (each for each in found if wanted is None or wanted(each))
        if failed:
            chosen = _that_failed(chosen, exception, message_type)
        if dry_run:
            (_show_failed if failed else _show_resent)(chosen, to, ttbr, context.as_json)
        else:
            ids = [message.lookup_id for message in chosen]
            sent, refused, short = _resend(context, queue, ids, to, keep, ttbr, failed)
        locked = {} if lookup else report_locked(source, "would not be sent" if dry_run else "not sent")
    if dry_run:
        return
    _report_refused(refused, "not sent")
    _warn(short, "expire")
    facts = {"resent": sent, "refused": [{"lookup_id": each, "why": why} for each, why in refused], **locked}
    facts |= {"expiring": len(short), "first_expires_s": min(short)} if short else {}
    where_to = "" if to is None else f" to {to}"
    where_to = " to where they failed" if failed and to is None else where_to
    context.print(facts, f"sent {counted(sent, 'message')} of {queue} again{where_to}")
    if refused:
        raise typer.Exit(ExitCode.FAILED)


def _resend(
    context: Context, queue: str, ids: Sequence[int], to: str | None, keep: bool, ttbr: int | None, failed: bool
) -> tuple[int, list[tuple[int, str]], list[int]]:
    """Sends messages again. Returns how many, the lookup ids of the others with the reasons, and lifetimes that are
    short."""
    from postroad.describe.received import is_short

    sent = 0
    short: list[int] = []
    refused: list[tuple[int, str]] = []
    path = f"/queues/{quote(queue, safe='')}/resend"
    with context.calls() as api, Bar("sending again", len(ids)) as bar:
        for start in range(0, len(ids), RESENT_AT_ONCE):
            batch = ids[start : start + RESENT_AT_ONCE]
            order: dict[str, object] = {"lookup_ids": list(batch), "keep": keep}
            order |= {} if to is None else {"to": to}
            order |= {} if ttbr is None else {"time_to_be_received": ttbr}
            order |= {"failed": True} if failed else {}
            try:
                outcomes = api.json("POST", path, order, member="resent")
            except Exception:
                if sent:
                    print_line(f"sent the first {sent} of {counted(len(ids), 'message')} again")
                raise
            refused += [(each["lookup_id"], each["why"]) for each in outcomes if each["id"] is None]
            sent += sum(each["id"] is not None for each in outcomes)
            short += [each["lifetime_s"] for each in outcomes if is_short(each.get("lifetime_s"))]
            bar.advance(len(batch))
    return sent, refused, short


def _report_refused(refused: Sequence[tuple[int, str]], word: str) -> None:
    for lookup_id, why in refused[:SHOWN_REFUSALS]:
        report(f"{word}: the message {lookup_id}: {why}")
    if len(refused) > SHOWN_REFUSALS:
        report(f"{word}: {counted(len(refused) - SHOWN_REFUSALS, 'more message')}")


def _warn(short: Sequence[int], word: str) -> None:
    if short:
        report(
            f"{counted(len(short), 'message')} {word} soon, the first after {min(short)} s: "
            "--ttbr S gives each S seconds to be received"
        )


def _show_resent(messages: Iterator[ReceivedMessage], to: str | None, ttbr: int | None, as_json: bool) -> None:
    from postroad.describe.received import is_short, lifetime_s

    count = 0
    short: list[int] = []

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal count
        for message in messages:
            count += 1
            # Only the manager knows whether the destination is local. The time to be received counts in any case.
            lifetime = lifetime_s(message, ttbr, here=True)
            if lifetime is not None and is_short(lifetime):
                short.append(lifetime)
            yield message.lookup_id, message.label, _reason(message), to or message.destination_queue, lifetime

    if as_json:
        for lookup_id, label, reason, destination, lifetime in rows():
            row = {"lookup_id": lookup_id, "label": label, "reason": reason, "to": destination, "lifetime_s": lifetime}
            print_json(row)
        _warn(short, "would expire")
        return
    print_table(("lookup id", "label", "reason", "to", "lifetime s"), rows(), numbers=("lookup id", "lifetime s"))
    _warn(short, "would expire")
    print_line(f"{counted(count, 'message')} would be sent again")


def _reason(message: ReceivedMessage) -> str | None:
    """The reason of a dead letter."""
    return message.class_name if message.message_class else None


# Messages of NServiceBus' error queue.


_SHOWN_TEXT = 60  # characters of the text of an exception


def _that_failed(
    messages: Iterator[ReceivedMessage], exception: str | None, message_type: str | None
) -> Iterator[ReceivedMessage]:
    """Those that failed with this exception, and are of this type. Without either, also those that do not say where
    they failed: the manager refuses them by name."""
    for message in messages:
        failed, _ = _failure(message)
        if failed.matches(exception, message_type) if failed else exception is None and message_type is None:
            yield message


def _failure(message: ReceivedMessage) -> tuple[FailedMessage | None, str | None]:
    """How it failed, or why that cannot be said."""
    from postroad.describe.failed import failed_message
    from postroad.errors import InvalidArgument

    try:
        return failed_message(message), None
    except InvalidArgument as fault:
        return None, str(fault)


def _show_failed(messages: Iterator[ReceivedMessage], to: str | None, ttbr: int | None, as_json: bool) -> None:
    """One group of messages a line or, as JSON, one message."""
    from postroad.describe.failed import failed_groups
    from postroad.describe.received import is_short, lifetime_s

    short: list[int] = []
    refused: list[tuple[int, str]] = []

    def found() -> Iterator[FailedMessage]:
        for message in messages:
            failed, why = _failure(message)
            lifetime = lifetime_s(message, ttbr, here=True)
            if failed is None:
                refused.append((message.lookup_id, str(why)))
            elif lifetime is not None and is_short(lifetime):
                short.append(lifetime)
            if as_json:
                print_json(
                    {
                        "lookup_id": message.lookup_id,
                        "label": message.label,
                        "exception": failed.exception if failed else None,
                        "exception_text": failed.text if failed else None,
                        "message_type": failed.message_type if failed else message.message_type,
                        "failed_at": f"{failed.failed_at:%Y-%m-%dT%H:%M:%SZ}" if failed and failed.failed_at else None,
                        "to": (to or failed.destination) if failed else None,
                        "lifetime_s": lifetime,
                        **({"why": why} if why else {}),
                    }
                )
            if failed is not None:
                yield failed

    groups = failed_groups(found())
    _report_refused(refused, "would stay")
    _warn(short, "would expire")
    if as_json:
        return
    print_table(
        ("messages", "exception", "message type", "to", "first failed (UTC)", "last failed (UTC)", "text"),
        (
            (
                group.messages,
                group.exception,
                group.message_type,
                to or group.destination,
                group.first_failed_at and f"{group.first_failed_at:%Y-%m-%d %H:%M:%S}",
                group.last_failed_at and f"{group.last_failed_at:%Y-%m-%d %H:%M:%S}",
                group.text and " ".join(group.text[: _SHOWN_TEXT + 1].split()),
            )
            for group in groups
        ),
        numbers=("messages",),
    )
    print_line(f"{counted(sum(group.messages for group in groups), 'message')} would be sent again")
