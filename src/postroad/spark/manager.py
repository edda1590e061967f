"""A queue manager for Spark's processes: its HTTP API by plain blocking calls, repeated while it restarts.

Every call here can be made twice without harm, so a broken connection is only a reason to try again.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from postroad.client.tls import client_context
from postroad.columns.ipc import read_batches
from postroad.errors import ManagerUnavailable, PostroadError, RemoteProtocolError, rebuild_error
from postroad.spark.credentials import read_secret
from postroad.spark.options import ARRIVAL_MASK, Place
from postroad.values.offsets import Mark, Plan
from postroad.values.plain import from_json
from postroad.version import __version__

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

API = "/api/v1"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
PROBLEM = "application/problem+json"
ANSWER_S = 120.0  # for an answer's next bytes: a commit on a busy disk takes far less
_RETRIED = (502, 503, 504)
_PIECE = 1 << 18
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_PROBLEM_MEMBERS = frozenset({"type", "title", "status", "detail", "instance", "hresult", "code", "error"})


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


@dataclass(slots=True)
class _Line:
    """The connection to a manager, if there is one now."""

    connection: http.client.HTTPConnection | None = None


class _Broken(Exception):
    """The connection, or the server behind it, failed: worth another try."""


def _credentials(place: Place) -> dict[str, str]:
    token = place.token if place.token_file is None else read_secret("tokenFile", place.token_file)
    if token is not None:
        return {"Authorization": f"Bearer {token}"}
    if place.user is None:
        return {}
    password = place.password if place.password_file is None else read_secret("passwordFile", place.password_file)
    return {"Authorization": f"Basic {b64encode(f'{place.user}:{password}'.encode()).decode()}"}


class ManagerApi:
    """Calls about one queue. If the manager does not answer, they try again until the place's time-out."""

    def __init__(self, place: Place, *, timeout_s: float | None = None) -> None:
        self.place = place
        self._timeout_s = place.timeout_s if timeout_s is None else min(timeout_s, place.timeout_s)
        parts = urlsplit(place.api)
        self._host, self._port = parts.hostname or "", parts.port
        self._secure = parts.scheme == "https"
        self._queues = f"{parts.path.rstrip('/')}{API}/queues"
        self._base = f"{self._queues}/{quote(place.queue, safe='')}"
        self._headers = {"User-Agent": f"postroad-spark/{__version__}"}
        self._headers |= _credentials(place)
        self._line = _Line()

    def at(self, queue: str) -> ManagerApi:
        """The same for another queue, by the same connection."""
        made = ManagerApi(replace(self.place, queue=queue), timeout_s=self._timeout_s)
        made._line = self._line
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._line.connection is not None:
            self._line.connection.close()
            self._line.connection = None

    # Queues

    def queues(self) -> list[dict[str, Any]]:
        """All queues that the user may see: `path`, `type`, `messages` and more of each."""
        return list(self._parsed(self._asked("GET", self._queues))["queues"])

    def mark(self) -> Mark:
        """How far the queue is complete, and how many messages ever came."""
        return self._read(Mark, "/mark")

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
        return self._read(Plan, f"/plan?{_query(query)}")

    def _read(self, kind: type[T], path: str) -> T:
        try:
            return from_json(kind, self._json("GET", path))
        except (LookupError, TypeError):
            raise RemoteProtocolError(
                f"{self.place.api} must answer with a {kind.__name__.lower()}, but has another version; "
                "use the same version of Postroad for the manager and for Spark"
            ) from None

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
                for batch in self._stream("/messages", {**query, **(equal or {})}):
                    patience.renew()
                    if not batch.num_rows:
                        continue
                    yield batch
                    start = (batch.column("lookup_id")[-1].as_py() & ARRIVAL_MASK) + 1
                    left = None if left is None else left - batch.num_rows
                return
            except _Broken as fault:
                patience.wait(ManagerUnavailable(self.place.api, str(fault)))

    # Holds

    def holds(self) -> list[dict[str, Any]]:
        """`name`, `from` and `to` of each."""
        return list(self._json("GET", "/holds")["holds"])

    def hold(self, name: str, start: int, end: int) -> int:
        """Holds a range; returns how many messages it leaves out, because others are receiving them now."""
        answer = self._json("PUT", f"/holds/{quote(name, safe='')}", {"from": start, "to": end})
        return int(answer["passed_over"])

    def release(self, name: str) -> None:
        """Releases a hold."""
        self._json("DELETE", f"/holds/{quote(name, safe='')}")

    def commit(self, name: str, end: int) -> int:
        """Receives the held messages below `end`; returns how many."""
        return int(self._json("POST", f"/holds/{quote(name, safe='')}/commit", {"to": end})["removed"])

    # Submissions

    def submission(self, name: str, epoch: int) -> Sending:
        """What was sent of an epoch before."""
        answer = self._json("GET", f"/submissions/{quote(name, safe='')}/{epoch}")
        parts = {each["partition"]: SentPart(each["rows"], each["run"], each["digest"]) for each in answer["parts"]}
        return Sending(bool(answer["complete"]), parts)

    def take_over(self, name: str, epoch: int, partition: int, rows: int, run: str, digest: str) -> None:
        """Goes on with a partition in a new run; TransactionSequence if its first rows are not those that were sent."""
        path = f"/submissions/{quote(name, safe='')}/{epoch}/{partition}/take-over"
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
        path = f"/submissions/{quote(name, safe='')}/{epoch}/{partition}?row={row}&run={run}&digest={digest}"
        if transactional is not None:
            path += f"&transactional={str(transactional).lower()}"
        answer = self._parsed(self._asked("POST", f"{self._base}{path}", stream, ARROW))
        return int(answer["sent"]), int(answer["dropped"])

    def finish(self, name: str, epoch: int, run: str, *, keep: bool) -> None:
        """Completes this epoch and those before it: nothing more is sent in them. With `keep`, a repeat of this epoch
        is compared with what was sent."""
        self._json("POST", f"/submissions/{quote(name, safe='')}/{epoch}/commit?run={run}&keep={str(keep).lower()}")

    # Requests

    def _json(self, method: str, path: str, value: object = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        return self._parsed(self._asked(method, f"{self._base}{path}", body))

    def _parsed(self, answer: bytes) -> Any:
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise RemoteProtocolError(f"{self.place.api} must answer with JSON; is it a queue manager?") from None

    def _asked(self, method: str, path: str, body: bytes | None = None, media_type: str = JSON) -> bytes:
        patience = Patience(self._timeout_s)
        while True:
            try:
                return self._answer(method, path, body, media_type, JSON).read()
            except _Broken as fault:
                reason = str(fault)
            except (OSError, http.client.HTTPException) as fault:
                reason = _reason(fault)
                self.close()
            patience.wait(ManagerUnavailable(self.place.api, reason))

    def _stream(self, path: str, query: Mapping[str, object]) -> Iterator[pa.RecordBatch]:
        """Record batches as they come; _Broken if the connection ends before the stream does."""
        answer = self._answer("GET", f"{self._base}{path}?{_query(query)}", None, JSON, ARROW)
        whole = False
        try:
            batches = read_batches(iter(lambda: answer.read1(_PIECE), b""))
            next(batches)  # the schema
            yield from batches
            whole = not answer.read(1)  # at the end of the answer, the connection can be used again
        except (OSError, http.client.HTTPException, RemoteProtocolError) as fault:
            raise _Broken(_reason(fault)) from fault
        finally:
            if not whole:
                self.close()

    def _answer(
        self, method: str, path: str, body: bytes | None, media_type: str, accept: str
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = media_type
        kept = self._line.connection is not None
        try:
            connection = self._connected()
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            if kept:  # the server closes idle connections: that is no fault
                return self._answer(method, path, body, media_type, accept)
            raise _Broken(_reason(fault)) from fault
        if answer.status < 300:
            return answer
        content, kind = answer.read(), answer.headers.get_content_type()
        raise self._fault(answer.status, kind, content)

    def _connected(self) -> http.client.HTTPConnection:
        line = self._line
        if line.connection is None:
            if self._secure:
                context = client_context() or ssl.create_default_context()
                line.connection = http.client.HTTPSConnection(self._host, self._port, timeout=ANSWER_S, context=context)
            else:
                line.connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        return line.connection

    def _fault(self, status: int, kind: str, content: bytes) -> Exception:
        problem = self._parsed(content) if kind == PROBLEM else None
        if not isinstance(problem, dict):
            reason = f"it answered with the status {status}, and not as a queue manager"
            return _Broken(reason) if status in _RETRIED else ManagerUnavailable(self.place.api, reason)
        if status in _RETRIED:
            return _Broken(str(problem.get("detail", "")))
        try:
            code = int(str(problem.get("hresult", "0")), 16)
        except ValueError:
            code = 0
        members = {name: value for name, value in problem.items() if name not in _PROBLEM_MEMBERS}
        return rebuild_error(str(problem.get("error", "")), code, str(problem.get("detail", "")), members)


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


def _query(given: Mapping[str, object]) -> str:
    return urlencode({name: value for name, value in given.items() if value is not None})


def _reason(fault: Exception) -> str:
    """The system's text if the error has a number."""
    if isinstance(fault, OSError) and fault.errno and fault.errno > 0:
        return os.strerror(fault.errno)
    return str(fault) or type(fault).__name__
