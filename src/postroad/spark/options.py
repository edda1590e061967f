"""Reads and checks the options of our sources and sinks. Errors start with the option's name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    ca_file: str | None = None  # trusts these issuers of the manager's certificate instead of the machine's
    certificate_file: str | None = None  # of the client; each process reads the file
    key_file: str | None = None


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
    starts: Mapping[str, Start | int]  # of single queues, whose names are in lower case
    start_ms: int | None
    end: int | None
    ends: Mapping[str, int | None]
    end_ms: int | None
    fail_on_data_loss: bool
    hold: str | None
    decode: bool = False

    @property
    def only_queue(self) -> str | None:
        """The name of the queue. None if there are several queues or a pattern."""
        return self.queues[0] if len(self.queues) == 1 and "*" not in self.queues[0] else None

    def start_of(self, queue: str) -> Start | int:
        return self.starts.get(queue.lower(), self.start)

    def end_of(self, queue: str) -> int | None:
        return self.ends.get(queue.lower(), self.end)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    place: Place
    name: str | None
    transactional: bool | None


_PLACE = ("api", "queue", "token", "tokenFile", "timeout", "caFile", "certificateFile", "keyFile")
_ACCOUNT = ("user", "password", "passwordFile")
READ = (
    *_PLACE,
    *("rpc", "protocol", *_ACCOUNT),
    *("mode", "maxMessagesPerBatch", "maxOffsetsPerTrigger", "partitions", "columns", "body", "packet", "decode"),
    *("maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("failOnDataLoss", "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "hold"),
    *("arrivalFrom", "arrivalTo", "class", "priority", "label"),
)
SELECTING = ("class", "priority", "label")
_OF_STREAMS = (
    "maxMessagesPerBatch",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
WRITE = (*_PLACE, *_ACCOUNT, "name", "transactional")
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})  # of a stream that writes
# Options of Kafka's source and sink, and names that other clients have, with ours.
_ELSEWHERE = {
    **dict.fromkeys(("subscribe", "subscribepattern", "assign", "topic"), "queue"),
    **dict.fromkeys(("kafka.bootstrap.servers", "url", "host", "server"), "api"),
    **dict.fromkeys(("groupidprefix", "kafka.group.id"), "hold"),
    **dict.fromkeys(("verify", "ca", "kafka.ssl.truststore.location"), "caFile"),
    **dict.fromkeys(("cert", "certfile", "clientcertificate", "kafka.ssl.keystore.location"), "certificateFile"),
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "minpartitions": "partitions",
    "includeheaders": "decode",
    "kafka.transactional.id": "transactional",
}


class Options:
    """Spark's options. The case of their names does not matter."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}

    def check_names(self) -> None:
        """Raises InvalidArgument for a name that is neither an option of ours nor one that Spark itself adds."""
        if "provider" in self._given:  # of a table in Spark's catalog, which could not be read
            raise InvalidArgument(
                "CREATE TABLE: Spark cannot read a table from a Python source; make a view: "
                "CREATE TEMPORARY VIEW name USING postroad OPTIONS (queue '...')"
            )
        if "path" in self._given and "path" not in self._known:
            raise InvalidArgument("path: must not be set; name a queue with the option `queue`")
        for name in self._given:
            if name not in self._known and name not in _OF_SPARK:
                other = _ELSEWHERE.get(name)
                near = f"; use `{other}`" if other in self._known.values() else suggestion(name, self._known.values())
                raise InvalidArgument(f"{name[:60]}: there is no such option{near}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def read(self, name: str, kind: Kind[T], default: D) -> T | D:
        text = self.text(name)
        return default if text is None else read_text(kind, text.strip(), name)


def is_wanted(queue: str, wanted: Sequence[str]) -> bool:
    """Whether the options name a queue or have a pattern that matches it."""
    named = [each.lower() for each in wanted if "*" not in each]
    return queue.lower() in named or any(expression(each).fullmatch(queue) for each in wanted if "*" in each)


def expression(pattern: str) -> re.Pattern[str]:
    r"""A pattern as a regular expression. `*` does not match `;`, so journals need a pattern such as
    `private$\*;journal`.
    """
    parts = pattern.removeprefix(".\\").split("*")
    return re.compile("[^;]*".join(map(re.escape, parts)), re.IGNORECASE)


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
        elif "=" in each.partition("\\")[0]:  # a format name, as in names.parse_name
            raise InvalidArgument(rf"queue: a pattern must be a path, as in private$\orders*, got {each!r}")
    return found


def _place(options: Options, several: Sequence[str] | None = None, *, has_queue: bool = True) -> Place:
    api = options.read("api", _API, None) or API
    if has_queue and not options.text("queue"):
        raise InvalidArgument(r"queue: is missing; name one, as in .option('queue', r'private$\orders')")
    queue = options.read("queue", _QUEUE, "") if several is None else several[0]
    token, timeout_s = _secret(options, "token"), options.read("timeout", _SECONDS, TIMEOUT_S)
    account = _Account() if options.text("rpc") is not None else _account(options)
    if account.user is not None and token != _NONE:
        raise InvalidArgument("user: must not be set together with `token` or `tokenFile`")
    if account.user is not None and account.password == _NONE:
        raise InvalidArgument("user: needs the option `password` or `passwordFile`")
    (password, password_file), (given, token_file) = account.password, token
    files = [options.text(name) or None for name in _TLS]
    for name, file in zip(_TLS, files, strict=True):
        if file is not None and not api.startswith("https:") and options.text("rpc") is None:
            raise InvalidArgument(f"{name}: needs an `api` with https, got {api}")
    if files[2] is not None and files[1] is None:
        raise InvalidArgument("keyFile: needs the option `certificateFile`")
    return Place(api.rstrip("/"), queue, given, timeout_s, account.user, password, token_file, password_file, *files)


_TLS = ("caFile", "certificateFile", "keyFile")


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
    "endingTimestamp": "needs the option `api`: remote readers cannot find a message by its time",
    **dict.fromkeys(_TLS, "needs the option `api`; remote readers do not use TLS"),
    "maxBytesPerTrigger": "needs the option `api`; for a stream from `rpc` use `maxMessagesPerBatch`",
    "minOffsetsPerTrigger": "needs the option `api`: remote readers cannot count messages",
}


