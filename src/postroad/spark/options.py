"""Reads and checks the options of our sources and sinks. Errors start with the option's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

from postroad.errors import InvalidArgument
from postroad.names import parse_name
from postroad.net import ports
from postroad.net.endpoints import endpoint
from postroad.reports.operations import RemoteProtocol
from postroad.spark.schema import choose
from postroad.validation.kinds import (
    SWITCH,
    URL,
    FieldFault,
    Kind,
    choice,
    number,
    parsed,
    quoted,
    read_text,
    suggestion,
    whole,
)

API = "http://127.0.0.1:8180"  # a manager on this machine with the default configuration
TIMEOUT_S = 60.0  # enough for a manager to restart
MAX_PARTITIONS = 10_000
MAX_ROWS = 1_000_000_000
ARRIVAL_MASK = (1 << 56) - 1  # the arrival number in a lookup id; the bits above are the priority
MOST_CLASS = 0xFFFF
MOST_PRIORITY = 7
T = TypeVar("T")
D = TypeVar("D")


class Mode(Enum):
    """What happens to messages after a stream has read them."""

    PEEK = "peek"
    CONSUME = "consume"


class Start(Enum):
    """Where a stream without a checkpoint starts, if not at a number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue of a manager, and how long to retry while the manager does not answer."""

    api: str
    queue: str
    token: str | None = field(repr=False)
    timeout_s: float
    user: str | None = None  # logs in with a password instead of the token
    password: str | None = field(default=None, repr=False)
    token_file: str | None = None  # instead of the token; each process reads the file
    password_file: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a queue to read: begin <= arrival number < end, and conditions that the manager checks."""

    begin: int
    end: int
    equal: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rpc:
    """A server to read from by MS-MQRR or MS-MQQP, and the user to log in as."""

    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)
    password_file: str | None = None
    protocol: RemoteProtocol = RemoteProtocol.AUTO

    def __str__(self) -> str:
        return endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. With `rpc`, the queue is on that server, and the API is not used.

    `queues` are names and patterns of queues; `place` has the first of them. `start` and `end` limit the arrival
    numbers.
    """

    place: Place
    queues: tuple[str, ...]
    rpc: Rpc | None
    columns: tuple[str, ...]
    selection: Selection
    mode: Mode
    partitions: int | None
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_s: float
    start: Start | int
    start_ms: int | None
    end: int | None
    fail_on_data_loss: bool
    hold: str | None
    decode: bool = False

    @property
    def only_queue(self) -> str | None:
        """The name of the queue. None if there are several queues or a pattern."""
        return self.queues[0] if len(self.queues) == 1 and "*" not in self.queues[0] else None

    def at(self, queue: str) -> Place:
        return replace(self.place, queue=queue)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    place: Place
    name: str | None
    transactional: bool | None


_PLACE = ("api", "queue", "token", "tokenFile", "timeout")
_ACCOUNT = ("user", "password", "passwordFile")
READ = (
    *_PLACE,
    *("rpc", "protocol", *_ACCOUNT),
    *("mode", "maxMessagesPerBatch", "partitions", "columns", "body", "packet", "decode"),
    *("maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("failOnDataLoss", "startingOffsets", "startingTimestamp", "endingOffsets", "hold"),
    *("arrivalFrom", "arrivalTo", "class", "priority", "label"),
)
SELECTING = ("class", "priority", "label")
_OF_STREAMS = ("maxMessagesPerBatch", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
WRITE = (*_PLACE, *_ACCOUNT, "name", "transactional")


class Options:
    """Spark's options. The case of their names does not matter."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}

    def check_names(self) -> None:
        """Raises InvalidArgument for a name that looks like a misspelt option of ours. Other names may be Spark's
        own."""
        if "path" in self._given and "path" not in self._known:
            raise InvalidArgument("path: must not be set; name a queue with the option `queue`")
        for name in self._given:
            if name not in self._known:
                near = suggestion(name, self._known)
                if "did you mean" in near:
                    raise InvalidArgument(f"{name}: there is no such option{near}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def read(self, name: str, kind: Kind[T], default: D) -> T | D:
        text = self.text(name)
        return default if text is None else read_text(kind, text.strip(), name)


def _queues(options: Options) -> tuple[str, ...] | None:
    """The names and patterns of queues. None if the option is missing."""
    text = options.text("queue")
    if not text:
        return None
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise InvalidArgument(f"queue: must name a queue, got {text!r}")
    for each in found:
        if "*" not in each:
            read_text(_QUEUE, each, "queue")
        elif "=" in each:
            raise InvalidArgument(rf"queue: a pattern must be a path, as in private$\orders*, got {each!r}")
    return found


def _place(options: Options, several: Sequence[str] | None = None) -> Place:
    api = options.read("api", URL, None) or API
    if not options.text("queue"):
        raise InvalidArgument(r"queue: is missing; name one, as in .option('queue', r'private$\orders')")
    queue = options.read("queue", _QUEUE, "") if several is None else several[0]
    token, timeout_s = _secret(options, "token"), options.read("timeout", _SECONDS, TIMEOUT_S)
    account = _Account() if options.text("rpc") is not None else _account(options)
    if account.user is not None and token != _NONE:
        raise InvalidArgument("user: must not be set together with `token` or `tokenFile`")
    if account.user is not None and account.password == _NONE:
        raise InvalidArgument("user: needs the option `password` or `passwordFile`")
    (password, password_file), (given, token_file) = account.password, token
    return Place(api.rstrip("/"), queue, given, timeout_s, account.user, password, token_file, password_file)


_NONE: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class _Account:
    """A user, and the password or the file that has it."""

    user: str | None = None
    password: tuple[str | None, str | None] = field(default=_NONE, repr=False)


def _secret(options: Options, name: str) -> tuple[str | None, str | None]:
    """The secret, or the name of the file that has it."""
    secret, file = options.text(name) or None, options.text(f"{name}File") or None
    if secret is not None and file is not None:
        raise InvalidArgument(f"{name}File: must not be set together with `{name}`")
    return secret, file


def _account(options: Options) -> _Account:
    account = _Account(options.text("user") or None, _secret(options, "password"))
    if account.user is None and account.password != _NONE:
        raise InvalidArgument(f"{'password' if account.password[0] else 'passwordFile'}: needs the option `user`")
    return account


def _rpc(options: Options) -> Rpc | None:
    text = options.text("rpc")
    if text is None:
        if options.text("protocol") is not None:
            raise InvalidArgument("protocol: needs the option `rpc`")
        return None
    for name, why in _NOT_BY_RPC.items():
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: {why}")
    parts = urlsplit(f"//{text.strip()}")
    try:
        host, port = parts.hostname or "", ports.RPC_HANDSHAKE if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if not host or not port or parts.username is not None or parts.path or parts.query:
        raise InvalidArgument(f"rpc: must be a host, as in winserver or 10.0.0.5:2103, got {text!r}")
    account = _account(options)
    protocol = options.read("protocol", _PROTOCOL, RemoteProtocol.AUTO)
    return Rpc(host, port, account.user, *account.password, protocol=protocol)


_NOT_BY_RPC = {
    "api": "must not be set together with `rpc`",
    "token": "needs the option `api`; a server behind `rpc` takes `user` and `password`",
    "tokenFile": "needs the option `api`; a server behind `rpc` takes `user` and `passwordFile`",
    "hold": "needs the option `api`: remote readers cannot hold messages for a stream",
    "startingOffsets": "needs the option `api`: a stream from `rpc` starts with what is in the queue",
    "startingTimestamp": "needs the option `api`: remote readers cannot find a message by its time",
    "endingOffsets": "needs the option `api`: a server behind `rpc` has no lasting arrival numbers",
    "maxBytesPerTrigger": "needs the option `api`; for a stream from `rpc` use `maxMessagesPerBatch`",
    "minOffsetsPerTrigger": "needs the option `api`: remote readers cannot count messages",
}


def _checked_name(text: str) -> str:
    parse_name(text)
    return text


def _start(text: str) -> Start | int:
    if text.lower() in ("earliest", "latest"):
        return Start(text.lower())
    if not text.isascii() or not text.isdigit():
        raise FieldFault(f"must be earliest, latest or an arrival number, got {quoted(text)}")
    return int(text)


def _end(text: str) -> int | None:
    if text.lower() == "latest":
        return None
    if not text.isascii() or not text.isdigit():
        raise FieldFault(f"must be latest or the arrival number after the last, got {quoted(text)}")
    return int(text)


def _time_ms(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FieldFault(
            f"must be milliseconds since 1970, or a time as in 2026-05-01T12:00:00Z, got {quoted(text)}"
        ) from None
    if found.tzinfo is None:
        raise FieldFault(f"must have a time zone, as in {text}Z or {text}+02:00")
    return int(found.timestamp() * 1000)


_QUEUE = parsed("text", _checked_name)
_SECONDS = number(0, 86_400)
_ARRIVAL = whole(0, ARRIVAL_MASK)
_CLASS = whole(0, MOST_CLASS)
_PRIORITY = whole(0, MOST_PRIORITY)
_PARTITIONS = whole(1, MAX_PARTITIONS)
_ROWS = whole(1, MAX_ROWS)
_MODE = choice(Mode)
_PROTOCOL = choice(RemoteProtocol)
_START: Kind[Start | int] = parsed("text", _start)
_END: Kind[int | None] = parsed("text", _end)
_TIME_MS: Kind[int] = parsed("text", _time_ms)
_DELAY_S = 900.0


def _selection(options: Options) -> Selection:
    equal = {
        "class": options.read("class", _CLASS, None),
        "priority": options.read("priority", _PRIORITY, None),
        "label": options.text("label"),
    }
    end = options.read("arrivalTo", _ARRIVAL, None)
    return Selection(
        begin=options.read("arrivalFrom", _ARRIVAL, 0),
        end=ARRIVAL_MASK if end is None else end,
        equal={name: value for name, value in equal.items() if value is not None},
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    options = Options(given, READ)
    options.check_names()
    queues = _queues(options)
    place, rpc = _place(options, queues), _rpc(options)
    several = queues is not None and (len(queues) > 1 or "*" in queues[0])
    if several and rpc is not None:
        raise InvalidArgument("queue: must name one queue with `rpc`, because remote readers cannot list queues")
    decode = options.read("decode", SWITCH, False)
    start_ms = options.read("startingTimestamp", _TIME_MS, None)
    if start_ms is not None and options.text("startingOffsets") is not None:
        raise InvalidArgument("startingTimestamp: must not be set together with `startingOffsets`")
    return ReadOptions(
        place=place,
        queues=queues or (place.queue,),
        rpc=rpc,
        columns=choose(
            options.text("columns"),
            body=options.read("body", SWITCH, True),
            packet=options.read("packet", SWITCH, False),
            queue=several,
            decode=decode,
        ),
        decode=decode,
        selection=_selection(options),
        mode=options.read("mode", _MODE, Mode.PEEK),
        partitions=options.read("partitions", _PARTITIONS, None),
        max_rows=options.read("maxMessagesPerBatch", _ROWS, None),
        max_bytes=options.read("maxBytesPerTrigger", _ROWS, None),
        min_rows=options.read("minOffsetsPerTrigger", _ROWS, None),
        max_delay_s=options.read("maxTriggerDelay", _SECONDS, _DELAY_S),
        start=options.read("startingOffsets", _START, Start.EARLIEST),
        start_ms=start_ms,
        end=options.read("endingOffsets", _END, None),
        fail_on_data_loss=options.read("failOnDataLoss", SWITCH, True),
        hold=options.text("hold") or None,
    )


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch, which reads the messages that are there now."""
    options, found = Options(given, READ), read_options(given)
    for name in _OF_STREAMS:
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: is for readStream; a batch reads all that is there")
    if found.start is Start.LATEST:
        raise InvalidArgument("startingOffsets: must be earliest or a number for spark.read, got latest")
    for one, other in (("startingOffsets", "arrivalFrom"), ("endingOffsets", "arrivalTo")):
        if options.text(one) is not None and options.text(other) is not None:
            raise InvalidArgument(f"{one}: must not be set together with `{other}`, which means the same")
    selection = found.selection
    begin = found.start if isinstance(found.start, int) else selection.begin
    return replace(
        found, selection=replace(selection, begin=begin, end=selection.end if found.end is None else found.end)
    )


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a stream."""
    options, found = Options(given, READ), read_options(given)
    for name, instead in (("arrivalFrom", "startingOffsets"), ("arrivalTo", "endingOffsets")):
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: is for spark.read; use `{instead}` for a stream")
    for name in SELECTING:
        if options.text(name) is not None and (found.mode is Mode.CONSUME or found.rpc is not None):
            raise InvalidArgument(
                f"{name}: needs the mode peek and the option `api`, because a stream that consumes must read every "
                "message; select rows with .where(...)"
            )
    if found.min_rows is not None and found.max_rows is not None and found.min_rows > found.max_rows:
        raise InvalidArgument(
            f"minOffsetsPerTrigger: must be at most {found.max_rows}, as maxMessagesPerBatch is, got {found.min_rows}"
        )
    return found


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = Options(given, WRITE)
    options.check_names()
    if options.text("rpc") is not None:
        raise InvalidArgument(
            "rpc: remote readers can read queues but not send; name the manager to send from with the option `api`"
        )
    return WriteOptions(_place(options), options.text("name") or None, options.read("transactional", SWITCH, None))
