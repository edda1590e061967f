"""`postroad remote`: reads and purges the queues of any MSMQ server by MS-MQQP."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import AsJson
from postroad.cli.output import ExitCode, fail, print_json, print_line
from postroad.cli.read import DEFAULT_TIMEOUT_S, Count, Decode, Lookup, Raw, Timeout, reading, take
from postroad.net import ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad import Queue, QueueManager, ReceivedMessage

app = typer.Typer(help="Read the queues of any MSMQ server on another computer.", no_args_is_help=True)


class Place(StrEnum):
    """Which message to read, seen from a lookup id."""

    CURRENT = "current"
    NEXT = "next"
    PREVIOUS = "previous"
    FIRST = "first"
    LAST = "last"


Host = Annotated[
    str,
    typer.Argument(metavar="HOST", help=f"A name or address, with :PORT where qmcomm's is not {ports.RPC_HANDSHAKE}."),
]
RemoteQueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help=r"A path on HOST, such as private$\orders or ;deadletter, or a format name."),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", envvar="POSTROAD_USER", help="Authenticate as this user.")
]
Password = Annotated[
    str | None,
    typer.Option("--password", metavar="WORD", envvar="POSTROAD_PASSWORD", help="That user's password."),
]
Config = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="A manager's configuration; its \\[peers] have HOST's port."),
]
Mapper = Annotated[
    int | None,
    typer.Option("--endpoint-mapper", metavar="PORT", min=1, max=65535, help="Ask the endpoint mapper there, as 135."),
]
Where = Annotated[
    Place | None, typer.Option("--place", help="Which message to read, seen from --lookup; first and last need no id.")
]


@app.command("peek")
def peek(
    host: Host,
    queue: RemoteQueueName,
    count: Count = 1,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    lookup: Lookup = None,
    place: Where = None,
    raw: Raw = False,
    decode: Decode = False,
    as_json: AsJson = False,
    user: User = None,
    password: Password = None,
    config: Config = None,
    mapper: Mapper = None,
) -> None:
    """Print the first messages of a queue, and leave them there.

    With --lookup it starts at that message; with --place, at its neighbour.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    from postroad.errors import NoMessage

    connect = partial(_connect, host, user, password, config, mapper)
    with reading(connect, queue, timeout, as_json, raw, decode) as (source, printer):
        if lookup is not None or place is not None:
            printer.print_all(islice(_messages_from(source, lookup, place), count))
        else:
            with suppress(NoMessage):
                printer.print_all(source.peek_many(count, timeout))


@app.command("receive")
def receive(
    host: Host,
    queue: RemoteQueueName,
    count: Count = 1,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    lookup: Lookup = None,
    place: Where = None,
    raw: Raw = False,
    decode: Decode = False,
    as_json: AsJson = False,
    user: User = None,
    password: Password = None,
    config: Config = None,
    mapper: Mapper = None,
) -> None:
    """Receive messages from a queue, and print them. A message leaves the queue once it is printed.

    Waits for as many messages as --count says, for up to --timeout seconds. With --lookup or --place it
    receives that one message, without waiting.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    connect = partial(_connect, host, user, password, config, mapper)
    with reading(connect, queue, timeout, as_json, raw, decode) as (source, printer):
        chosen = lookup is not None or place is not None
        take(source, printer, count, timeout, (lookup or 0, _place(lookup, place).value) if chosen else None)


@app.command("purge")
def purge(
    host: Host,
    queue: RemoteQueueName,
    as_json: AsJson = False,
    user: User = None,
    password: Password = None,
    config: Config = None,
    mapper: Mapper = None,
) -> None:
    """Remove every message of a queue. The server does not say how many there were."""
    with _connect(host, user, password, config, mapper) as manager:
        manager.queue(queue).purge()
    if as_json:
        print_json({"purged": True, "queue": queue, "host": host})
    else:
        print_line(f"purged {queue} on {host}")


def _connect(
    host: str, user: str | None, password: str | None, config: Path | None, mapper: int | None
) -> QueueManager:
    import postroad

    name, port = _split(host)
    if port is None:
        port = _peer_port(name, config)
    if user is not None and password is None:
        fail("--user: the password is missing; use --password, or set POSTROAD_PASSWORD", ExitCode.USAGE)
    if port is not None and mapper is not None:
        fail("--endpoint-mapper: must not be used if HOST's port is given", ExitCode.USAGE)
    return postroad.remote(name, port=port or ports.RPC_HANDSHAKE, endpoint_mapper=mapper, user=user, password=password)


def _split(host: str) -> tuple[str, int | None]:
    """Splits `host`, `host:port`, `[v6]:port` or a bare IPv6 address."""
    if "/" in host:
        fail(
            f"HOST: must be a name or address, such as 10.0.0.5:{ports.RPC_HANDSHAKE}, got {host!r}",
            ExitCode.USAGE,
        )
    name, colon, port = host.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        return host.strip("[]"), None
    if not port.isdecimal() or not 0 < int(port) < 65536:
        fail(f"HOST: the port must be between 1 and 65535, got {port!r}", ExitCode.USAGE)
    return name.strip("[]"), int(port)


def _peer_port(host: str, config: Path | None) -> int | None:
    if config is None:
        return None
    from postroad.config import load_configuration

    peers = load_configuration(config).peers
    return next((peer.rpc for peer in peers if peer.host.lower() == host.lower()), None)


def _place(lookup: int | None, place: Place | None) -> Place:
    word = place or Place.CURRENT
    if lookup is None and word not in (Place.FIRST, Place.LAST):
        fail(f"--place {word.value} needs --lookup", ExitCode.USAGE)
    if lookup is not None and word in (Place.FIRST, Place.LAST):
        fail(f"--place {word.value} must not be used with --lookup", ExitCode.USAGE)
    return word


def _messages_from(queue: Queue, lookup: int | None, place: Place | None) -> Iterator[ReceivedMessage]:
    """Yields the message that was asked for and those after it. For `previous` and `last`, those before it."""
    from postroad.errors import MessageNotFound

    word = _place(lookup, place)
    message = queue.peek_by_id(lookup or 0, word.value)
    backward = word in (Place.PREVIOUS, Place.LAST)
    while True:
        yield message
        try:
            message = queue.peek_by_id(message.lookup_id, "previous" if backward else "next")
        except MessageNotFound:
            return
