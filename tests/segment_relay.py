"""A network segment in user space: every frame goes to all other ports, and some PGM packets are lost.

`python -m tests.segment_relay LOSS PORT...` runs until SIGTERM and then prints how many packets it has lost.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sys
from random import Random

_ALL = 0x0003  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING
_IPV4 = b"\x08\x00"
_PGM, _UDP = 113, 17
_RCVBUFFORCE = 33
BUFFER = 32 << 20
READ_AT_ONCE = 64


def main() -> int:
    loss, names = float(sys.argv[1]), sys.argv[2:]
    ports = [_port(name) for name in names]
    random = Random(1)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    print("ready", flush=True)
    dropped = 0
    while not stopped:
        for port in select.select(ports, [], [], 0.2)[0]:
            others = [each for each in ports if each is not port]
            for _ in range(READ_AT_ONCE):
                try:
                    frame, address = port.recvfrom(65_535)
                except BlockingIOError:
                    break
                if address[2] == _OUTGOING:
                    continue
                lossy = loss > 0 and frame[12:14] == _IPV4 and frame[23] in (_PGM, _UDP)
                for other in others:
                    if lossy and random.random() < loss:
                        dropped += 1
                    else:
                        with contextlib.suppress(OSError):  # a port that is full or down loses packets too
                            other.send(frame)
    print(dropped)
    return 0


def _port(name: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    opened.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, BUFFER)
    opened.bind((name, _ALL))
    opened.setblocking(False)
    return opened


if __name__ == "__main__":
    sys.exit(main())
