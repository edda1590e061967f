"""A queue manager in another process or on another machine, through its HTTP API (docs/reference/http-api.md)."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from postroad.client.exchange import JSON, Address, Answer, Exchange, Transport
from postroad.client.lease_keeper import LeaseKeeper
from postroad.client.payloads import (
    MAX_PAGE_BYTES,
    InfoT,
    JoinedSends,
    Outcome,
    Post,
    check_timeout,
    encode_message,
    encode_messages,
    hold_path,
    is_single_name,
    message_json,
    messages_json,
    queue_path,
    read_info,
    read_lease,
    read_messages,
    read_one,
    submissions_path,
    word,
)
from postroad.errors import LeaseEnded, ManagerUnavailable, NoMessage, PostroadError, TransactionSequence
from postroad.reports.info import (
    KeysInfo,
    ListenerInfo,
    LockInfo,
    ManagerInfo,
    QueueInfo,
    ReaderInfo,
    SessionInfo,
    TransactionInfo,
)
from postroad.reports.offsets import HoldInfo, Mark, Submission

if TYPE_CHECKING:
    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message
    from postroad.reports.enterprise import Route, Table
    from postroad.reports.offsets import Selection
    from postroad.reports.operations import QueueAccess, ReadCall, Resolution, SeekAction, ShareMode
    from postroad.reports.trace import Trace
    from postroad.validation.queue_properties import QueueAttributes

log = logging.getLogger(__name__)

ARROW = "application/vnd.apache.arrow.stream"
WAIT_S = 60.0  # the longest wait of one request; it is then repeated, so that a broken connection is noticed


class HttpBackend:
    """Implements `Backend` with one request for each verb. It waits for nothing but the transport."""

    def __init__(self, address: Address, transport: Transport, joined: Callable[[Post], JoinedSends]) -> None:
        self._address = address
        self._exchange = Exchange(address, transport)
        self._keeper = LeaseKeeper(address)
        self._joined = joined(self._post)
        self._opened: dict[int, str] = {}  # the handles that are open, with their queues

    async def close(self) -> None:
        self._keeper.close()
        await self._exchange.close()

    async def info(self) -> ManagerInfo:
        return await self._get(ManagerInfo, "/manager")

    async def route(self, destination: str, source: str | None) -> Route:
        from postroad.reports.enterprise import Route

        return await self._get(Route, "/route", {"to": destination, "from": source})

    async def route_table(self, source: str | None) -> Table:
        from postroad.reports.enterprise import Table

        return await self._get(Table, "/route/table", {"from": source})

    async def sessions(self) -> list[SessionInfo]:
        return await self._list(SessionInfo, "/sessions", "sessions")

    async def readers(self) -> list[ReaderInfo]:
        return await self._list(ReaderInfo, "/readers", "readers")

    async def exposure(self) -> list[ListenerInfo]:
        return await self._list(ListenerInfo, "/exposure", "exposure")

    async def keys(self) -> KeysInfo:
        return await self._get(KeysInfo, "/keys")

    async def rotate_keys(self) -> KeysInfo:
        return read_info(KeysInfo, await self._exchange.json("POST", "/keys/rotate"))

    async def trace(self, message_id: str) -> Trace:
        from postroad.reports.trace import Trace, read_message_id

        read_message_id(message_id)  # raises for anything else, which could be taken for another path of the API
        return await self._get(Trace, f"/trace/{quote(message_id, safe='')}")

    async def _get(self, kind: type[InfoT], path: str, query: Mapping[str, object] | None = None) -> InfoT:
        return read_info(kind, await self._exchange.json("GET", path, query=query))

    async def _list(
        self, kind: type[InfoT], path: str, member: str, query: Mapping[str, object] | None = None
    ) -> list[InfoT]:
        return [read_info(kind, each) for each in await self._exchange.json("GET", path, query=query, member=member)]

    # Queues

    async def queues(self) -> list[QueueInfo]:
        return await self._list(QueueInfo, "/queues", "queues")

    async def queue(self, name: str) -> QueueInfo:
        return await self._get(QueueInfo, queue_path(name))

    async def create_queue(self, path: str, attributes: QueueAttributes) -> QueueInfo:
        return read_info(QueueInfo, await self._exchange.json("POST", "/queues", {"path": path, **attributes}))

    async def set_queue(self, name: str, attributes: QueueAttributes) -> QueueInfo:
        return read_info(QueueInfo, await self._exchange.json("PATCH", queue_path(name), attributes))

    async def delete_queue(self, name: str) -> None:
        await self._exchange.json("DELETE", queue_path(name))

    async def purge_queue(self, name: str) -> int:
        return int(await self._exchange.json("POST", queue_path(name, "purge"), member="purged"))

    async def acl(self, name: str) -> str:
        return str(await self._exchange.json("GET", queue_path(name, "acl"), member="sddl"))

    async def set_acl(self, name: str, sddl: str | None) -> str:
        return str(await self._exchange.json("PATCH", queue_path(name, "acl"), {"sddl": sddl}, member="sddl"))

    async def edit_acl(self, name: str, edit: str, who: str, rights: Sequence[str]) -> str:
        entry = {edit: {"who": who, "rights": list(rights)}}
        return str(await self._exchange.json("POST", queue_path(name, "acl"), entry, member="sddl"))

    async def pause_queue(self, name: str) -> QueueInfo:
        return read_info(QueueInfo, await self._exchange.json("POST", queue_path(name, "pause")))

    async def resume_queue(self, name: str) -> QueueInfo:
        return read_info(QueueInfo, await self._exchange.json("POST", queue_path(name, "resume")))

    # Sending

    async def resolve(self, destination: str, names: Sequence[str], certificate: bytes) -> Resolution:
        from postroad.reports.operations import Resolution

        question = {
            "destination": destination,
            "names": list(names),
            "certificate_base64": b64encode(certificate).decode(),
        }
        return read_info(Resolution, await self._exchange.json("POST", "/resolve", question))

    async def send(self, name: str, messages: Sequence[Message], transaction: UUID | None) -> list[str]:
        if transaction is None and len(messages) == 1 and is_single_name(name):
            return [await self._joined.send(name, encode_message(message_json(messages[0])))]
        path = queue_path(name, "messages")
        if transaction is not None:
            path += f"?transaction={transaction}"
        sending = {"messages": messages_json(messages)}
        return list(await self._exchange.json("POST", path, sending, member="ids"))

    async def _post(self, name: str, messages: Sequence[bytes]) -> list[Outcome]:
        """Sends messages that succeed or fail independently."""
        alone = len(messages) == 1
        body = messages[0] if alone else encode_messages(messages)
        query = None if alone else {"separate": "true"}
        answer = await self._exchange.request("POST", queue_path(name, "messages"), query, body=body)
        if answer.status != HTTPStatus.MULTI_STATUS:
            return list(self._address.parsed(answer.content, "ids"))[: len(messages)]
        outcomes = self._address.parsed(answer.content, "outcomes")
        return [each["id"] if "id" in each else self._address.rebuilt(each["problem"]) for each in outcomes]

    async def send_transactional(self, name: str, messages: Sequence[Message]) -> list[str]:
        sending = {"messages": messages_json(messages), "transactional": True}
        return list(await self._exchange.json("POST", queue_path(name, "messages"), sending, member="ids"))

    # Reading

    async def receive(
        self,
        name: str,
        count: int,
        timeout: float | None,
        transaction: UUID | None,
    ) -> list[ReceivedMessage]:
        if self._exchange.several and transaction is None:
            return await self._receive_safely(name, count, timeout)
        query = {"count": count, "transaction": transaction}
        return read_messages((await self._wait(name, "receive", query, timeout)).content)

    async def _receive_safely(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        """Locks messages, and removes them once they are here. A manager that fails between the two puts them back;
        they are handed over, and come again."""
        messages = await self.lock(name, count, timeout)
        lookup_ids = [message.lookup_id for message in messages]
        try:
            await self.settle(name, lookup_ids, True)
        except (ManagerUnavailable, LeaseEnded, TransactionSequence) as fault:
            facts = {"queue": name, "messages": len(messages), "reason": str(fault)}
            log.warning(
                "the queue manager may not have removed what it has handed over, which may come again", extra=facts
            )
        return messages

    async def receive_correlated(
        self, name: str, correlation_id: str, timeout: float | None, transaction: UUID | None
    ) -> ReceivedMessage:
        query = {"correlation_id": correlation_id, "transaction": transaction}
        return read_one((await self._wait(name, "receive", query, timeout)).content)

    async def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        return read_messages((await self._wait(name, "peek", {"count": count}, timeout)).content)

    async def _wait(
        self, name: str, call: str, query: Mapping[str, object], timeout: float | None, body: bytes | None = None
    ) -> Answer:
        """Repeats a request until there is a message or the time is over. `body` goes with the first request only."""
        check_timeout(timeout)
        path = queue_path(name, call)
        left = timeout
        while True:
            wait = WAIT_S if left is None else min(left, WAIT_S)
            try:
                answer = await self._exchange.request("POST", path, {**query, "timeout": wait}, body=body, wait=wait)
            except ManagerUnavailable as fault:
                # What it has locked goes back, so a request that acknowledges nothing can be made again.
                if not (self._exchange.several and fault.asked and call in ("lock", "peek") and body is None):
                    raise
                continue
            if answer.content:
                return answer
            body = None
            if left is not None:
                left -= wait
                if left <= 0:
                    raise NoMessage(name)

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        """The messages after this lookup id: at most `limit`, and fewer if they are large."""
        query = {"after": after, "limit": limit, "max_bytes": MAX_PAGE_BYTES}
        return read_messages((await self._exchange.request("GET", queue_path(name, "messages"), query)).content)

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage:
        query = {"action": action.name.lower(), "transaction": transaction}
        method = "DELETE" if receive else "GET"
        answer = await self._exchange.request(method, queue_path(name, f"messages/{lookup_id}"), query)
        return read_one(answer.content)

    # Locks and their leases

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        return self._locked(name, await self._wait(name, "lock", {"count": count}, timeout))

    def _locked(self, name: str, answer: Answer) -> list[ReceivedMessage]:
        messages = read_messages(answer.content)
        lease, lease_s = read_lease(answer.headers.get("postroad-lease"), answer.headers.get("postroad-lease-seconds"))
        self._keeper.hold_messages(lease, lease_s, name, [message.lookup_id for message in messages])
        return messages

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None:
        try:
            await self._exchange.json("POST", queue_path(name, "settle"), self._settlement(name, lookup_ids, delete))
        finally:  # if the settlement fails, the lease runs out
            self._keeper.drop_messages(name, lookup_ids)

    def _settlement(self, name: str, lookup_ids: Sequence[int], delete: bool) -> dict[str, object]:
        settlement: dict[str, object] = {"lookup_ids": list(lookup_ids), "delete": delete}
        leases = self._keeper.leases_of(name, lookup_ids)
        if leases is not None:  # without leases, messages that another client locked are settled by number
            settlement["leases"] = [str(lease) for lease in leases]
        return settlement

    async def fetch(
        self, name: str, count: int, timeout: float | None, acknowledged: Sequence[int]
    ) -> list[ReceivedMessage]:
        body = json.dumps(self._settlement(name, acknowledged, True)).encode() if acknowledged else None
        try:
            answer = await self._wait(name, "lock", {"count": count}, timeout, body)
        except ManagerUnavailable:
            raise
        except PostroadError:
            self._keeper.drop_messages(name, acknowledged)
            raise
        self._keeper.drop_messages(name, acknowledged)
        return self._locked(name, answer)

    async def locks(self, name: str | None) -> list[LockInfo]:
        return await self._list(LockInfo, "/locks", "locks", {"queue": name})

    async def release_locks(self, name: str, lookup_ids: Sequence[int] | None) -> list[int]:
        chosen = {} if lookup_ids is None else {"lookup_ids": list(lookup_ids)}
        return list(await self._exchange.json("POST", queue_path(name, "release"), chosen, member="released"))

    # Ranges by order of arrival

    async def mark(self, name: str, start: int, limit: int | None) -> Mark:
        return await self._get(Mark, queue_path(name, "mark"), {"from": start, "limit": limit})

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
        async with aclosing(self._exchange.stream(queue_path(name, "messages"), query, ARROW)) as pieces:
            async for piece in pieces:
                yield piece

    async def hold(self, name: str, holder: str, start: int, end: int | None) -> HoldInfo:
        return read_info(
            HoldInfo, await self._exchange.json("PUT", hold_path(name, holder), {"from": start, "to": end})
        )

    async def holds(self, name: str) -> list[HoldInfo]:
        return await self._list(HoldInfo, queue_path(name, "holds"), "holds")

    async def commit_hold(self, name: str, holder: str, end: int) -> int:
        # There is no time limit. A step that is done stays done, so a broken connection loses nothing.
        path = f"{hold_path(name, holder)}/commit"
        return int(await self._exchange.json("POST", path, {"to": end}, member="removed", wait=None))

    async def release(self, name: str, holder: str) -> None:
        await self._exchange.json("DELETE", hold_path(name, holder))

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
            body, media_type = json.dumps({"messages": messages_json(messages)}).encode(), JSON
        switch = None if transactional is None else str(transactional).lower()
        answer = await self._exchange.request(
            "POST",
            f"{submissions_path(name, sender)}/{epoch}/{partition}",
            {"row": row, "transactional": switch},
            body=body,
            media_type=media_type,
        )
        return read_info(Submission, self._address.parsed(answer.content))

    async def commit_submission(self, name: str, sender: str, epoch: int) -> None:
        await self._exchange.json("POST", f"{submissions_path(name, sender)}/{epoch}/commit")

    async def forget_submission(self, name: str, sender: str) -> None:
        await self._exchange.json("DELETE", submissions_path(name, sender))

    # Handles and cursors

    async def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int:
        opening = {"queue": name, "access": word(access), "share": word(share)}
        handle = int(await self._exchange.json("POST", "/handles", opening, member="handle"))
        self._opened[handle] = name
        return handle

    async def close_queue(self, handle: int) -> None:
        self._opened.pop(handle, None)
        await self._exchange.json("DELETE", f"/handles/{handle}")

    async def open_cursor(self, handle: int) -> int:
        return int(await self._exchange.json("POST", f"/handles/{handle}/cursors", member="cursor"))

    async def close_cursor(self, handle: int, cursor: int) -> None:
        await self._exchange.json("DELETE", f"/handles/{handle}/cursors/{cursor}")

    async def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage:
        # This must be one request, however long it waits, because the end of a wait moves the cursor.
        check_timeout(timeout)
        path = f"/handles/{handle}/cursors/{cursor}/{word(call)}"
        answer = await self._exchange.request("POST", path, {"timeout": timeout}, wait=timeout)
        if not answer.content:
            raise NoMessage(self._opened.get(handle, f"the queue of handle {handle}"))
        return read_one(answer.content)

    # Transactions

    async def begin(self) -> UUID:
        begun = await self._exchange.json("POST", "/transactions")
        transaction, lease_s = read_lease(begun.get("id"), begun.get("lease_s"))
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
        return await self._list(TransactionInfo, "/transactions", "transactions")

    async def abort_transaction(self, transaction: UUID) -> None:
        await self._exchange.json("DELETE", f"/transactions/{transaction}")

    # Rescue

    async def move(self, name: str, target: str, lookup_ids: Sequence[int]) -> list[int]:
        return await self._move(name, {"to": target, "lookup_ids": list(lookup_ids)})

    async def move_page(self, name: str, target: str, after: int, limit: int) -> list[int]:
        return await self._move(name, {"to": target, "after": after, "limit": limit})

    async def _move(self, name: str, order: Mapping[str, object]) -> list[int]:
        return list(await self._exchange.json("POST", queue_path(name, "move"), order, member="moved"))

    async def insert(self, name: str, packets: Sequence[bytes]) -> list[int]:
        from postroad.wire.patch import without_local_part

        answer = await self._exchange.request(
            "POST",
            queue_path(name, "packets"),
            body=b"".join(map(without_local_part, packets)),
            media_type="application/octet-stream",
        )
        return list(self._address.parsed(answer.content, "lookup_ids"))
