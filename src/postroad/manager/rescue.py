"""Operators' actions on messages of a running manager: move them, send them again, import packets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from postroad.describe.failed import failed_message, retry
from postroad.describe.received import ReceivedMessage, lifetime_s, new_message
from postroad.errors import InvalidArgument, NotEncrypted, PostroadError, QueueNotFound
from postroad.manager.durable import DurableCore
from postroad.manager.reads import Name, received
from postroad.message import Message
from postroad.names import parse_name
from postroad.queues.collection import JOURNAL
from postroad.queues.local import TRUSTED
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.reports.operations import Resent, SeekAction
from postroad.security.access import Token
from postroad.wire.view import MessageView

MOVE_BATCH = 1000
RESEND_BATCH = 100  # messages that share a commit


class Rescue:
    def __init__(self, durable: DurableCore) -> None:
        self._core = durable.core
        self._clock = durable.clock
        self._durably = durable.durably

    async def move(
        self,
        name: Name,
        target: Name,
        lookup_ids: Sequence[int] | None = None,
        *,
        limit: int = MOVE_BATCH,
        after: int = -1,
    ) -> list[int]:
        """Moves these messages, or up to `limit` after `after`, in one commit. Returns their old lookup ids."""
        queue = self._core.queues.get(name)
        to = self._core.queues.get(target)
        if queue is to:
            raise InvalidArgument(f"target: must be another queue, got {target}, where the messages are")
        if lookup_ids is None:
            records = self._core.delivery.fresh(queue, limit, self._clock(), after)
        else:
            records = [
                self._core.reading.seek(queue, lookup_id, SeekAction.CURRENT, peek=False)
                for lookup_id in dict.fromkeys(lookup_ids)
            ]
        await self._durably(lambda: self._core.move(queue, to, records, self._clock()))
        return [record.lookup_id for record in records]

    async def resend(
        self,
        name: Name,
        lookup_ids: Sequence[int],
        to: str | None = None,
        *,
        keep: bool = False,
        ttbr: int | None = None,
        failed: bool = False,
        token: Token = TRUSTED,
    ) -> list[Resent]:
        """Sends each message again as a new one, to `to` or to its old destination, and removes the old one in the same
        commit. Refused messages stay. With `keep`, all stay. Messages of journals always stay. `ttbr` is a new time to
        be received, in seconds. With `failed`, they are those of NServiceBus' error queue, and go where they failed."""
        queue = self._core.queues.get(name)
        if to is not None:
            parse_name(to)
        stays = keep or queue.properties.queue_type is QueueType.JOURNAL or queue.properties.path.lower() == JOURNAL
        outcomes: list[Resent] = []
        chosen = list(dict.fromkeys(lookup_ids))
        resend = partial(self._resend, queue, to=to, stays=stays, ttbr=ttbr, failed=failed, token=token)
        for start in range(0, len(chosen), RESEND_BATCH):
            outcomes += await self._durably(partial(list, map(resend, chosen[start : start + RESEND_BATCH])))
        return outcomes

    def _resend(
        self,
        queue: Queue,
        lookup_id: int,
        *,
        to: str | None,
        stays: bool,
        ttbr: int | None,
        failed: bool,
        token: Token,
    ) -> Resent:
        destination = to
        try:
            record = self._core.reading.seek(queue, lookup_id, SeekAction.CURRENT, peek=stays)
            message = received(record)
            named = failed_message(message).destination if failed else message.destination_queue
            destination = _sendable_again(message, to or named)
            again = retry(message, ttbr) if failed else new_message(message, ttbr)
            with self._core.delivery.atomic:
                ids = self._send_again(again, message.view.transactional, destination, token)
                if not stays:
                    self._core.delivery.discard(queue, record)
        except PostroadError as fault:
            return Resent(lookup_id, destination, why=str(fault))
        here = self._core.queues.is_local(parse_name(destination))
        return Resent(
            lookup_id,
            destination,
            f"{{{self._core.identifier}}}\\{ids[0]}",
            lifetime_s=lifetime_s(message, ttbr, here=here),
        )

    async def resend_changed(
        self,
        name: Name,
        lookup_id: int,
        to: str | None,
        changes: Mapping[str, Any],
        transactional: bool | None = None,
        *,
        token: Token = TRUSTED,
    ) -> str:
        """Sends a message again with some fields of `Message` changed and everything else as it was. The old message
        stays. Returns the new id."""

        def send() -> str:
            record = self._core.reading.seek(self._core.queues.get(name), lookup_id, SeekAction.CURRENT, peek=True)
            old = received(record)
            destination = _sendable_again(old, to or old.destination_queue)
            again = old.view.transactional if transactional is None else transactional
            ids = self._send_again(replace(new_message(old), **changes), again, destination, token)
            return f"{{{self._core.identifier}}}\\{ids[0]}"

        return await self._durably(send)

    def _send_again(self, message: Message, transactional: bool, destination: str, token: Token) -> list[int]:
        now, core = self._clock(), self._core
        found = core.queues.find(destination)
        if found is None and core.queues.is_local(parse_name(destination)):
            raise QueueNotFound(f"there is no queue {destination} on {core.name}")
        is_known = found is not None and not found.is_outgoing
        if found and is_known:
            transactional = found.properties.transactional
        if transactional:
            return core.send_transactional(destination, [message], now, token)
        return core.send(destination, [message], now, None, token)

    async def insert(self, name: Name, packets: Sequence[bytes]) -> list[int]:
        """Puts packets into a local queue, byte for byte, without acknowledging them."""
        queue = self._core.queues.get(name)
        views = [MessageView(packet) for packet in packets]
        return await self._durably(lambda: self._core.insert(queue, views, self._clock()))


def _sendable_again(message: ReceivedMessage, destination: str | None) -> str:
    """The destination to send the message to again. Raises if it cannot be sent."""
    if destination is None:
        raise InvalidArgument("the message does not say where it was sent to: choose a destination")
    if message.view.encrypted:
        raise NotEncrypted("its body is encrypted, and only its old destination can read it")
    return destination
