"""Spark's way to a queue manager: through the client, with credentials that no plan shows."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.client.exchange import JSON, Address
from postroad.client.http_backend import ARROW
from postroad.client.payloads import hold_path, queue_path, read_info, submissions_path
from postroad.client.sync.backend import CallerThread, iterate
from postroad.client.sync.transport import Transport
from postroad.columns.ipc import read_batches
from postroad.errors import InvalidArgument, ManagerUnavailable, PostroadError, RemoteProtocolError
from postroad.reports.offsets import HoldInfo, Mark, Plan, Submission
from postroad.spark.options import ARRIVAL_MASK, Place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# A queue manager for Spark's processes: the client's requests to its HTTP API, repeated while it restarts.
#
# Every call here can be made twice without harm, so a broken connection is only a reason to try again.


T = TypeVar("T", bound="DataclassInstance")

ANSWER_S = 120.0  # for an answer's next bytes: a commit on a busy disk takes far less
_NOT_NOW = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class SentPart:
    """The rows of a partition that were sent, the run of the job that sent them, and their digest."""

    rows: int
    run: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sending:
    """What was sent of an epoch, by partition."""

    complete: bool
    parts: Mapping[int, SentPart]


class _NotNow(Exception):
    """There is no whole answer, or one that says to ask again; `error` says so to who asks no more."""

    def __init__(self, error: PostroadError) -> None:
        super().__init__(str(error))
        self.error = error


class _Line:
    """The way to a manager: its address with what proves who calls, and connections. Both are made for the first call
    of a process and do not travel to another one, so a secret that is in a file is read where it is used."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: tuple[Address, Transport] | None = None

    def __reduce__(self) -> tuple[type[_Line], tuple[Place]]:
        return _Line, (self._place,)

    def open(self) -> tuple[Address, Transport]:
        if self._open is None:
            place = self._place
            token, password = place.token, place.password
            if place.token_file is not None:
                token = read_secret("tokenFile", place.token_file)
            if place.password_file is not None:
                password = read_secret("passwordFile", place.password_file)
            address = Address(place.api, token, user=place.user, password=password)
            self._open = address, Transport(address, ANSWER_S)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            CallerThread().run(self._open[1].close())
            self._open = None


