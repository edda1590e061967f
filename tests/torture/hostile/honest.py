"""The honest workload: numbered messages over all routes, and a ledger of what became of each."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import postroad
from postroad import QueueManager
from postroad.errors import NoMessage, PostroadError
from tests.torture.hostile.stage import (
    ALPHA,
    ANSWERED,
    ANSWERS,
    BETA,
    BY_HTTP,
    CONSOLE,
    DYING,
    HTTP,
    LOCAL,
    OPEN,
    PASSWORD,
    RECOVERABLE,
    REMOTE,
    RPC,
    TOKEN,
    TRANSACTIONAL,
    USER,
    Target,
)

SECRET = "honest-7f3a9c"  # in every honest label: who sees it and should not has read another's message
BATCH = 10
PAUSE_S = 0.25
RECEIVE_TIMEOUT_S = 1.0
ANSWER_S = 30.0


@dataclass(slots=True)
class Ledger:
    sent: list[int] = field(default_factory=list)  # promised: the call has returned
    received: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # calls that were not answered as they should

    @property
    def lost(self) -> set[int]:
        return set(self.sent) - set(self.received)

    @property
    def doubled(self) -> int:
        return len(self.received) - len(set(self.received))

    @property
    def reordered(self) -> int:
        return sum(after < before for before, after in zip(self.received, self.received[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Route:
    """From a manager's API to a queue, and how the queue is read."""

    name: str
    source: Target
    destination: str
    transactional: bool
    reader: Callable[[], AbstractContextManager[QueueManager]]
    queue: str
    ordered: bool = True
    properties: Mapping[str, object] = field(default_factory=dict)  # of each message


def api(target: Target) -> Callable[[], AbstractContextManager[QueueManager]]:
    return lambda: postroad.connect(target.url, token=TOKEN)


def remote(target: Target) -> Callable[[], AbstractContextManager[QueueManager]]:
    return lambda: postroad.remote(target.host, port=RPC, user=USER, password=PASSWORD)


ROUTES = (
    Route(
        "alpha to beta, transactional",
        ALPHA,
        rf"DIRECT=TCP:{BETA.host}\{TRANSACTIONAL}",
        True,
        api(BETA),
        TRANSACTIONAL,
    ),
    Route(
        "beta to alpha, transactional",
        BETA,
        rf"DIRECT=TCP:{ALPHA.host}\{TRANSACTIONAL}",
        True,
        api(ALPHA),
        TRANSACTIONAL,
    ),
    Route("alpha to beta, recoverable", ALPHA, rf"DIRECT=TCP:{BETA.host}\{RECOVERABLE}", False, api(BETA), RECOVERABLE),
    Route(
        "beta to alpha, recoverable", BETA, rf"DIRECT=TCP:{ALPHA.host}\{RECOVERABLE}", False, api(ALPHA), RECOVERABLE
    ),
    Route("within alpha, transactional", ALPHA, LOCAL, True, api(ALPHA), LOCAL),
    Route("within alpha, remote read", ALPHA, REMOTE, False, remote(ALPHA), REMOTE),
    Route(
        "beta to alpha, SOAP",
        BETA,
        f"DIRECT=HTTP://{ALPHA.host}:{HTTP}/msmq/private$/http",
        False,
        api(ALPHA),
        BY_HTTP,
        ordered=False,  # requests on several connections overtake each other
    ),
    Route(
        "dead letters of alpha",
        ALPHA,
        DYING,
        False,
        api(ALPHA),
        ";deadletter",
        ordered=False,
        properties={"time_to_be_received": 1, "dead_letter": True},
    ),
    Route(
        "acknowledgments of alpha to beta",
        BETA,
        rf"DIRECT=TCP:{ALPHA.host}\{ANSWERED}",
        False,
        api(BETA),
        ANSWERS,
        ordered=False,  # a repeated one may come behind the next
        properties={"ack": "reach-queue", "admin_queue": rf"DIRECT=TCP:{BETA.host}\{ANSWERS}"},
    ),
)


class Flow:
    """One route in use: a thread that sends and one that reads, until `stop_sending` and then `stop`."""

    def __init__(self, route: Route, seed: int, known: Path) -> None:
        self.route = route
        self.ledger = Ledger()
        self._known = known  # what an attacker is told: the ids of the newest messages
        self._chance = random.Random(f"{seed} {route.name}")
        self._no_more = threading.Event()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def stop_sending(self) -> None:
        self._no_more.set()
        self._threads[0].join()

    def stop(self) -> None:
        self._stop.set()
        self._threads[1].join()

    def _send(self) -> None:
        number = 0
        with postroad.connect(self.route.source.url, token=TOKEN) as manager:
            queue = manager.queue(self.route.destination)
            while not self._no_more.is_set():
                numbers = range(number, number + self._chance.randint(1, BATCH))
                messages = [
                    postroad.Message(
                        self._chance.randbytes(512),
                        label=f"{SECRET} {each}",
                        recoverable=True,
                        **self.route.properties,  # type: ignore[arg-type]
                    )
                    for each in numbers
                ]
                try:
                    ids = queue.send(messages, transactional=self.route.transactional)
                except PostroadError as fault:
                    self.ledger.faults.append(f"{self.route.name}: a send was refused: {fault}")
                else:
                    self.ledger.sent += numbers
                    self._known.write_text(json.dumps({"manager": self.route.source.name, "ids": list(ids)}))
                number = numbers.stop
                time.sleep(PAUSE_S)

    def _receive(self) -> None:
        with self.route.reader() as manager:
            queue = manager.queue(self.route.queue)
            while not self._stop.is_set():
                try:
                    messages = queue.receive_many(BATCH, timeout=RECEIVE_TIMEOUT_S)
                except NoMessage:
                    continue
                except PostroadError as fault:
                    self.ledger.faults.append(f"{self.route.name}: a read was refused: {fault}")
                    time.sleep(PAUSE_S)
                    continue
                for message in messages:
                    marker, _, number = message.label.partition(" ")
                    if marker == SECRET:  # the rest is what strangers have sent here
                        self.ledger.received.append(int(number))


class Visitor:
    """Somebody who has logged in at the console and looks at a page now and then, until `stop`."""

    def __init__(self, target: Target) -> None:
        self.pages = 0
        self.faults: list[str] = []
        self._console = f"http://{target.host}:{CONSOLE}"
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self._queues = self._log_in()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _open(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Returns the address that it led to, and the page."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        with self._browser.open(url, data, timeout=ANSWER_S) as answer:
            return answer.url, answer.read().decode()

    def _log_in(self) -> str:
        """Logs in. Returns the address of the page of queues."""
        _, page = self._open(f"{self._console}/login")
        token = page.partition('name="csrf" value="')[2].partition('"')[0]
        where, _ = self._open(f"{self._console}/login", {"csrf": token, "user": USER, "password": PASSWORD})
        return f"{where.rstrip('/')}/0/queues"

    def _look(self) -> None:
        while not self._stop.wait(1.0):
            try:
                where, page = self._open(self._queues)
            except OSError as fault:
                self.faults.append(f"the console did not answer: {fault}")
                continue
            if OPEN.partition("\\")[2] not in page:
                self.faults.append(f"the console sent somebody who was logged in to {where}")
            self.pages += 1
