"""`postroad move`, `export` and `import`: messages from one queue to another, to a file, and back."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from postroad.cli.context import Context
from postroad.cli.lock import report_locked
from postroad.cli.options import MAX_LOOKUP_ID, QueueName, predicate
from postroad.cli.outcome import ExitCode, fail, report
from postroad.cli.output import count_text, header_line, print_json, print_line
from postroad.cli.progress import Bar
from postroad.runtime.private_files import open_private

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from postroad import Queue, QueueManager, ReceivedMessage

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
    takes meanwhile are not moved.
    """
    if sum((bool(lookup), everything, where is not None)) != 1:
        fail("choose the messages with one of --lookup ID, --all and --where EXPR", ExitCode.USAGE)
    wanted = predicate(where)
    with context.connect() as manager:
        source = manager.queue(queue)
        info = source.info()
        target = manager.queue(to).info()  # a missing target is reported before anything else
        if target.id == info.id:
            fail(f"TO: {to} is the queue that the messages are in", ExitCode.USAGE)
        if lookup:
            chosen: Iterator[ReceivedMessage] = (source.peek_by_id(each) for each in dict.fromkeys(lookup))
        else:
            chosen = (each for each in source.messages() if wanted is None or wanted(each.describe()))
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
    context.print(facts, f"moved {count_text(bar.done, 'message')} from {queue} to {to}")


class Expired:
    """Counts the messages that do not stay in the queue that they move to, because their time to be received is over.
    With `kept` the queue keeps them, as dead-letter queues do."""

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
        """Says on stderr what becomes of them."""
        fates = ((self._again, "dead letters again"), (self._gone, "deleted, as they ask for no dead letter"))
        for count, fate in fates:
            if count:
                what = f"expired: {count_text(count, 'message')} will not stay in {to}"
                report(f"{what}, and will be {fate}; `postroad resend` sends a message with a new lifetime")


def _move_batch(manager: QueueManager, queue: str, to: str, batch: list[ReceivedMessage]) -> int:
    """How many were moved: all at once, or, where a reader was faster with one of them, each for itself."""
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
        print_line(f"{count_text(count, 'message')} would move")


def export(
    context: Context,
    queue: QueueName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - for standard output.")],
    keep: Annotated[bool, typer.Option("--keep", help="The messages stay in the queue, as they do anyway.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="They leave the queue once they are in the file.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write the messages of a queue to a file, byte for byte, in queue order.

    The file holds packets one behind the other: `postroad import` reads it, and `postroad decode` shows it. With
    --remove a message counts as received once it is safely in the file; those that another reader holds stay.
    """
    if keep and remove:
        fail("--keep and --remove exclude each other: choose one", ExitCode.USAGE)
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
                    (_take if remove else _copy)(source, stream, bar)
            except OSError as fault:
                fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.FAILED)
        locked = report_locked(source, "not exported")
    if context.as_json:
        print_json({"exported": bar.done, "file": file, **locked})
    elif file != STANDARD_STREAM:
        print_line(f"exported {count_text(bar.done, 'message')} from {queue} to {file}")


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
    from postroad.wire.local_part import without_local_part

    return b"".join(without_local_part(message.packet) for message in batch)


def _copy(queue: Queue, stream: BinaryIO, bar: Bar) -> None:
    messages = queue.messages()
    while batch := list(islice(messages, BATCH_MESSAGES)):
        stream.write(_packets(batch))
        bar.advance(len(batch))
    _make_durable(stream)


def _take(queue: Queue, stream: BinaryIO, bar: Bar) -> None:
    """Messages are locked while they are being written, and go once they are on the disk. At most as many as were
    there at the start, or a busy sender could keep this running."""
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
                    print_line(f"imported the first {bar.done} of {count_text(total, 'message')}")
                raise
    context.print(
        {"imported": total, "file": file}, f"imported {count_text(total, 'message')} from {file} into {queue}"
    )


def _readable(file: str) -> AbstractContextManager[BinaryIO]:
    """The file, or a copy of standard input: it is read twice."""
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
    """The packets of a file, checked, some at a time."""
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
