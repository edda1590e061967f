"""`postroad receive`, `peek` and `browse`: takes the messages of a queue, or only shows them."""

from __future__ import annotations

import math
import sys
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.administration import report_locked
from postroad.cli.context import MAX_LOOKUP_ID, Context, QueueName, predicate
from postroad.cli.output import ExitCode, MessagePrinter, fail, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from postroad import Queue, QueueManager, ReceivedMessage, Transaction
    from postroad.client.payloads import Place

DEFAULT_TIMEOUT_S = 5.0
BATCH_MESSAGES = 100
PAGE_MESSAGES = 20
DEAD_LETTERS = (";deadletter", ";deadxact")

Count = Annotated[int, typer.Option("--count", metavar="N", min=1, help="The most messages to read.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="S", min=0, help="Seconds to wait for messages; 0 does not wait, inf waits forever."
    ),
]
Lookup = Annotated[
    int | None,
    typer.Option("--lookup", metavar="ID", min=0, max=MAX_LOOKUP_ID, help="Only the message with this lookup id."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Print only the bodies, byte for byte.")]
Decode = Annotated[
    bool,
    typer.Option("--decode", help="Print what bodies and extensions say: readable text, headers, the message type."),
]


def receive(
    context: Context,
    queue: QueueName,
    count: Count = 1,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    lookup: Lookup = None,
    transactional: Annotated[
        bool,
        typer.Option("--transactional", help="Receive them in one transaction, which commits once they are printed."),
    ] = False,
    raw: Raw = False,
    decode: Decode = False,
) -> None:
    """Receive messages from a queue, and print them.

    Waits for as many messages as --count says, for up to --timeout seconds, and prints each one when it arrives.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    _check(count, timeout, lookup)
    with reading(context.connect, queue, timeout, context.as_json, raw, decode) as (source, printer):
        with source.manager.transaction() if transactional else nullcontext() as transaction:
            take(source, printer, count, timeout, None if lookup is None else (lookup, "current"), transaction)
        if not printer.count:
            report_locked(source, "not received")


def peek(
    context: Context,
    queue: QueueName,
    count: Count = 1,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    lookup: Lookup = None,
    raw: Raw = False,
    decode: Decode = False,
) -> None:
    """Print the first messages of a queue, and leave them there.

    Waits up to --timeout seconds for the first message, and prints the messages that are there then.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    _check(count, timeout, lookup)
    with reading(context.connect, queue, timeout, context.as_json, raw, decode) as (source, printer):
        if lookup is not None:
            printer.print_all([source.peek_by_id(lookup)])
        else:
            printer.print_all(islice(_peeked(source, timeout), count))
            report_locked(source, "not shown")


def browse(
    context: Context,
    queue: QueueName,
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="ID", min=-1, max=MAX_LOOKUP_ID, help="Start after this lookup id.", show_default=False
        ),
    ] = -1,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The most messages to list.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="EXPR", help="Only messages that match, such as 'label == \"x\" and priority > 3'."
        ),
    ] = None,
    decode: Decode = False,
) -> None:
    """List the messages of a queue, one per line; on a terminal, page by page."""
    wanted = predicate(where)
    with context.connect() as manager:
        source = manager.queue(queue)
        found = (each for each in source.messages(after) if wanted is None or wanted(each))
        messages = islice(found, limit)
        if context.as_json:
            MessagePrinter(as_json=True, decode=decode).print_all(messages)
        else:
            _print_pages(messages, queue.lower().endswith(DEAD_LETTERS), decode)
        report_locked(source, "not shown")


