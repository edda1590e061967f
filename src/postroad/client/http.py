"""A queue manager in another process or on another machine, by its HTTP API (docs/reference/http-api.md)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from postroad.client.exchange import Exchange
from postroad.client.leases import LeaseKeeper
from postroad.client.values import QueueAttributes, as_name
from postroad.errors import InvalidArgument, NoMessage, RemoteProtocolError
from postroad.message import Message
from postroad.names import MessageId
from postroad.offsets import HoldInfo, Mark, Selection, Submission
from postroad.queues.descriptor import QueueAccess, ShareMode
from postroad.queues.info import (
    ListenerInfo,
    LockInfo,
    ManagerInfo,
    QueueInfo,
    ReaderInfo,
    SessionInfo,
    TransactionInfo,
)
from postroad.queues.reading import SeekAction
from postroad.queues.waiting import ReadCall
from postroad.received import ReceivedMessage, decode_records
from postroad.routing import Route, Table
from postroad.values.trace import Trace, read_message_id
from postroad.wire.local_part import without_local_part

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
WAIT_S = 60.0  # one request waits so long: then it asks again, so that a broken connection is noticed
MAX_RENEWAL = 10_000  # leases in one request
NO_TIME = "there was no message within the time to wait"

LACKING = "the answer lacks members: it is of no queue manager, or of another version"

T = TypeVar("T")
_Info = (
    ManagerInfo
    | QueueInfo
    | SessionInfo
    | ReaderInfo
    | ListenerInfo
    | LockInfo
    | TransactionInfo
    | Mark
    | HoldInfo
    | Submission
)
InfoT = TypeVar("InfoT", bound=_Info)


class HttpBackend:
    """The verbs of `Backend`, each one request."""

    def __init__(
        self, url: str, token: str | None = None, certificate: str | Path | None = None, key: str | Path | None = None
    ) -> None:
        self._new_exchange = partial(Exchange, url, token, certificate, key)
        self._exchange = self._new_exchange()
        self._keeper = LeaseKeeper(self._renew)
        self._leases: dict[tuple[str, int], UUID] = {}  # of locked messages, by queue and lookup id
        self._locked: Counter[UUID] = Counter()  # messages of a lease

    async def close(self) -> None:
        self._keeper.close()
        await self._exchange.close()

    async def info(self) -> ManagerInfo:
        return _info(ManagerInfo, await self._exchange.json("GET", "/manager"))

    async def route(self, destination: str, source: str | None) -> Route:
        return await self._read(Route.from_json, "/route", {"to": destination, "from": source})

    async def route_table(self, source: str | None) -> Table:
        return await self._read(Table.from_json, "/route/table", {"from": source})

    async def sessions(self) -> list[SessionInfo]:
        return [_info(SessionInfo, each) for each in await self._exchange.json("GET", "/sessions", member="sessions")]

    async def readers(self) -> list[ReaderInfo]:
        return [_info(ReaderInfo, each) for each in await self._exchange.json("GET", "/readers", member="readers")]

    async def exposure(self) -> list[ListenerInfo]:
        return [_info(ListenerInfo, each) for each in await self._exchange.json("GET", "/exposure", member="exposure")]

    async def trace(self, message_id: str) -> Trace:
        read_message_id(message_id)  # what is none might be taken for another path of the API
        return await self._read(Trace.from_json, f"/trace/{quote(message_id, safe='')}", {})

    async def _read(self, read: Callable[[Any], T], path: str, query: Mapping[str, object]) -> T:
        answer = self._exchange.parsed(await self._exchange.request("GET", path, query))
        try:
            return read(answer)
        except (LookupError, TypeError):
            raise RemoteProtocolError(LACKING) from None

    # Queues

    async def queues(self) -> list[QueueInfo]:
        return [_info(QueueInfo, each) for each in await self._exchange.json("GET", "/queues", member="queues")]

    async def queue(self, name: str) -> QueueInfo:
        return _info(QueueInfo, await self._exchange.json("GET", _queue(name)))

    async def create_queue(self, path: str, attributes: QueueAttributes) -> QueueInfo:
        return _info(QueueInfo, await self._exchange.json("POST", "/queues", {"path": path, **attributes}))

    async def set_queue(self, name: str, attributes: QueueAttributes) -> QueueInfo:
        return _info(QueueInfo, await self._exchange.json("PATCH", _queue(name), attributes))

    async def delete_queue(self, name: str) -> None:
        await self._exchange.json("DELETE", _queue(name))

    async def purge_queue(self, name: str) -> int:
        return int(await self._exchange.json("POST", _queue(name, "purge"), member="purged"))

    async def pause_queue(self, name: str) -> QueueInfo:
        return _info(QueueInfo, await self._exchange.json("POST", _queue(name, "pause")))

    async def resume_queue(self, name: str) -> QueueInfo:
        return _info(QueueInfo, await self._exchange.json("POST", _queue(name, "resume")))

    # Sending

    async def send(self, name: str, messages: Sequence[Message], transaction: UUID | None) -> list[str]:
        path = _queue(name, "messages")
        if transaction is not None:
            path += f"?transaction={transaction}"
        return list(
            await self._exchange.json("POST", path, {"messages": list(map(message_json, messages))}, member="ids")
        )

    async def send_transactional(self, name: str, messages: Sequence[Message]) -> list[str]:
        sending = {"messages": list(map(message_json, messages)), "transactional": True}
        return list(await self._exchange.json("POST", _queue(name, "messages"), sending, member="ids"))

    # Reading

    async def receive(
        self, name: str, count: int, timeout: float | None, transaction: UUID | None
    ) -> list[ReceivedMessage]:
        query = {"count": count, "transaction": transaction}
        return decode_records((await self._wait(_queue(name, "receive"), query, timeout))[0])

    async def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        return decode_records((await self._wait(_queue(name, "peek"), {"count": count}, timeout))[0])

    async def _wait(
        self, path: str, query: Mapping[str, object], timeout: float | None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Asks again and again until there is a message or the time is over."""
        _check(timeout)
        left = timeout
        while True:
            wait = WAIT_S if left is None else min(left, WAIT_S)
            answer = await self._exchange.answer("POST", path, {**query, "timeout": wait}, wait=wait)
            if answer[0]:
                return answer
            if left is not None:
                left -= wait
                if left <= 0:
                    raise NoMessage(NO_TIME)

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        query = {"after": after, "limit": limit}
        return decode_records(await self._exchange.request("GET", _queue(name, "messages"), query))

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage:
        query = {"action": action.name.lower(), "transaction": transaction}
        method = "DELETE" if receive else "GET"
        return _one(await self._exchange.request(method, _queue(name, f"messages/{lookup_id}"), query))

    # Locks and their leases

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        answer, headers = await self._wait(_queue(name, "lock"), {"count": count}, timeout)
        messages = decode_records(answer)
        lease, lease_s = _lease(headers.get("Postroad-Lease"), headers.get("Postroad-Lease-Seconds"))
        self._leases.update(((name, message.lookup_id), lease) for message in messages)
        self._locked[lease] = len(messages)
        self._keeper.hold(lease, lease_s)
        return messages

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None:
        settlement: dict[str, object] = {"lookup_ids": list(lookup_ids), "delete": delete}
        leases = [self._leases.pop((name, lookup_id), None) for lookup_id in dict.fromkeys(lookup_ids)]
        if None not in leases:  # what was locked elsewhere is settled by its number alone
            settlement["leases"] = [str(lease) for lease in set(leases)]
        try:
            await self._exchange.json("POST", _queue(name, "settle"), settlement)
        finally:
            self._let_go(lease for lease in leases if lease is not None)

    def _let_go(self, leases: Iterable[UUID]) -> None:
        """Each is of one message that is settled, or whose settlement failed: what is left of it then runs out."""
        for lease in leases:
            self._locked[lease] -= 1
            if not self._locked[lease]:
                del self._locked[lease]
                self._keeper.drop(lease)

    async def _renew(self, leases: list[UUID]) -> list[UUID]:
        """On the keeper's own thread and event loop, so on connections of its own."""
        exchange = self._new_exchange()
        gone: list[str] = []
        try:
            for first in range(0, len(leases), MAX_RENEWAL):
                renewal = {"leases": [str(lease) for lease in leases[first : first + MAX_RENEWAL]]}
                gone += await exchange.json("POST", "/leases/renew", renewal, member="gone")
        finally:
            await exchange.close()
        return [UUID(lease) for lease in gone]

    async def locks(self, name: str | None) -> list[LockInfo]:
        answer = await self._exchange.request("GET", "/locks", {"queue": name})
        return [_info(LockInfo, each) for each in self._exchange.parsed(answer, "locks")]

    async def release_locks(self, name: str, lookup_ids: Sequence[int] | None) -> list[int]:
        chosen = {} if lookup_ids is None else {"lookup_ids": list(lookup_ids)}
        return list(await self._exchange.json("POST", _queue(name, "release"), chosen, member="released"))

    # Ranges by order of arrival

    async def mark(self, name: str, start: int, limit: int | None) -> Mark:
        answer = await self._exchange.request("GET", _queue(name, "mark"), {"from": start, "limit": limit})
        return _info(Mark, self._exchange.parsed(answer))

    async def arrow(self, name: str, selection: Selection) -> AsyncIterator[bytes]:
        query = {
            "from": selection.start,
            "to": selection.end,
            "hold": selection.hold,
            "limit": selection.limit,
            "columns": None if selection.columns is None else ",".join(selection.columns),
            "priority": selection.priority,
            "class": selection.message_class,
            "label": selection.label,
        }
        async for piece in self._exchange.stream(_queue(name, "messages"), query, ARROW):
            yield piece

    async def hold(self, name: str, holder: str, start: int, end: int | None) -> HoldInfo:
        return _hold(await self._exchange.json("PUT", _holds(name, holder), {"from": start, "to": end}))

    async def holds(self, name: str) -> list[HoldInfo]:
        return [_hold(each) for each in await self._exchange.json("GET", _queue(name, "holds"), member="holds")]

    async def commit_hold(self, name: str, holder: str, end: int) -> int:
        # However many there are: a step that is done stays done, so that a broken connection loses nothing.
        body = json.dumps({"to": end}).encode()
        answer = await self._exchange.request("POST", f"{_holds(name, holder)}/commit", body=body, wait=None)
        return int(self._exchange.parsed(answer, "removed"))

    async def release(self, name: str, holder: str) -> None:
        await self._exchange.json("DELETE", _holds(name, holder))

    # Submissions

    async def submit(
        self,
        name: str,
        sender: str,
        epoch: int,
        partition: int,
        row: int,
        messages: Sequence[Message] | bytes,
        transactional: bool | None,
    ) -> Submission:
        if isinstance(messages, bytes):
            body, media_type = messages, ARROW
        else:
            body, media_type = json.dumps({"messages": list(map(message_json, messages))}).encode(), JSON
        switch = None if transactional is None else str(transactional).lower()
        answer = await self._exchange.request(
            "POST",
            f"{_submissions(name, sender)}/{epoch}/{partition}",
            {"row": row, "transactional": switch},
            body=body,
            media_type=media_type,
        )
        return _info(Submission, self._exchange.parsed(answer))

    async def commit_submission(self, name: str, sender: str, epoch: int) -> None:
        await self._exchange.json("POST", f"{_submissions(name, sender)}/{epoch}/commit")

    async def forget_submission(self, name: str, sender: str) -> None:
        await self._exchange.json("DELETE", _submissions(name, sender))

    # Handles and cursors

    async def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int:
        opening = {"queue": name, "access": _word(access), "share": _word(share)}
        return int(await self._exchange.json("POST", "/handles", opening, member="handle"))

    async def close_queue(self, handle: int) -> None:
        await self._exchange.json("DELETE", f"/handles/{handle}")

    async def open_cursor(self, handle: int) -> int:
        return int(await self._exchange.json("POST", f"/handles/{handle}/cursors", member="cursor"))

    async def close_cursor(self, handle: int, cursor: int) -> None:
        await self._exchange.json("DELETE", f"/handles/{handle}/cursors/{cursor}")

    async def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage:
        # In one request however long it waits: the end of a wait moves the cursor.
        _check(timeout)
        path = f"/handles/{handle}/cursors/{cursor}/{_word(call)}"
        answer = await self._exchange.request("POST", path, {"timeout": timeout}, wait=timeout)
        if not answer:
            raise NoMessage(NO_TIME)
        return _one(answer)

    # Transactions

    async def begin(self) -> UUID:
        begun = await self._exchange.json("POST", "/transactions")
        transaction, lease_s = _lease(begun.get("id"), begun.get("lease_s"))
        self._keeper.hold(transaction, lease_s)
        return transaction

    async def commit(self, transaction: UUID) -> None:
        await self._end(transaction, "commit")

    async def abort(self, transaction: UUID) -> None:
        await self._end(transaction, "abort")

    async def _end(self, transaction: UUID, how: str) -> None:
        try:
            await self._exchange.json("POST", f"/transactions/{transaction}/{how}")
        finally:
            self._keeper.drop(transaction)

    async def transactions(self) -> list[TransactionInfo]:
        listed = await self._exchange.json("GET", "/transactions", member="transactions")
        return [_info(TransactionInfo, each) for each in listed]

    async def abort_transaction(self, transaction: UUID) -> None:
        await self._exchange.json("DELETE", f"/transactions/{transaction}")

    # Rescue

    async def move(self, name: str, target: str, lookup_ids: Sequence[int]) -> list[int]:
        return await self._move(name, {"to": target, "lookup_ids": list(lookup_ids)})

    async def move_page(self, name: str, target: str, after: int, limit: int) -> list[int]:
        return await self._move(name, {"to": target, "after": after, "limit": limit})

    async def _move(self, name: str, order: Mapping[str, object]) -> list[int]:
        return list(await self._exchange.json("POST", _queue(name, "move"), order, member="moved"))

    async def insert(self, name: str, packets: Sequence[bytes]) -> list[int]:
        answer = await self._exchange.request(
            "POST",
            _queue(name, "packets"),
            body=b"".join(map(without_local_part, packets)),
            media_type="application/octet-stream",
        )
        return list(self._exchange.parsed(answer, "lookup_ids"))