def _checked_name(text: str) -> str:
    parse_name(text)
    return text


def _api(text: str) -> str:
    try:
        return URL.check(text)
    except FieldFault:
        parts = urlsplit(f"//{text}")
        bare = "//" not in text and "@" not in text and parts.hostname
        hint = f"; write http://{text} or https://{text}" if bare else ""
        shown = quoted(re.sub(r"//[^/]*@", "//...@", text))  # it may have a password
        raise FieldFault(f"must be an http or https URL, as in {API}, got {shown}{hint}") from None


def _start(text: str) -> Start | int:
    if text.lower() in ("earliest", "latest"):
        return Start(text.lower())
    number = _arrival(text)
    if number is None:
        raise FieldFault(
            f"must be earliest, latest, an arrival number or JSON with one for each queue, got {quoted(text)}"
        )
    return number


def _end(text: str) -> int | None:
    if text.lower() == "latest":
        return None
    number = _arrival(text)
    if number is None:
        raise FieldFault(
            f"must be latest, the arrival number after the last or JSON with one for each queue, got {quoted(text)}"
        )
    return number


def _arrival(text: str) -> int | None:
    """An arrival number. None for other text."""
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_number and int(text) <= ARRIVAL_MASK else None


def _by_queue(
    options: Options, name: str, read: Callable[[str], T], queues: Sequence[str]
) -> tuple[T | None, dict[str, T]]:
    """The value for all queues, if there is one, and those of single queues by their names in lower case."""
    text = (options.text(name) or "").strip()
    if not text.startswith("{"):
        return options.read(name, parsed("text", read), None), {}
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{name}: must be JSON, as in {_EXAMPLE}, got {text[:60]!r}") from None
    found: dict[str, T] = {}
    for queue, value in pairs:
        if not is_wanted(queue, queues):
            raise InvalidArgument(f"{name}: {queue[:60]!r} must be one of the queues of the option `queue`")
        if queue.lower() in found:
            raise InvalidArgument(f"{name}: {queue!r} must be given once, got it twice")
        # -2 and -1 as Kafka has them
        is_plain = isinstance(value, int | str) and not isinstance(value, bool)
        plain = _WORDS.get(value, str(value)) if is_plain else str(value)[:60]
        try:
            found[queue.lower()] = read(plain)
        except FieldFault as fault:
            raise InvalidArgument(f"{name}: {queue}: {fault}") from None
    return None, found