@contextmanager
def reading(
    connect: Callable[[], AbstractContextManager[QueueManager]],
    queue: str,
    timeout: float,
    as_json: bool,
    raw: bool,
    decode: bool = False,
) -> Iterator[tuple[Queue, MessagePrinter]]:
    """The queue to read, and what prints its messages. If nothing was printed in the block, the command says so and
    fails."""
    if as_json and raw:
        fail("use only one of --json and --raw", ExitCode.USAGE)
    if decode and raw:
        fail("use only one of --decode and --raw", ExitCode.USAGE)
    printer = MessagePrinter(as_json=as_json, raw=raw, decode=decode)
    with connect() as manager:
        yield manager.queue(queue), printer
    if not printer.count:
        waited = f" within {timeout:g} seconds" if timeout else ""
        fail(f"there was no message in {queue}{waited}", ExitCode.TIMEOUT)


def _check(count: int, timeout: float, lookup: int | None) -> None:
    if lookup is not None and count > 1:
        fail("use only one of --lookup, which is one message, and --count", ExitCode.USAGE)
    if math.isnan(timeout):
        fail("--timeout: must be a number of seconds, got nan", ExitCode.USAGE)


def take(
    queue: Queue,
    printer: MessagePrinter,
    count: int,
    timeout: float,
    only: tuple[int, Place] | None,
    transaction: Transaction | None = None,
) -> None:
    """Receives messages and prints them: the one at the place `only`, or up to `count` within the time-out.

    Without a transaction, messages are locked while they are printed. A message that cannot be printed, because a pipe
    is closed or a disk is full, returns to its place.
    """
    from postroad.errors import NoMessage

    if only is not None:
        printer.print_all([queue.receive_by_id(*only, tx=transaction)])
        return
    deadline = time.monotonic() + timeout
    while printer.count < count:
        left = max(0.0, deadline - time.monotonic())
        wait = None if math.isinf(left) else left
        step = min(count - printer.count, BATCH_MESSAGES)
        try:
            if transaction is None:
                with queue.receiving_many(step, wait) as messages:
                    printer.print_all(messages)
            else:
                printer.print_all(queue.receive_many(step, wait, transaction))
        except NoMessage:
            return


def _peeked(queue: Queue, timeout: float) -> Iterator[ReceivedMessage]:
    """The messages of a queue in their order, once there are any."""
    from postroad.errors import NoMessage

    try:
        queue.peek(None if math.isinf(timeout) else timeout)
    except NoMessage:
        return
    yield from queue.messages()


def _print_pages(messages: Iterator[ReceivedMessage], dead: bool, decode: bool) -> None:
    print_page = partial(_print_page, dead=dead, decode=decode)
    first = next(messages, None)
    if first is None:
        print_line("no messages")
        return
    messages = chain([first], messages)
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        print_page(messages)
        return
    while page := list(islice(messages, PAGE_MESSAGES)):
        print_page(page)
        if len(page) == PAGE_MESSAGES:
            try:
                if input("-- Enter for more, q to end: ").strip().lower().startswith("q"):
                    return
            except EOFError:
                return


def _print_page(messages: Iterable[ReceivedMessage], dead: bool, decode: bool) -> None:
    """Prints a page. Dead letters have the reason and the destination, other messages the priority and the class."""
    print_table(
        (
            "lookup id",
            "arrived (UTC)",
            *(("reason", "destination") if dead else ("prio", "class")),
            "size",
            "label",
            *(("message type",) if decode else ()),
            "body",
        ),
        (
            (
                message.lookup_id,
                f"{message.arrived_at:%Y-%m-%d %H:%M:%S}",
                message.class_name if dead else message.priority,
                message.destination_queue if dead else (message.class_name if message.message_class else None),
                len(message.body),
                message.label,
                *((message.decoded().get("message_type"),) if decode else ()),
                _excerpt(message.body, message.decoded()["body_text"] if decode else message.text_or_none),
            )
            for message in messages
        ),
        numbers=("lookup id", "arrived (UTC)", "prio", "size"),
    )


def _excerpt(body: bytes, text: str | None) -> str:
    """The start of the body, on one line."""
    if text is None:
        return body[:16].hex(" ") + (" ..." if len(body) > 16 else "")
    line = " ".join(text[:200].split())
    return line if len(line) <= 40 else f"{line[:37]}..."
