r"""Replies without a directory. Only the asker's address is known, and both sides restart before the reply."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroad
from tests.commands import PATIENCE_S, ServerProcess

ASKER, SERVICE = "127.0.0.41", "127.0.0.42"
BINARY, HTTP = 11841, 18041
CONFIGURATION = r"""
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {binary}
http = {http}
ping = false
rpc = false
api = 0
[binary]
retry_connect_s = 0.2
[srmp]
retransmission_ms = 500
[peers]
"127.0.0.41" = {{ binary = {binary}, http = {http} }}
"127.0.0.42" = {{ binary = {binary}, http = {http} }}
[[queue]]
path = 'private$\replies'
[[queue]]
path = 'private$\questions'
"""
DESTINATIONS = {
    "binary": rf"DIRECT=TCP:{SERVICE}\private$\questions",
    "http": f"DIRECT=HTTP://{SERVICE}:{HTTP}/msmq/private$/questions",
}
RESPONSES = {
    "binary": rf"DIRECT=TCP:{ASKER}\private$\replies",
    "http": f"DIRECT=http://{ASKER}:{HTTP}/msmq/private$/replies",
}


class Pair:
    """An asker and a service, which know nothing of each other but an address."""

    def __init__(self, directory: Path) -> None:
        self._files = {}
        self._running: dict[str, ServerProcess] = {}
        for name, host in (("asker", ASKER), ("service", SERVICE)):
            self._files[name] = directory / f"{name}.toml"
            self._files[name].write_text(CONFIGURATION.format(name=name, host=host, binary=BINARY, http=HTTP))
            self._running[name] = ServerProcess(self._files[name])

    def connect(self, name: str) -> postroad.QueueManager:
        return postroad.connect(self._running[name].api)

    def restart(self) -> None:
        for running in self._running.values():
            running.end(signal.SIGKILL)
        for name in ("service", "asker"):
            self._running[name] = ServerProcess(self._files[name])

    def close(self) -> None:
        for running in self._running.values():
            running.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    try:
        yield pair
    finally:
        pair.close()


@pytest.mark.parametrize("carrier", DESTINATIONS)
def test_a_reply_reaches_the_asker_after_both_have_restarted(pair: Pair, carrier: str) -> None:
    question = postroad.Message("how many?", recoverable=True, response_queue=r"private$\replies")
    with pair.connect("asker") as asker, pair.connect("service") as service:
        asked = asker.send(DESTINATIONS[carrier], question)
        service.queue(r"private$\questions").peek(timeout=PATIENCE_S)
    pair.restart()
    with pair.connect("service") as service:
        received = service.queue(r"private$\questions").receive(timeout=PATIENCE_S)
        assert received.response_queue is not None
        assert received.response_queue.lower() == RESPONSES[carrier].lower()
        service.send(received.response_queue, postroad.Message("seven", correlation_id=received.id))
    with pair.connect("asker") as asker:
        assert asker.queue(r"private$\replies").receive_by_correlation_id(asked, PATIENCE_S).text == "seven"
