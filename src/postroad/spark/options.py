"""The options of our sources and sinks, read from Spark's text and checked. Errors start with the option's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

from postroad.errors import InvalidArgument
from postroad.fields.kinds import SWITCH, URL, FieldFault, Kind, choice, number, parsed, quoted, suggestion, whole
from postroad.fields.tables import read_text
from postroad.names import parse_name
from postroad.net import ports
from postroad.net.endpoints import endpoint
from postroad.spark.schema import choose

API = "http://127.0.0.1:8180"  # a manager on this machine with the default configuration
TIMEOUT_S = 60.0  # time for a manager to restart
MAX_PARTITIONS = 10_000
MAX_ROWS = 1_000_000_000
ARRIVAL_MASK = (1 << 56) - 1  # of a lookup id; the bits above are the priority
MOST_CLASS = 0xFFFF
MOST_PRIORITY = 7
T = TypeVar("T")
D = TypeVar("D")


class Mode(Enum):
    """What happens to messages that a stream has read."""

    PEEK = "peek"
    CONSUME = "consume"


class Start(Enum):
    """Where a stream without a checkpoint begins, if not at a number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue of a manager, and how long to wait for a manager that does not answer."""

    api: str
    queue: str
    token: str | None = field(repr=False)
    timeout_s: float
    user: str | None = None  # logs in instead of the token
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a queue: begin <= arrival number < end, and further conditions for the manager."""

    begin: int
    end: int
    equal: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rpc:
    """A server to read from by MS-MQQP, and the user."""

    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)

    def __str__(self) -> str:
        return endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """With `rpc`, the queue is one of that server, and the API is not used."""

    place: Place
    rpc: Rpc | None
    columns: tuple[str, ...]
    selection: Selection
    mode: Mode
    partitions: int | None
    max_rows: int | None
    start: Start | int
    fail_on_data_loss: bool
    hold: str | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    place: Place
    name: str | None
    transactional: bool | None


_PLACE = ("api", "queue", "token", "timeout")
_ACCOUNT = ("user", "password")
READ = (
    *_PLACE,
    *("rpc", *_ACCOUNT),
    *("mode", "maxMessagesPerBatch", "partitions", "columns", "body", "packet"),
    *("failOnDataLoss", "startingOffsets", "hold"),
    *("arrivalFrom", "arrivalTo", "class", "priority", "label"),
)
SELECTING = READ[-5:]
WRITE = (*_PLACE, *_ACCOUNT, "name", "transactional")


class Options:
    """Spark's options, regardless of the case of their names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}

    def check_names(self) -> None:
        """InvalidArgument for an option that is nearly one of ours. Others may be Spark's own."""
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


def _place(options: Options) -> Place:
    api = options.read("api", URL, None) or API
    if not options.text("queue"):
        raise InvalidArgument(r"queue: is missing; name one, as in .option('queue', r'private$\orders')")
    queue = options.read("queue", _QUEUE, "")
    token, timeout_s = options.text("token") or None, options.read("timeout", _SECONDS, TIMEOUT_S)
    user, password = (None, None) if options.text("rpc") is not None else _account(options)
    if user is not None and (password is None or token is not None):
        raise InvalidArgument(f"user: {'needs the option `password`' if token is None else 'excludes `token`'}")
    return Place(api.rstrip("/"), queue, token, timeout_s, user, password)


def _account(options: Options) -> tuple[str | None, str | None]:
    user, password = (options.text(name) or None for name in _ACCOUNT)
    if password is not None and user is None:
        raise InvalidArgument("password: needs the option `user`")
    return user, password


def _rpc(options: Options) -> Rpc | None:
    text = options.text("rpc")
    if text is None:
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
    return Rpc(host, port, *_account(options))


_NOT_BY_RPC = {
    "api": "must not be set together with `rpc`",
    "token": "needs the option `api`; a server behind `rpc` takes `user` and `password`",
    "hold": "needs the option `api`: MS-MQQP cannot hold messages for a stream",
    "startingOffsets": "needs the option `api`: a stream from `rpc` starts with what is in the queue",
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


_QUEUE = parsed("text", _checked_name)
_SECONDS = number(0, 86_400)
_ARRIVAL = whole(0, ARRIVAL_MASK)
_START: Kind[Start | int] = parsed("text", _start)


def _selection(options: Options) -> Selection:
    equal = {
        "class": options.read("class", whole(0, MOST_CLASS), None),
        "priority": options.read("priority", whole(0, MOST_PRIORITY), None),
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
    return ReadOptions(
        place=_place(options),
        rpc=_rpc(options),
        columns=choose(
            options.text("columns"),
            body=options.read("body", SWITCH, True),
            packet=options.read("packet", SWITCH, False),
        ),
        selection=_selection(options),
        mode=options.read("mode", choice(Mode), Mode.PEEK),
        partitions=options.read("partitions", whole(1, MAX_PARTITIONS), None),
        max_rows=options.read("maxMessagesPerBatch", whole(1, MAX_ROWS), None),
        start=options.read("startingOffsets", _START, Start.EARLIEST),
        fail_on_data_loss=options.read("failOnDataLoss", SWITCH, True),
        hold=options.text("hold") or None,
    )


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The same for a stream, which takes the whole queue."""
    options = Options(given, READ)
    for name in SELECTING:
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: a stream must read every message; select rows with .where(...)")
    return read_options(given)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = Options(given, WRITE)
    options.check_names()
    if options.text("rpc") is not None:
        raise InvalidArgument(
            "rpc: MS-MQQP can read queues but not send; name the manager to send from with the option `api`"
        )
    return WriteOptions(_place(options), options.text("name") or None, options.read("transactional", SWITCH, None))
