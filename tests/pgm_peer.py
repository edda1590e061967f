"""A PGM source or receiver of ours, with the arguments and the output of `libpgm_peer.c`.

`python -m tests.pgm_peer send|receive ADDRESS GROUP PORT BYTES_PER_S COUNT SIZE`
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from random import random

from postroad.pgm.packet import Nak, Packet, Tsi
from postroad.pgm.receiver import Apdu, Receiver
from postroad.pgm.settings import PgmSettings
from postroad.pgm.sockets import PgmTransport, TransportOptions
from postroad.pgm.source import Source
from postroad.runtime.deadlines import earliest


def apdu(number: int, size: int) -> bytes:
    return str(number).encode().ljust(size, b"\0")


def hash_of(data: bytes) -> int:
    """The hash FNV-1a of 64 bits."""
    found = 14695981039346656037
    for each in data:
        found = (found ^ each) * 1099511628211 % (1 << 64)
    return found


class Peer:
    """A peer, which has either a `source` or a `receiver`.

    Hashing an APDU in Python costs more than receiving it, so it can be switched off.
    """

    def __init__(self, address: str, group: str, port: int, rate: int, count: int, size: int, *, sends: bool) -> None:
        self.transport = PgmTransport(TransportOptions((address,)), self._received)
        self.group, self.count, self.size = group, count, size
        settings = PgmSettings(txw_max_rte=rate)
        tsi = Tsi(address.encode()[-6:], os.getpid() & 0xFFFF)
        first = int(random() * (1 << 32))
        self.source = Source(tsi, address, group, port, settings, first, time.time()) if sends else None
        self.receiver = None if sends else Receiver(group, port, settings, random)
        self.over = asyncio.Event()
        self.taken = 0
        self.hashed = "PGM_PEER_UNHASHED" not in os.environ
        self._timer: asyncio.TimerHandle | None = None
        self._waking = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        assert self.transport.open(), self.transport.error
        assert self.transport.join(self.group) is None
        loop.add_reader(0, self._input)
        before = time.process_time()
        print("ready", flush=True)
        self._work()
        await self.over.wait()
        print(f"cpu {int((time.process_time() - before) * 1e6)}", flush=True)
        self.transport.close()

    def _input(self) -> None:
        if not os.read(0, 64):
            self.over.set()
        elif self.source is not None:
            for number in range(self.count):
                self.source.send(apdu(number, self.size), number)
            self._work()

    def _received(self, packet: Packet, address: str, group: str | None) -> None:
        if self.receiver is not None and group is not None:
            self.receiver.receive(packet, address, time.time())
        elif self.source is not None and isinstance(packet, Nak):
            self.source.receive(packet, time.time())
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._waking = False
        now = time.time()
        if self.source is not None:
            for out in self.source.poll(now):
                self.transport.send(self.group, out)
            self.taken += len(sent := self.source.take_sent())
            if sent and self.taken == self.count:
                print("sent", flush=True)
        if self.receiver is not None:
            for nak in self.receiver.poll(now):
                self.transport.send_nak(self.group, nak)
            for event in self.receiver.take_events():
                if isinstance(event, Apdu):
                    event.source.confirm()
                    self.taken += 1
                    print(f"{len(event.data)} {hash_of(event.data) if self.hashed else 0:016x}")
                else:
                    print("reset")
            sys.stdout.flush()
            if self.count and self.taken >= self.count:
                self.over.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = earliest([each.deadline for each in (self.source, self.receiver) if each is not None])
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - time.time()), self._work)


async def main() -> None:
    kind, address, group, *numbers = sys.argv[1:]
    port, rate, count, size = map(int, numbers)
    await Peer(address, group, port, rate, count, size, sends=kind == "send").run()


if __name__ == "__main__":
    asyncio.run(main())