def _queue(name: str, call: str = "") -> str:
    as_name(name)  # what is no name might be taken for another path of the API
    return f"/queues/{quote(name, safe='')}{'/' if call else ''}{call}"


def _holds(name: str, holder: str) -> str:
    return _queue(name, f"holds/{quote(holder, safe='')}")


def _submissions(name: str, sender: str) -> str:
    return _queue(name, f"submissions/{quote(sender, safe='')}")


def _hold(values: Mapping[str, Any]) -> HoldInfo:
    return _info(HoldInfo, {**values, "start": values.get("from"), "end": values.get("to")})


def _word(member: QueueAccess | ShareMode | ReadCall) -> str:
    return member.name.lower().replace("_", "-")


def _check(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise InvalidArgument(f"timeout: {timeout} seconds is negative; 0 does not wait, and none waits for ever")


def _one(answer: bytes) -> ReceivedMessage:
    messages = decode_records(answer)
    if len(messages) != 1:
        raise RemoteProtocolError(f"one message was asked for, {len(messages)} came")
    return messages[0]


def _lease(identifier: object, lease_s: object) -> tuple[UUID, float]:
    """What keeps messages locked or a transaction open, and the seconds within which it must be renewed."""
    try:
        return UUID(str(identifier)), float(str(lease_s))
    except ValueError:
        raise RemoteProtocolError(LACKING) from None


def _info(kind: type[InfoT], values: Mapping[str, Any]) -> InfoT:
    """What a manager says of itself, of a queue or of a session; what another version says besides is left out."""
    found: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in values:
            value = values[field.name]
            found[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**found)
    except TypeError:
        raise RemoteProtocolError(LACKING) from None


# The properties of a message that JSON has as they are, each with its default.
_PLAIN = {
    field.name: field.default
    for field in fields(Message)
    if field.default is not MISSING
    and field.name not in {"body", "extension", "message_class", "correlation_id", "trace"}
}


def message_json(message: Message) -> dict[str, object]:
    """A message as the API takes it, without what is as it is by default."""
    values: dict[str, object] = {
        name: str(value) if isinstance(value, UUID) else value
        for name, default in _PLAIN.items()
        if (value := getattr(message, name)) != default
    }
    if isinstance(message.body, str):
        values["body"] = message.body
    else:
        values["body_base64"] = b64encode(message.body).decode()
    for name in ("response_queue", "admin_queue", "dead_letter_queue"):
        if name in values:
            values[name] = str(values[name])
    if message.extension:
        values["extension_base64"] = b64encode(message.extension).decode()
    if message.message_class:
        values["class"] = message.message_class
    if message.correlation_id is not None:
        values["correlation_id"] = _identifier(message.correlation_id)
    if message.trace is not None:
        values["trace"] = f"PUBLIC={message.trace}" if isinstance(message.trace, UUID) else message.trace
    return values


def _identifier(value: MessageId | bytes | str) -> str:
    return str(MessageId.from_bytes(value)) if isinstance(value, bytes) else str(value)
