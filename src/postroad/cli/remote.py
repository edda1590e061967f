"""`postroad remote`: reads and purges the queues of any MSMQ server by MS-MQRR or MS-MQQP. MS-MQMR has its figures."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import AsJson, by_ticket
from postroad.cli.output import ExitCode, fail, print_json, print_line
from postroad.cli.read import DEFAULT_TIMEOUT_S, Count, Decode, Lookup, Raw, Timeout, reading, take
from postroad.net import ports
from postroad.reports.operations import RemoteProtocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad import Queue, ReceivedMessage
    from postroad.client.sync.manager import RemoteManager

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
Kerberos = Annotated[
    bool,
    typer.Option("--kerberos", envvar="POSTROAD_KERBEROS", help="Authenticate with a Kerberos ticket, from kinit."),
]
Config = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="A manager's configuration; its \\[peers] have HOST's port."),
]
Mapper = Annotated[
    int | None,
    typer.Option("--endpoint-mapper", metavar="PORT", min=1, max=65535, help="Ask the endpoint mapper there, as 135."),
]
Protocol = Annotated[
    RemoteProtocol,
    typer.Option("--protocol", help="MS-MQRR or MS-MQQP; auto is MS-MQRR, or MS-MQQP if HOST does not offer it."),
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
    kerberos: Kerberos = False,
    config: Config = None,
    mapper: Mapper = None,
    protocol: Protocol = RemoteProtocol.AUTO,
) -> None:
    """Print the first messages of a queue, and leave them there.

    With --lookup it starts at that message; with --place, at its neighbour.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    from postroad.errors import NoMessage

    connect = partial(_connect, host, user, password, kerberos, config, mapper, protocol)
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
    kerberos: Kerberos = False,
    config: Config = None,
    mapper: Mapper = None,
    protocol: Protocol = RemoteProtocol.AUTO,
) -> None:
    """Receive messages from a queue, and print them. A message leaves the queue once it is printed.

    Waits for as many messages as --count says, for up to --timeout seconds. With --lookup or --place it
    receives that one message, without waiting.

    Exit code: 0 if there was a message, 3 if there was none in time.
    """
    connect = partial(_connect, host, user, password, kerberos, config, mapper, protocol)
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
    kerberos: Kerberos = False,
    config: Config = None,
    mapper: Mapper = None,
    protocol: Protocol = RemoteProtocol.AUTO,
) -> None:
    """Remove every message of a queue. The server does not say how many there were."""
    with _connect(host, user, password, kerberos, config, mapper, protocol) as manager:
        manager.queue(queue).purge()
    if as_json:
        print_json({"purged": True, "queue": queue, "host": host})
    else:
        print_line(f"purged {queue} on {host}")


@app.command("info")
def info(
    host: Host,
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", help="A queue there, or an outgoing queue by its format name."),
    ] = None,
    as_json: AsJson = False,
    user: User = None,
    password: Password = None,
    kerberos: Kerberos = False,
    config: Config = None,
    mapper: Mapper = None,
) -> None:
    """Print the figures of a queue manager, or of one of its queues, by MS-MQMR.

    Only administrators of the queue manager may ask. A queue's counts are there under the names of `queue show` too.
    """
    with _connect(host, user, password, kerberos, config, mapper, RemoteProtocol.AUTO) as manager:
        found = {name.lower(): value for name, value in manager.info(queue).items()}
    if as_json:
        print_json(found | {name: found[key] for name, key in _HOUSE_NAMES.items() if key in found})
        return
    width = max(map(len, found))
    for name, value in found.items():
        print_line(f"{name:{width}}  {_in_words(value)}".rstrip())


_HOUSE_NAMES = {
    "path": "pathname",
    "format_name": "formatname",
    "messages": "message_count",
    "bytes": "bytes_in_queue",
    "journal_messages": "journal_message_count",
}


def _in_words(value: object) -> str:
    match value:
        case None:
            return "-"
        case dict():
            return ", ".join(f"{name} {each}" for name, each in value.items())
        case [[*_], *_]:  # columns of a table
            return "; ".join(" ".join(map(str, row)) for row in zip(*value, strict=False)) or "none"
        case list():
            return ", ".join(map(str, value)) or "none"
    return str(value)


def _connect(
    host: str,
    user: str | None,
    password: str | None,
    kerberos: bool,
    config: Path | None,
    mapper: int | None,
    protocol: RemoteProtocol,
) -> RemoteManager:
    import postroad

    if by_ticket(kerberos, None, user):
        user = password = None
    else:
        kerberos = False

    name, port = _split(host)
    if port is None:
        port = _peer_port(name, config)
    if user is not None and password is None:
        fail("--user: the password is missing; use --password, or set POSTROAD_PASSWORD", ExitCode.USAGE)
    if port is not None and mapper is not None:
        fail("--endpoint-mapper: must not be used if HOST's port is given", ExitCode.USAGE)
    return postroad.remote(
        name,
        port=port or ports.RPC_HANDSHAKE,
        endpoint_mapper=mapper,
        user=user,
        password=password,
        kerberos=kerberos,
        protocol=protocol,
    )


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
