"""Somebody on the segment who sends packets that no source has sent: garbage, windows without data, false NAKs."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable
from random import Random

from postroad.pgm.packet import Data, Fragment, Kind, MalformedPgm, Nak, Spm, Tsi, after, decode, encode
from postroad.pgm.sockets import IP_PROTOCOL

SOURCES = 100  # that hold as much as they may
INTERFACE = "eth0"


class Forger:
    def __init__(self, group: str, port: int) -> None:
        self._group, self._port = group, port
        self._random = Random(5)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, IP_PROTOCOL)
        self._socket.setblocking(False)
        request = struct.pack("=4s4si", socket.inet_aton(group), bytes(4), socket.if_nametoindex(INTERFACE))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
        self._sources = [Tsi(self._random.randbytes(6), number) for number in range(SOURCES)]
        self._heard: list[bytes] = []  # of the real source
        self._real: tuple[Spm, str] | None = None
        self._kinds: list[tuple[int, Callable[[], bytes]]] = [
            (5, self._garbage),
            (5, self._damaged),
            (10, self._window_without_data),
            (30, self._small_piece),
            (30, self._large_piece),
            (5, self._in_sequence),
            (5, self._jump),
            (5, self._first_fragment),
            (5, self._false_nak),
        ]

    def run(self, packets: int) -> None:
        weights = [weight for weight, _ in self._kinds]
        for number in range(packets):
            if number % 40 == 0:
                self._listen()
            (kind,) = self._random.choices(self._kinds, weights)
            address = self._real[1] if kind[1] == self._false_nak and self._real is not None else self._group
            try:
                self._socket.sendto(kind[1](), (address, 0))
            except BlockingIOError:
                time.sleep(0.01)

    def _listen(self) -> None:
        for _ in range(10):
            try:
                data, (address, _) = self._socket.recvfrom(65_535)
            except BlockingIOError:
                return
            data = data[(data[0] & 0x0F) * 4 :]
            try:
                packet = decode(data)
            except MalformedPgm:
                continue
            self._heard = [*self._heard[-50:], data]
            if isinstance(packet, Spm) and packet.tsi not in self._sources:
                self._real = (packet, address)

    def _source(self) -> Tsi:
        return self._random.choice(self._sources)

    def _data(self, tsi: Tsi, sequence: int, payload: bytes, fragment: Fragment | None = None) -> bytes:
        return encode(Data(Kind.ODATA, tsi, self._port, sequence, 0, payload, fragment))

    def _garbage(self) -> bytes:
        return self._random.randbytes(self._random.randrange(1, 1400))

    def _damaged(self) -> bytes:
        data = bytearray(self._random.choice(self._heard) if self._heard else bytes(40))
        for _ in range(self._random.randint(1, 4)):
            data[self._random.randrange(len(data))] ^= self._random.randrange(1, 256)
        return bytes(data)

    def _window_without_data(self) -> bytes:
        tsi, start = Tsi(self._random.randbytes(6), self._random.getrandbits(16)), self._random.getrandbits(32)
        return encode(Spm(tsi, self._port, 0, start, after(start, 60_000), "10.77.0.99"))

    def _small_piece(self) -> bytes:
        return self._data(self._source(), self._random.randrange(10, 60_000), b"")

    def _large_piece(self) -> bytes:
        return self._data(self._source(), self._random.randrange(10, 60_000), bytes(1300))

    def _in_sequence(self) -> bytes:
        tsi = Tsi(self._random.randbytes(6), 1)
        return self._data(tsi, 1, b"POST x HTTP/1.1\r\n\r\n")

    def _jump(self) -> bytes:
        far = self._random.randrange(1 << 30)
        return encode(Spm(self._source(), self._port, self._random.getrandbits(31), far, far, "10.77.0.99"))

    def _first_fragment(self) -> bytes:
        return self._data(self._source(), 1, bytes(1300), Fragment(1, 0, 65_000))

    def _false_nak(self) -> bytes:
        """Makes the real source repair what no receiver has missed."""
        if self._real is None:
            return self._garbage()
        spm, address = self._real
        wanted = tuple(after(spm.lead, -back) for back in self._random.sample(range(2000), 60))
        return encode(Nak(Kind.NAK, spm.tsi, self._port, wanted, address, self._group))


def main() -> int:
    group, port = sys.argv[1:]
    forger = Forger(group, int(port))
    for line in sys.stdin:
        forger.run(int(line))
        print("sent", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
