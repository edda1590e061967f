"""The impacket client in a test's hands: a process, its connections, and calls that may be left waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any

from postroad.wire.view import MessageView

PATIENCE_S = 60
Reply = dict[str, Any]


class Stranger:
    """`call` waits for the answer; `start` gives a future. `kill` is a crash: nothing is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.remote.impacket_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ids = count(1)
        self._waiting: dict[int, Future[Reply]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, connection: str, verb: str, **arguments: object) -> Future[Reply]:
        identifier = next(self._ids)
        future: Future[Reply] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._waiting[identifier] = future
            self._process.stdin.write(json.dumps({"id": identifier, "on": connection, "do": verb, **arguments}) + "\n")
            self._process.stdin.flush()
        return future

    def call(self, connection: str, verb: str, **arguments: object) -> Reply:
        reply = self.start(connection, verb, **arguments).result(PATIENCE_S)
        assert "error" not in reply, reply
        return reply

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            reply = json.loads(text)
            with self._lock:
                future = self._waiting.pop(reply.pop("id"))
            future.set_result(reply)


class StrangeReader:
    """A queue that a stranger has open, by qmcomm and by qm2qm, on connections of its own."""

    def __init__(
        self,
        stranger: Stranger,
        address: tuple[str, int],
        name: str,
        *,
        access: int = 1,
        share: int = 0,
        **bind: object,
    ) -> None:
        self.stranger = stranger
        self.name = f"{name} {next(_NUMBERS)}"
        host, port = address
        for interface in ("qmcomm", "qm2qm"):
            joined = self.call(interface, "connect", host=host, port=port, interface=interface, **bind)
        self.association: int = joined["association"]  # of qm2qm
        opened = self.call("qmcomm", "open", name=name, access=access, share=share)
        assert opened["status"] == 0, opened
        self.handle: int = opened["handles"][0]
        assert self.call("qm2qm", "open_queue", queue=self.handle)["status"] == 0
        self._ids = count(1)

    def call(self, on: str, verb: str, **arguments: object) -> Reply:
        return self.stranger.call(f"{self.name} {on}", verb, **arguments)

    def start(self, on: str, verb: str, **arguments: object) -> Future[Reply]:
        return self.stranger.start(f"{self.name} {on}", verb, **arguments)

    def fields(self, action: int, **more: object) -> dict[str, object]:
        return {
            "queue_handle": self.handle,
            "queue": self.handle,
            "action": action,
            "request_id": next(self._ids),
            **more,
        }

    def read(self, action: int = 0, verb: str = "start2", **more: object) -> Reply:
        return self.call("qm2qm", verb, **self.fields(action, **more))

    def cursor(self) -> int:
        made = self.call("qmcomm", "create_cursor", handle=self.handle)
        assert made["status"] == 0
        return int(made["cursor"])

    def end(self, ack: int, keep: str = "read") -> Reply:
        return self.call("qm2qm", "end", ack=ack, keep=keep)


_NUMBERS = count(1)


def view(reply: Reply) -> MessageView:
    return MessageView(bytes.fromhex(reply["packet"]))


def label(reply: Reply) -> str:
    assert reply["status"] == 0, hex(reply["status"])
    return view(reply).label


@contextmanager
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    try:
        yield made
    finally:
        made.close()
