"""The options of our sources and sinks: read from Spark's text, checked, and each fault told by the option's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

from postroad.errors import IllegalName, InvalidArgument
from postroad.names import parse_name
from postroad.net import ports
from postroad.net.endpoints import endpoint
from postroad.spark.schema import choose, suggestion

API = "http://127.0.0.1:8180"  # of a manager on this machine that was started without a configuration
TIMEOUT_S = 60.0  # for a manager that is being started again
MAX_PARTITIONS = 10_000
MAX_ROWS = 1_000_000_000
ARRIVAL_MASK = (1 << 56) - 1  # of a lookup id; what is above it is the priority
MOST_CLASS = 0xFFFF
MOST_PRIORITY = 7
_TRUTHS = {"true": True, "false": False}
T = TypeVar("T")


class Mode(Enum):
    """What becomes of messages that a stream has read."""

    PEEK = "peek"
    CONSUME = "consume"


class Start(Enum):
    """Where a stream without a checkpoint begins, if not at a number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """Which queue of which manager, and how long to go on asking a manager that does not answer."""

    api: str
    queue: str
    token: str | None = field(repr=False)
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a queue: begin <= arrival number < end, and what else the manager is asked to compare."""

    begin: int
    end: int
    equal: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rpc:
    """A server to read from by MS-MQQP, and who reads."""

    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)

    def __str__(self) -> str:
        return endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """With `rpc` the place's queue is one of that server, and its API is not used."""

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
WRITE = (*_PLACE, "name", "transactional")


class Options:
    """Spark's options, whatever the case of their names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}

    def check_names(self) -> None:
        """InvalidArgument for an option that is nearly one of ours. Others may be Spark's own, and are left alone."""
        if "path" in self._given and "path" not in self._known:
            raise InvalidArgument("path: a queue is not a path; name it by the option `queue`")
        for name in self._given:
            if name not in self._known:
                near = suggestion(name, self._known)
                if "did you mean" in near:
                    raise InvalidArgument(f"{name}: there is no such option{near}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def read(self, name: str, kind: Callable[[str], T], wanted: str, default: T) -> T:
        text = self.text(name)
        if text is None:
            return default
        try:
            return kind(text.strip())
        except (ValueError, KeyError):
            raise InvalidArgument(f"{name}: {text!r} is not {wanted}") from None

    def truth(self, name: str, default: bool) -> bool:
        return self.read(name, lambda text: _TRUTHS[text.lower()], "true or false", default)

    def whole(self, name: str, most: int, least: int = 1) -> int | None:
        def kind(text: str) -> int | None:
            if not least <= int(text) <= most:
                raise ValueError
            return int(text)

        return self.read(name, kind, f"a whole number between {least} and {most}", None)

    def word(self, name: str, words: type[Enum], default: T) -> T:
        listed = " or ".join(each.value for each in words)
        return self.read(name, lambda text: words(text.lower()), listed, default)  # type: ignore[arg-type,return-value]


def _place(options: Options) -> Place:
    api = options.text("api") or API
    parts = urlsplit(api)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidArgument(f"api: {api!r} is not the address of an HTTP API, as in {API}")
    queue = options.text("queue")
    if not queue:
        raise InvalidArgument(r"queue: it is missing; name one, as in .option('queue', r'private$\orders')")
    try:
        parse_name(queue)
    except IllegalName as fault:
        raise InvalidArgument(f"queue: {fault}") from None
    return Place(api.rstrip("/"), queue, options.text("token") or None, _timeout(options))


def _rpc(options: Options) -> Rpc | None:
    text = options.text("rpc")
    if text is None:
        for name in _ACCOUNT:
            if options.text(name) is not None:
                raise InvalidArgument(f"{name}: it goes with the option `rpc`; an HTTP API wants a `token`")
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
        raise InvalidArgument(f"rpc: {text!r} is not a host, as in winserver or 10.0.0.5:2103")
    user, password = (options.text(name) or None for name in _ACCOUNT)
    if password is not None and user is None:
        raise InvalidArgument("password: there is no `user` that it is of")
    return Rpc(host, port, user, password)


_NOT_BY_RPC = {
    "api": "a queue is read by `api` or by `rpc`, not by both",
    "token": "it goes with the option `api`; a server that is read by `rpc` wants `user` and `password`",
    "hold": "MS-MQQP holds no messages for a stream; use the option `api`",
    "startingOffsets": "a stream by `rpc` begins with what is in the queue",
}


def _timeout(options: Options) -> float:
    def kind(text: str) -> float:
        if not 0 <= float(text) <= 86_400:
            raise ValueError
        return float(text)

    return options.read("timeout", kind, "a number of seconds between 0 and 86400", TIMEOUT_S)


def _start(text: str) -> Start | int:
    if text.lower() in ("earliest", "latest"):
        return Start(text.lower())
    if int(text) < 0:
        raise ValueError
    return int(text)


def _selection(options: Options) -> Selection:
    equal = {
        "class": options.whole("class", MOST_CLASS, 0),
        "priority": options.whole("priority", MOST_PRIORITY, 0),
        "label": options.text("label"),
    }
    end = options.whole("arrivalTo", ARRIVAL_MASK, 0)
    return Selection(
        begin=options.whole("arrivalFrom", ARRIVAL_MASK, 0) or 0,
        end=ARRIVAL_MASK if end is None else end,
        equal={name: value for name, value in equal.items() if value is not None},
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    options = Options(given, READ)
    options.check_names()
    wanted = "earliest, latest or an arrival number"
    return ReadOptions(
        place=_place(options),
        rpc=_rpc(options),
        columns=choose(
            options.text("columns"), body=options.truth("body", True), packet=options.truth("packet", False)
        ),
        selection=_selection(options),
        mode=options.word("mode", Mode, Mode.PEEK),
        partitions=options.whole("partitions", MAX_PARTITIONS),
        max_rows=options.whole("maxMessagesPerBatch", MAX_ROWS),
        start=options.read("startingOffsets", _start, wanted, _start("earliest")),
        fail_on_data_loss=options.truth("failOnDataLoss", True),
        hold=options.text("hold") or None,
    )


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The same for a stream, which takes the whole of a queue."""
    options = Options(given, READ)
    for name in SELECTING:
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: a stream takes what comes; select from its rows with .where(...)")
    return read_options(given)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = Options(given, WRITE)
    options.check_names()
    if options.text("rpc") is not None:
        raise InvalidArgument(
            "rpc: MS-MQQP reads queues and cannot send; name a manager to send from by the option `api`"
        )
    transactional = None if options.text("transactional") is None else options.truth("transactional", False)
    return WriteOptions(_place(options), options.text("name") or None, transactional)