class ManagerApi:
    """Calls about one queue. If the manager does not answer, they try again until the place's time-out."""

    def __init__(self, place: Place, *, timeout_s: float | None = None) -> None:
        self.place = place
        self._timeout_s = place.timeout_s if timeout_s is None else min(timeout_s, place.timeout_s)
        self._line = _Line(place)

    def at(self, queue: str) -> ManagerApi:
        """The same for another queue, by the same connections."""
        made = ManagerApi(replace(self.place, queue=queue), timeout_s=self._timeout_s)
        made._line = self._line
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    # Queues

    def queues(self) -> list[dict[str, Any]]:
        """All queues that the user may see: `path`, `type`, `messages` and more of each."""
        return list(self._json("GET", "/queues", member="queues"))

    def mark(self) -> Mark:
        """How far the queue is complete, and how many messages ever came."""
        return self._read(Mark, "GET", self._path("mark"))

    def plan(
        self,
        start: int,
        end: int | None = None,
        *,
        hold: str | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
        parts: int = 1,
        since_ms: int | None = None,
        everything: bool = False,
    ) -> Plan:
        """The messages of a range: how many, and how to divide them. Without an end, up to the mark. `everything`
        includes what others have locked or hold."""
        query = {"from": start, "to": end, "hold": hold, "limit": limit, "bytes": most_bytes, "parts": parts}
        query |= {"since": since_ms, "all": "true" if everything else None}
        return self._read(Plan, "GET", self._path("plan"), query=query)

    def messages(
        self,
        start: int,
        end: int,
        columns: tuple[str, ...],
        *,
        limit: int | None = None,
        hold: str | None = None,
        equal: Mapping[str, object] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages with start <= arrival < end, by arrival; the columns must include `lookup_id`.

        An answer that breaks off is continued from where it ended.
        """
        left = limit
        patience = Patience(self._timeout_s)
        while start < end and left != 0:
            query = {"from": start, "to": end, "limit": left, "columns": ",".join(columns), "hold": hold}
            try:
                for batch in self._batches({**query, **(equal or {})}):
                    patience.renew()
                    if not batch.num_rows:
                        continue
                    yield batch
                    start = (batch.column("lookup_id")[-1].as_py() & ARRIVAL_MASK) + 1
                    left = None if left is None else left - batch.num_rows
                return
            except _NotNow as fault:
                patience.wait(fault.error)

    # Holds

    def holds(self) -> list[dict[str, Any]]:
        """`name`, `from` and `to` of each."""
        return list(self._json("GET", self._path("holds"), member="holds"))

    def hold(self, name: str, start: int, end: int) -> int:
        """Holds a range; returns how many messages it leaves out, because others are receiving them now."""
        path = hold_path(self.place.queue, name)
        return self._read(HoldInfo, "PUT", path, {"from": start, "to": end}).passed_over

    def release(self, name: str) -> None:
        """Releases a hold."""
        self._json("DELETE", hold_path(self.place.queue, name))

    def commit(self, name: str, end: int) -> int:
        """Receives the held messages below `end`; returns how many."""
        path = f"{hold_path(self.place.queue, name)}/commit"
        return int(self._json("POST", path, {"to": end}, member="removed"))

    # Submissions

    def _epoch(self, name: str, epoch: int) -> str:
        return f"{submissions_path(self.place.queue, name)}/{epoch}"

    def submission(self, name: str, epoch: int) -> Sending:
        """What was sent of an epoch before."""
        answer = self._json("GET", self._epoch(name, epoch))
        parts = {each["partition"]: SentPart(each["rows"], each["run"], each["digest"]) for each in answer["parts"]}
        return Sending(bool(answer["complete"]), parts)

    def take_over(self, name: str, epoch: int, partition: int, rows: int, run: str, digest: str) -> None:
        """Goes on with a partition in a new run; TransactionSequence if its first rows are not those that were sent."""
        path = f"{self._epoch(name, epoch)}/{partition}/take-over"
        self._json("POST", path, {"run": run, "rows": rows, "digest": digest})

    def submit(
        self,
        name: str,
        epoch: int,
        partition: int,
        row: int,
        stream: bytes,
        *,
        run: str,
        digest: str,
        transactional: bool | None = None,
    ) -> tuple[int, int]:
        """Sends the rows of an Arrow stream, from number `row` on, except those already sent; returns how many were
        sent, and how many dropped. `digest` is of all rows of the partition up to the last of these."""
        switch = None if transactional is None else str(transactional).lower()
        query = {"row": row, "run": run, "digest": digest, "transactional": switch}
        answer = self._ask("POST", f"{self._epoch(name, epoch)}/{partition}", query, stream, ARROW)
        sent = read_info(Submission, self._line.open()[0].parsed(answer))
        return sent.sent, sent.dropped

    def finish(self, name: str, epoch: int, run: str, *, keep: bool) -> None:
        """Completes this epoch and those before it: nothing more is sent in them. With `keep`, a repeat of this epoch
        is compared with what was sent."""
        query = {"run": run, "keep": str(keep).lower()}
        self._json("POST", f"{self._epoch(name, epoch)}/commit", query=query)

    # Requests

    def _path(self, call: str) -> str:
        return queue_path(self.place.queue, call)

    def _read(
        self, kind: type[T], method: str, path: str, value: object = None, query: Mapping[str, object] | None = None
    ) -> T:
        return read_info(kind, self._json(method, path, value, query))

    def _json(
        self,
        method: str,
        path: str,
        value: object = None,
        query: Mapping[str, object] | None = None,
        *,
        member: str | None = None,
    ) -> Any:
        body = None if value is None else json.dumps(value).encode()
        answer = self._ask(method, path, query, body)
        return self._line.open()[0].parsed(answer, member)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        media_type: str = JSON,
    ) -> bytes:
        patience = Patience(self._timeout_s)
        while True:
            try:
                return b"".join(self._pieces(method, path, query, body, media_type))
            except _NotNow as fault:
                patience.wait(fault.error)

    def _batches(self, query: Mapping[str, object]) -> Iterator[pa.RecordBatch]:
        """Record batches as they come; _NotNow if the answer ends before the stream does."""
        pieces = self._pieces("GET", self._path("messages"), query, accept=ARROW)
        try:
            batches = read_batches(pieces)
            next(batches)  # the schema
            yield from batches
            for _ in pieces:
                pass  # at the end of the answer, the connection can be used again
        except RemoteProtocolError as fault:
            raise _NotNow(ManagerUnavailable(self.place.api, str(fault))) from fault

    def _pieces(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: bytes | None = None,
        media_type: str = JSON,
        accept: str = JSON,
    ) -> Iterator[bytes]:
        """The answer as it comes. _NotNow if it is worth another try, else the error that the manager reports."""
        address, transport = self._line.open()
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = media_type

        async def ask() -> AsyncGenerator[bytes, None]:
            refusal: Exception | None = None
            try:
                async with transport.asking(method, address.target(path, query), headers, body, 0.0) as reply:
                    if reply.status < 300:
                        async for piece in reply.pieces():
                            yield piece
                    else:
                        error = address.error(reply.status, reply.media_type, await reply.read())
                        refusal = _NotNow(error) if reply.status in _NOT_NOW else error
            except ManagerUnavailable as fault:
                raise _NotNow(fault) from fault
            if refusal is not None:
                raise refusal

        return iterate(CallerThread(), ask())


class Patience:
    """How long to try: pauses that grow, and an end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, fault: PostroadError) -> None:
        """Waits for the next try, or raises `fault` if the time is over."""
        if time.monotonic() + self._pause > self._end:
            raise fault from None
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


