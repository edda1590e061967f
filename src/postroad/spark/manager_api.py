"""Access to a queue manager from Spark's processes, without credentials in Spark's plans."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
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
from postroad.client.sync.transport import Transport
from postroad.columns.ipc import read_batches
from postroad.errors import InvalidArgument, ManagerUnavailable, PostroadError, RemoteProtocolError
from postroad.reports.offsets import HoldInfo, Mark, Plan, Submission
from postroad.spark.options import ARRIVAL_MASK, Place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# A queue manager for Spark's processes: the client's requests to its HTTP API, repeated while the manager restarts.
#
# Every call here can be repeated without harm, so after a broken connection it is simply made again.


T = TypeVar("T", bound="DataclassInstance")

ANSWER_S = 120.0  # to wait for the next bytes of an answer; a commit on a busy disk takes far less
_NOT_NOW = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class SentPart:
    """The rows of a partition that were sent so far: their number, the run of the job that sent them, and their
    digest."""

    rows: int
    run: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sending:
    """What was sent so far of an epoch, by partition."""

    complete: bool
    parts: Mapping[int, SentPart]


class _TryAgain(Exception):
    """The call may succeed later. `error` is what to raise if there is no time to try again."""

    def __init__(self, error: PostroadError) -> None:
        super().__init__(str(error))
        self.error = error


class _Connection:
    """The address, credentials and connections for a manager.

    They are created at the first call in a process and are not pickled. So each process reads secret files for itself.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: tuple[Address, Transport] | None = None

    def __reduce__(self) -> tuple[type[_Connection], tuple[Place]]:
        return _Connection, (self._place,)

    def open(self) -> tuple[Address, Transport]:
        if self._open is None:
            place = self._place
            token, password = place.token, place.password
            if place.token_file is not None:
                token = read_secret("tokenFile", place.token_file)
            if place.password_file is not None:
                password = read_secret("passwordFile", place.password_file)
            try:
                address = Address(
                    *(place.api, token, place.certificate_file, place.key_file, place.user, password),
                    ca_file=place.ca_file,
                )
            except InvalidArgument as fault:  # a file, which each machine has or has not
                name, _, why = str(fault).partition(": ")
                if name not in _OPTIONS:
                    raise
                raise InvalidArgument(f"{_OPTIONS[name]}: {why}, on {gethostname()}") from None
            self._open = address, Transport(address, ANSWER_S)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open[1].disconnect()
            self._open = None


_OPTIONS = {"ca_file": "caFile", "client_certificate": "certificateFile"}  # the client's names, and ours


