"""A carrier that carries nothing. It notes the calls of the queues."""

from __future__ import annotations

from collections.abc import Callable

from postroad.errors import IllegalName
from postroad.names import FormatName
from postroad.queues.outgoing_queues import CarrierReport, IncomingTransferInfo, OutgoingTransferInfo, Progress
from postroad.queues.queue import Queue
from postroad.reports.info import SessionInfo
from postroad.store.interface import Record
from postroad.wire.queue_names import admin_name
from postroad.wire.view import MessageView


class RecordingCarrier:
    """`called` has what happened to which queue, in order."""

    def __init__(self, carries: Callable[[FormatName], bool] = lambda name: True, *, hardened: bool = False) -> None:
        self.hardened = hardened
        self.called: list[tuple[str, str]] = []
        self.removals: list[int] = []
        self._carries = carries

    def carries(self, name: FormatName) -> bool:
        return self._carries(name)

    def ready(self, queue: Queue, now: float) -> None:
        self.called.append(("ready", queue.name))

    def pause(self, queue: Queue) -> None:
        self.called.append(("pause", queue.name))

    def resume(self, queue: Queue, now: float) -> None:
        self.called.append(("resume", queue.name))

    def forget(self, queue: Queue) -> None:
        self.called.append(("forget", queue.name))

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        self.removals.append(reason)

    def brought(self, view: MessageView) -> bool:
        return False

    def origin(self, view: MessageView) -> str | None:
        return None

    def names(self, address: str) -> tuple[str, ...]:
        return ()

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        try:
            return admin_name(view)
        except IllegalName:
            return None

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        return name

    def hosts(self, name: FormatName) -> tuple[str, ...]:
        return ()

    def may_answer(self, name: FormatName, address: str) -> bool:
        return False

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        return CarrierReport(why="it is carried nowhere", stuck=True, unsent=queue.count)

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        return None

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        return None

    def session_infos(self) -> list[SessionInfo]:
        return []

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        return OutgoingTransferInfo()

    def incoming(self) -> tuple[IncomingTransferInfo, ...]:
        return ()

    def resend(self, queue: Queue, now: float) -> None:
        self.called.append(("resend", queue.name))

    def take_offline(self, now: float) -> None:
        self.called.append(("take_offline", ""))

    def bring_online(self, now: float) -> None:
        self.called.append(("bring_online", ""))

    traffic = (0, 0)
