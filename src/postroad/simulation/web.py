"""HTTP in the simulation. It runs a node's real SOAP service; requests and answers are bytes on the network's
connections.

It has as much of HTTP/1.1 as two managers need: one request at a time on a connection, which is then used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.simulation.lines import End
from postroad.simulation.loop import Timer
from postroad.soap.receiver import SERVER_ERROR, Incoming
from postroad.soap.service import Peer, Post, SoapService
from postroad.soap.settings import SoapSettings

if TYPE_CHECKING:
    from postroad.simulation.node import Node

ANSWER_TIMEOUT_S = 30.0
_END = b"\r\n\r\n"


class Web:
    """The Driver of a SoapService. It dies with its node; answers that come later reach nobody."""

    def __init__(self, owner: Node, settings: SoapSettings) -> None:
        self.service = SoapService(
            owner.core, settings, self, watcher=owner.watcher, first_address=owner.directory.first_address
        )
        self._owner = owner
        self._log = owner.stage.log
        self._idle: dict[Peer, list[End]] = {}
        self._waiting: dict[End, Post] = {}  # our connections that wait for an answer
        self._timeouts: dict[Post, Timer] = {}
        self._received: dict[End, bytearray] = {}

    @property
    def busy(self) -> bool:
        return any(peer.posts for peer in self.service.peers.values()) or any(
            stream.due is not None for stream in self.service.receiver.incoming
        )

    # Driver

    def post(self, post: Post) -> None:
        self._timeouts[post] = self._owner.after(ANSWER_TIMEOUT_S, lambda: self._give_up(post))
        idle = self._idle.get(post.peer)
        while idle:
            end = idle.pop()
            if end.open:
                self._ask(end, post)
                return
        self._owner.after(0.0, lambda: self._connect(post))

    def _connect(self, post: Post) -> None:
        def done(end: End | None, fault: str) -> None:
            if self._owner.web is not self:  # the node has crashed meanwhile
                if end is not None:
                    end.close()
            elif end is None:
                self._fail(post, ConnectionStatus.CONNECT_SOCKET_FAILURE, fault)
            elif post not in self._timeouts:
                end.close()
            else:
                self._received[end] = bytearray()
                self._ask(end, post)

        owner = self._owner
        owner.reach(
            owner.places(post.peer.address.host),
            lambda end, fault: owner.gate(lambda: done(end, fault)),
            http=True,
        )

    def _ask(self, end: End, post: Post) -> None:
        self._waiting[end] = post
        request = post.request
        kind = request.headers["Content-Type"]
        head = f"POST {request.target} HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        self._note(f"posts to {end.other.host.name}{request.target}: {_summary(request.body)}")
        end.write(head.encode() + request.body)

    def close(self, peer: Peer) -> None:
        for end in self._idle.pop(peer, []):
            end.close()
        for end, post in list(self._waiting.items()):
            if post.peer is peer:
                self._forget(post)
                del self._waiting[end]
                end.close()

    def _give_up(self, post: Post) -> None:
        for end, waiting in list(self._waiting.items()):
            if waiting is post:
                del self._waiting[end]
                end.close()
        self._fail(post, ConnectionStatus.SEND_FAILURE, f"{post.peer.address.host} did not answer in time")

    def _fail(self, post: Post, status: ConnectionStatus, fault: str) -> None:
        if self._forget(post):
            self._note(fault)
            self.service.failed(post, status, fault, self._owner.now)
            self._owner.changed()

    def _forget(self, post: Post) -> bool:
        timer = self._timeouts.pop(post, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    # Host

    def accept(self, end: End) -> bool:
        self._received[end] = bytearray()
        return True

    def connection_lost(self, end: End) -> None:
        self._received.pop(end, None)
        post = self._waiting.pop(end, None)
        for idle in self._idle.values():
            if end in idle:
                idle.remove(end)
        if post is not None:
            self._fail(post, ConnectionStatus.SEND_FAILURE, f"{end.other.host.name} closed the connection")

    def data_arrived(self, end: End, data: bytes) -> None:
        received = self._received.get(end)
        if received is None:
            return
        received += data
        head, blank, rest = bytes(received).partition(_END)
        if not blank:
            return
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        length = int(headers["Content-Length"])
        if len(rest) < length:
            return
        del received[: len(head) + len(_END) + length]
        if lines[0].startswith("HTTP/"):
            self._answered(end, int(lines[0].split()[1]))
        else:
            self._handle(end, Incoming(headers["Content-Type"], rest[:length], end.other.host.address))

    def _answered(self, end: End, status: int) -> None:
        post = self._waiting.pop(end, None)
        if post is None or not self._forget(post):
            return
        self._idle.setdefault(post.peer, []).append(end)
        self.service.answered(post, status, self._owner.now)

    def _handle(self, end: End, incoming: Incoming) -> None:
        outcome, changed = self._owner.durability.run(lambda: self.service.received(incoming, self._owner.now))

        def durable(error: BaseException | None) -> None:
            self._answer(end, outcome.status if error is None else SERVER_ERROR)

        if changed or outcome.repeated:
            self._owner.when_durable(durable, repeats=outcome.repeated)
        else:
            self._answer(end, outcome.status)

    def _answer(self, end: End, status: int) -> None:
        self._note(f"answers {status} to {end.other.host.name}")
        end.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    def _note(self, line: str) -> None:
        if self._log.wanted:
            self._log.note(self._owner.name, line)


def _summary(body: bytes) -> str:
    """What a log says about a request: the message's id, and its place in a stream."""
    text = body.decode("utf-8", "replace")
    words = []
    for name in ("id", "streamId", "current", "previous", "lastOrdinal", "decision"):
        _, found, rest = text.partition(f"<{name}>")
        if found:
            words.append(f"{name} {rest.partition('<')[0]}")
    return ", ".join(words)
