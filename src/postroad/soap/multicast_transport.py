"""Joins a MulticastService to PGM's sockets and to an event loop: packets, timers, and queues that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from postroad.carriers.flights import TransferWatcher
from postroad.pgm.packet import Packet
from postroad.pgm.receiver import OutgoingNak
from postroad.pgm.sockets import PgmTransport, TransportOptions
from postroad.pgm.source import Outgoing
from postroad.queues.durability import Durability
from postroad.queues.local import LocalQueueManager
from postroad.runtime.deadlines import Source
from postroad.runtime.logs import RateLimitedLogs
from postroad.security.refusals import Refused
from postroad.soap.multicast import MulticastService
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)


class MulticastManager(Protocol):
    """What the transport needs from its queue manager."""

    clock: Callable[[], float]
    core: LocalQueueManager
    durability: Durability


class MulticastTransport:
    """The Driver of a MulticastService. `serve`, then `start`."""

    def __init__(self, manager: MulticastManager, options: TransportOptions) -> None:
        self.manager = manager
        self.service: MulticastService
        self._pgm = PgmTransport(options, self._received)
        self._timer: Source[None] = manager.core.deadlines.source("multicast timers", self._on_timer)
        self._rebinding = self._waking = False
        self._notices = RateLimitedLogs(log, burst=5)
        self.watcher = TransferWatcher(refused=self._note_refusal, suspicious=self._notice)

    def serve(self, service: MulticastService) -> None:
        self.service = service

    def start(self) -> None:
        """A manager without the right to use raw sockets starts all the same, and logs what to set."""
        if self._pgm.open():
            log.info("multicast is on", extra={"address": self._pgm.address})
        else:
            log.error("multicast is not available", extra={"reason": self._pgm.error})
        self.service.core.queues.watch_definitions(self._definitions_changed)
        self.service.start(self.manager.clock())
        self.changed()

    async def stop(self) -> None:
        self._timer.set(None, None)
        if self._pgm.address is not None:
            self.service.stop(self.manager.clock())
        self._pgm.close()

    # Driver

    @property
    def address(self) -> str | None:
        return self._pgm.address

    @property
    def error(self) -> str | None:
        return self._pgm.error

    @property
    def malformed(self) -> int:
        return self._pgm.malformed

    @property
    def overflowed(self) -> int:
        return self._pgm.overflowed

    def send(self, group: str, out: Outgoing) -> None:
        self._pgm.send(group, out)

    def send_nak(self, group: str, nak: OutgoingNak) -> None:
        self._pgm.send_nak(group, nak)

    def join(self, group: str) -> str | None:
        error = self._pgm.join(group)
        if error is not None:
            log.error("not listening to a multicast address", extra={"group": group, "reason": error})
        return error

    def leave(self, group: str) -> None:
        self._pgm.leave(group)

    def wake(self) -> None:
        """Runs the timers later in this turn: it is called while a commit is noted, and for each packet."""
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._waking = False
        self.changed()

    def _received(self, packet: Packet, address: str, group: str | None) -> None:
        try:
            self.service.received(packet, address, group, self.manager.clock())
        except Exception:  # a bug: this packet is lost, and the log says so
            log.exception("multicast packet not taken")
        self.wake()  # once for all packets that are read together

    # Queues

    def _definitions_changed(self) -> None:
        """Looks at changed queues later, all together: many may change at once, before anybody knows of them."""
        if not self._rebinding:
            self._rebinding = True
            asyncio.get_running_loop().call_soon(self._rebind)

    def _rebind(self) -> None:
        self._rebinding = False
        self.service.rebind()
        self.changed()

    # What people ought to know

    def _note_refusal(self, view: MessageView, refused: Refused) -> None:
        self._notice("multicast message refused", {"reason": refused.reason})

    def _notice(self, event: str, facts: Mapping[str, object]) -> None:
        self._notices.warn(event, self.manager.clock(), facts)

    # Time

    def changed(self) -> None:
        """Something changed: there may be something to commit, and the next deadline may be another."""
        self.manager.durability.soon()
        self._timer.set(None, self.service.deadline)

    def _on_timer(self, keys: list[None], now: float) -> None:
        self.service.on_timer(now)
        self.changed()