# Secrets in files: each process reads them where it runs, so no plan, task or checkpoint of Spark contains them.


def read_secret(option: str, file: str) -> str:
    """The only line of a file on this machine. InvalidArgument, with the machine's name, if it cannot be read."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "must be text"
        raise InvalidArgument(f"{option}: {file} cannot be read on {gethostname()}: {why}") from None
    if len(lines) != 1 or not lines[0].strip():
        raise InvalidArgument(f"{option}: {file} on {gethostname()} must contain one line, and nothing else")
    return lines[0].strip()


# A digest of rows in their order, the same however they are divided into batches: it compares a repeat with the first.
#
# Every column has three hashes: of its values, of their lengths, and of its nulls. Each hashes a stream of bytes in
# which the ends of batches do not show.


_SIZE = 16


class RowDigest:
    """`add` rows, and ask for the digest of all so far at any time."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name in batch.schema.names:
            self._add(name, batch.column(name))

    def text(self) -> str:
        whole = blake2b(str(self.rows).encode(), digest_size=_SIZE)
        for name in sorted(self._hashes):
            whole.update(f"{name}\0".encode() + self._hashes[name].digest())
        return whole.hexdigest()

    def _add(self, name: str, values: pa.Array) -> None:
        self._feed(f"{name} valid", np.asarray(values.is_valid()).astype(np.uint8))
        kind = values.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._feed(f"{name} lengths", _numbers(pc.list_value_length(values)))
            self._add(f"{name} items", values.flatten())
        elif pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind):
            plain = values.cast(pa.large_binary()).fill_null(b"")
            bounds = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
            self._feed(f"{name} lengths", np.diff(bounds))
            data = plain.buffers()[2]
            if len(plain) and data is not None:
                self._feed(name, memoryview(data)[int(bounds[0]) : int(bounds[-1])])
        else:
            self._feed(name, _numbers(values))

    def _feed(self, name: str, data: Any) -> None:
        if name not in self._hashes:
            self._hashes[name] = blake2b(digest_size=_SIZE)
        self._hashes[name].update(data)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _numbers(values: pa.Array) -> Any:
    return np.ascontiguousarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