class ManagerApi:
    """Calls about one queue. While the manager does not answer, a call is repeated until the time-out of the place."""

    def __init__(self, place: Place, *, timeout_s: float | None = None) -> None:
        self.place = place
        self._timeout_s = place.timeout_s if timeout_s is None else min(timeout_s, place.timeout_s)
        self._connection = _Connection(place)

    def at(self, queue: str) -> ManagerApi:
        """The same API for another queue, over the same connections."""
        made = ManagerApi(replace(self.place, queue=queue), timeout_s=self._timeout_s)
        made._connection = self._connection
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Queues

    def queues(self) -> list[dict[str, Any]]:
        """All queues that the user may see: `path`, `type`, `messages` and more of each."""
        return list(self._json("GET", "/queues", member="queues"))

    def mark(self) -> Mark:
        """Up to which arrival number the queue is complete, and how many messages have ever arrived."""
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
        """Counts and divides the messages of a range. Without `end`, the range ends at the mark.

        `everything` includes messages that other readers have locked or hold.
        """
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
        """The messages with start <= arrival < end, by arrival. The columns must include `lookup_id`.

        If an answer breaks off, the next request continues from there.
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
            except _TryAgain as fault:
                patience.wait(fault.error)

    # Holds

    def holds(self) -> list[dict[str, Any]]:
        """The holds of the queue: `name`, `from` and `to` of each."""
        return list(self._json("GET", self._path("holds"), member="holds"))

    def hold(self, name: str, start: int, end: int) -> int:
        """Holds a range. Returns how many messages it leaves out because others are receiving them."""
        path = hold_path(self.place.queue, name)
        return self._read(HoldInfo, "PUT", path, {"from": start, "to": end}).passed_over

    def release(self, name: str) -> None:
        """Releases a hold."""
        self._json("DELETE", hold_path(self.place.queue, name))

    def commit(self, name: str, end: int) -> int:
        """Receives the held messages below `end`. Returns how many."""
        path = f"{hold_path(self.place.queue, name)}/commit"
        return int(self._json("POST", path, {"to": end}, member="removed"))

    # Submissions

    def _epoch(self, name: str, epoch: int) -> str:
        return f"{submissions_path(self.place.queue, name)}/{epoch}"

    def submission(self, name: str, epoch: int) -> Sending:
        """What earlier runs have sent of an epoch."""
        answer = self._json("GET", self._epoch(name, epoch))
        parts = {each["partition"]: SentPart(each["rows"], each["run"], each["digest"]) for each in answer["parts"]}
        return Sending(bool(answer["complete"]), parts)

    def take_over(self, name: str, epoch: int, partition: int, rows: int, run: str, digest: str) -> None:
        """Continues a partition in a new run. Raises TransactionSequence if its first rows differ from those sent."""
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
        """Sends the rows of an Arrow stream, numbered from `row`. The manager drops those that were sent before.

        `digest` covers all rows of the partition up to the last of these. Returns how many were sent and how many
        dropped.
        """
        switch = None if transactional is None else str(transactional).lower()
        query = {"row": row, "run": run, "digest": digest, "transactional": switch}
        answer = self._ask("POST", f"{self._epoch(name, epoch)}/{partition}", query, stream, ARROW)
        sent = read_info(Submission, self._connection.open()[0].parsed(answer))
        return sent.sent, sent.dropped

    def finish(self, name: str, epoch: int, run: str, *, keep: bool) -> None:
        """Completes this epoch and all before it, so that nothing more can be sent in them.

        With `keep`, the manager compares a repeat of this epoch with what was sent.
        """
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
        return self._connection.open()[0].parsed(answer, member)

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
            except _TryAgain as fault:
                patience.wait(fault.error)

    def _batches(self, query: Mapping[str, object]) -> Iterator[pa.RecordBatch]:
        """Yields record batches as they arrive. Raises _TryAgain if the answer ends before the stream does."""
        pieces = self._pieces("GET", self._path("messages"), query, accept=ARROW)
        try:
            batches = read_batches(pieces)
            next(batches)  # an empty batch that only has the schema
            yield from batches
            for _ in pieces:
                pass  # read to the end, so that the connection can be used again
        except RemoteProtocolError as fault:
            raise _TryAgain(ManagerUnavailable(self.place.api, str(fault))) from fault

    def _pieces(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: bytes | None = None,
        media_type: str = JSON,
        accept: str = JSON,
    ) -> Iterator[bytes]:
        """Yields the answer as it arrives. Raises _TryAgain if another try may succeed, or else the manager's error."""
        address, transport = self._connection.open()
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = media_type

        refusal: Exception | None = None
        try:
            with transport.reply(method, address.target(path, query), headers, body, 0.0) as reply:
                if reply.status < 300:
                    yield from reply.parts()
                else:
                    error = address.error(reply.status, reply.media_type, reply.read_all())
                    refusal = _TryAgain(error) if reply.status in _NOT_NOW else error
        except ManagerUnavailable as fault:
            raise _TryAgain(fault) from fault
        if refusal is not None:
            raise refusal


class Patience:
    """Decides how long to retry: the pauses grow, and end with the time-out."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, fault: PostroadError) -> None:
        """Sleeps until the next try. Raises `fault` if no time is left."""
        if time.monotonic() + self._pause > self._end:
            raise fault from None
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


# Secrets in files. Each process reads them where it runs, so Spark's plans, tasks and checkpoints have no secrets.


def read_secret(option: str, file: str) -> str:
    """The only line of a file on this machine. Raises InvalidArgument, with the machine's name, if it cannot be
    read."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "must be text"
        raise InvalidArgument(f"{option}: {file} cannot be read on {gethostname()}: {why}") from None
    if len(lines) != 1 or not lines[0].strip():
        raise InvalidArgument(f"{option}: {file} on {gethostname()} must contain exactly one line")
    return lines[0].strip()


# A digest of rows in their order, which does not depend on how they are divided into batches. It shows whether a repeat
# has the same rows.
#
# Every column has three hashes: of its values, of their lengths, and of its nulls. Each hashes one continuous stream of
# bytes, so the ends of batches leave no trace.


_SIZE = 16


class RowDigest:
    """A digest of all rows added so far. `text` can be called at any time."""

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
