"""A relay for PGM over UDP on loopback that loses packets. Senders have one port, and receivers another.

Data packets go from the senders' port to the receivers', with the sender's own address. NAKs go back.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from random import Random

LOOPBACK_INDEX = socket.if_nametoindex("lo")
MAX_DATAGRAM = 65_535


def group_socket(group: str, port: int, address: str) -> socket.socket:
    """A socket that receives what is sent to a group on loopback."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    opened.bind((group, port))
    request = struct.pack("=4s4si", socket.inet_aton(group), socket.inet_aton(address), LOOPBACK_INDEX)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    return opened


class MulticastRelay:
    """A relay. `loss` is the chance of losing a packet in either direction; `dropped` counts the losses."""

    def __init__(
        self, group: str, sender: str, sender_port: int, receiver_port: int, loss: float, seed: int = 1
    ) -> None:
        self.loss = loss
        self.dropped = 0
        self._random = Random(seed)
        self._group, self._sender = group, sender
        self._sender_port, self._receiver_port = sender_port, receiver_port
        self._data = group_socket(group, sender_port, sender)
        self._naks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._naks.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._naks.bind((sender, receiver_port))
        request = struct.pack("=4s4si", bytes(4), socket.inet_aton(sender), LOOPBACK_INDEX)
        self._naks.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._data.close()
        self._naks.close()

    def _run(self) -> None:
        while not self._over:
            for ready in select.select([self._data, self._naks], [], [], 0.1)[0]:
                data = ready.recv(MAX_DATAGRAM)
                if self._random.random() < self.loss:
                    self.dropped += 1
                elif ready is self._data:
                    self._naks.sendto(data, (self._group, self._receiver_port))
                else:
                    self._naks.sendto(data, (self._sender, self._sender_port))