_EXAMPLE = r'{"private$\\orders": 17, "private$\\returns": "latest"}'
_WORDS: Mapping[object, str] = {-2: "earliest", -1: "latest"}


def _time_ms(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < len(str(_LAST_MS)):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FieldFault(
            f"must be milliseconds since 1970, or a time as in 2026-05-01T12:00:00Z, got {quoted(text)}"
        ) from None
    if found.tzinfo is None:
        raise FieldFault(f"must have a time zone, as in {text}Z or {text}+02:00")
    return max(0, int(found.timestamp() * 1000))


_LAST_MS = 1 << 53  # JSON numbers are exact up to here


_QUEUE = parsed("text", _checked_name)
_SECONDS = number(0, 86_400)
_ARRIVAL = whole(0, ARRIVAL_MASK)
_CLASS = whole(0, MOST_CLASS)
_PRIORITY = whole(0, MOST_PRIORITY)
_PARTITIONS = whole(1, MAX_PARTITIONS)
_ROWS = whole(1, MAX_ROWS)
_MODE = choice(Mode)
_PROTOCOL = choice(RemoteProtocol)
_API = parsed("text", _api, 2048)
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
    for name, other in _EXCLUSIVE:
        if options.text(name) is not None and options.text(other) is not None:
            raise InvalidArgument(f"{name}: must not be set together with `{other}`")
    start, starts = _by_queue(options, "startingOffsets", _start, queues or ())
    end, ends = _by_queue(options, "endingOffsets", _end, queues or ())
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
        max_rows=options.read("maxMessagesPerBatch", _ROWS, options.read("maxOffsetsPerTrigger", _ROWS, None)),
        max_bytes=options.read("maxBytesPerTrigger", _ROWS, None),
        min_rows=options.read("minOffsetsPerTrigger", _ROWS, None),
        max_delay_s=options.read("maxTriggerDelay", _SECONDS, _DELAY_S),
        start=Start.EARLIEST if start is None else start,
        starts=starts,
        start_ms=options.read("startingTimestamp", _TIME_MS, None),
        end=end,
        ends=ends,
        end_ms=options.read("endingTimestamp", _TIME_MS, None),
        fail_on_data_loss=options.read("failOnDataLoss", SWITCH, True),
        hold=options.text("hold") or None,
    )


_EXCLUSIVE = (
    ("startingTimestamp", "startingOffsets"),
    ("endingTimestamp", "endingOffsets"),
    ("maxOffsetsPerTrigger", "maxMessagesPerBatch"),
)


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch, which reads the messages that are there now."""
    options, found = Options(given, READ), read_options(given)
    for name in _OF_STREAMS:
        if options.text(name) is not None:
            raise InvalidArgument(f"{name}: is for readStream; a batch reads all that is there")
    if Start.LATEST in (found.start, *found.starts.values()):
        raise InvalidArgument("startingOffsets: must be earliest or a number for spark.read, got latest")
    for one, other in (("startingOffsets", "arrivalFrom"), ("endingOffsets", "arrivalTo")):
        if options.text(one) is not None and options.text(other) is not None:
            raise InvalidArgument(f"{one}: must not be set together with `{other}`, which means the same")
    return found


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


def write_options(given: Mapping[str, str], *, has_queues: bool = False) -> WriteOptions:
    """The options of a write. With `has_queues`, its rows name their queues."""
    options = Options(given, WRITE)
    if options.text("rpc") is not None:
        raise InvalidArgument(
            "rpc: remote readers can read queues but not send; name the manager to send from with the option `api`"
        )
    options.check_names()
    if has_queues and options.text("queue"):
        raise InvalidArgument(
            "queue: must not be set, because the rows have a column `queue`; to send all rows to one queue, drop the "
            "column"
        )
    place = _place(options, has_queue=not has_queues)
    return WriteOptions(place, options.text("name") or None, options.read("transactional", SWITCH, None))
