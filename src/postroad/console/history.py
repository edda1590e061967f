"""What the console remembers of its managers: time series for charts, and what needs attention."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from postroad.client.exchange import pinned_context
from postroad.console.manager_client import NO_CREDENTIALS, Credentials, LoginNeeded, ManagerClient
from postroad.console.rendering import plural, size
from postroad.errors import AccessDenied, ManagerUnavailable, PostroadError
from postroad.net.endpoints import CALLED_FOR, called_for
from postroad.reports.info import ManagerInfo, QueueInfo, attention

# What the console remembers of a manager: its queues a moment ago, and depth, rates and ages over time. The API has no
# history, so the console asks for all queues every few seconds. If answers take long, it asks less often: the pause is
# twenty times as long as the answer took, up to half a minute. The second request follows the first soon, because rates
# need two samples.


SAMPLE_S = 5.0
SECOND_S = 1.0  # from the first sample to the second
COST = 20  # the shortest pause, as a multiple of the time that the last answer took
MAX_PAUSE_S = 30.0
BUSY_PER_S = 100.0  # messages in and out; from this rate on, the manager's own work comes first
KEPT = 720  # samples, for an hour
MAX_SERIES = 20_000  # of queues


@dataclass(frozen=True, slots=True)
class Sample:
    """A queue at one moment: its messages, how many have ever come and left, and the age of the oldest."""

    at_s: float
    messages: int
    added: int
    oldest_age_s: float

    @property
    def removed(self) -> int:
        return self.added - self.messages


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second, and how long a message stays: the mean depth over the rate, by Little's law."""

    at_s: float
    depth: float
    into: float
    out: float
    latency_s: float | None


def rates(samples: Iterable[Sample]) -> list[Rates]:
    """The rates from each sample to the next. They are never negative, although a restarted manager counts express
    messages from 0."""
    found: list[Rates] = []
    before: Sample | None = None
    for sample in samples:
        if before is not None and sample.at_s > before.at_s:
            seconds = sample.at_s - before.at_s
            into = max(0, sample.added - before.added) / seconds
            out = max(0, sample.removed - before.removed) / seconds
            depth = (sample.messages + before.messages) / 2
            found.append(Rates(sample.at_s, sample.messages, into, out, depth / out if out else None))
        before = sample
    return found


class Watch:
    """Samples one manager. `credentials` are those of the console or, if it has none, of the first administrator who
    logged in."""

    def __init__(
        self, url: str, credentials: Credentials, server_certificate: str | None = None, key: bytes | None = None
    ) -> None:
        """`server_certificate` (PEM) is the manager's own; without it, the system decides which to trust. `key` proves
        to the manager that the console may name the addresses of people."""
        self.url = url
        self._key = key
        self._tls = None if server_certificate is None else pinned_context(server_certificate)
        self.name: str | None = None  # set once it has answered
        self.info: ManagerInfo | None = None
        self.store: Mapping[str, object] = {}  # its kind and the manager's role, as the manager said last
        self.queues: list[QueueInfo] = []
        self._fresh_until = float("-inf")  # on the monotonic clock, for `queues`
        self.down: str | None = None  # why it does not answer; None if it does
        self.totals: deque[Sample] = deque(maxlen=KEPT)
        self._series: dict[str, deque[Sample]] = {}
        self._own = credentials
        self._client = self.connect(credentials)
        self._asked = asyncio.Event()

    def connect(self, credentials: Credentials, address: str | None = None) -> ManagerClient:
        """A client of the manager. `address` is that of the person for whom the console calls."""
        caller = {} if self._key is None or address is None else {CALLED_FOR: called_for(self._key, address)}
        return ManagerClient(self.url, credentials, self._tls, caller)

    async def exchange_ticket(self, authorization: str, address: str) -> tuple[Credentials, str]:
        """Logs somebody in with the value of Authorization that a browser at `address` sent."""
        caller = {} if self._key is None else {CALLED_FOR: called_for(self._key, address)}
        client = ManagerClient(self.url, NO_CREDENTIALS, self._tls, caller | {"Authorization": authorization})
        try:
            return await client.begin_session()
        finally:
            await client.close()

    def is_busy(self) -> bool:
        """Whether many messages came or left between the last two samples. With a single sample, the manager counts as
        idle, because the next is a second away. It counts as busy if the console may not ask."""
        latest = rates([*self.totals][-2:])
        return latest[0].into + latest[0].out > BUSY_PER_S if latest else not self.totals

    @property
    def title(self) -> str:
        return self.name or self.url.partition("//")[2]

    def history(self, path: str) -> list[Sample]:
        """The samples of one queue, with the last value repeated for now."""
        series = self._series.get(path)
        if not series:
            return []
        last = series[-1]
        latest = self.totals[-1].at_s if self.totals else last.at_s
        return (
            [*series, Sample(latest, last.messages, last.added, last.oldest_age_s)] if latest > last.at_s else [*series]
        )

    async def lend(self, client: ManagerClient) -> None:
        """An administrator has logged in. The console uses the same credentials if its own do not suffice, unless they
        end soon."""
        if client.credentials.name is not None:
            return
        if self.down is None and self.info is None and self._client.credentials != client.credentials:
            await self._use(client.credentials)

    async def give_back(self, credentials: Credentials) -> None:
        """The owner of the credentials has logged out."""
        if credentials != self._own and self._client.credentials == credentials:
            self.info, self.queues = None, []
            await self._use(self._own)

    async def renew(self, credentials: Credentials, server_certificate: str | None) -> None:
        """The manager has a new certificate or token. Clients of people who are logged in then trust the new
        certificate too."""
        if self._tls is not None and server_certificate is not None:
            self._tls.load_verify_locations(cadata=server_certificate)
        before, self._own = self._own, credentials
        if self._client.credentials == before:
            await self._use(credentials)

    async def _use(self, credentials: Credentials) -> None:
        before, self._client = self._client, self.connect(credentials)
        await before.close()
        self.ask_now()

    @property
    def is_fresh(self) -> bool:
        """Whether `queues` is from the last answer, and the next answer is not overdue."""
        return time.monotonic() < self._fresh_until

    def ask_now(self) -> None:
        """Something has changed: asks again soon, because `queues` is out of date."""
        self._fresh_until = float("-inf")
        self._asked.set()

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            self._asked.clear()
            answered = await self._ask()
            took = time.monotonic() - began
            pause = self.pause(took) if answered else SAMPLE_S
            if answered and not self._asked.is_set():
                self._fresh_until = time.monotonic() + pause + 2 * took + SAMPLE_S
            try:
                async with asyncio.timeout(pause):
                    await self._asked.wait()
                await asyncio.sleep(0.2)  # changes come in groups
            except TimeoutError:
                pass

    def pause(self, took: float) -> float:
        """Seconds until the next request, after an answer that took `took` seconds."""
        return SECOND_S if len(self.totals) == 1 else max(SAMPLE_S, min(MAX_PAUSE_S, COST * took))

    async def _ask(self) -> bool:
        """Asks the manager. Returns whether it answered."""
        try:
            info = await self._client.info()
            self.store = info.store
            queues = await self._client.queues()
        except LoginNeeded:
            self.down = self.info = None
        except ManagerUnavailable as error:
            self.down = error.fault
        except AccessDenied:
            self.down = None
        except PostroadError as error:
            self.down = str(error)
        else:
            self.down, self.info, self.name, self.queues = None, info, info.name, queues
            self.record(time.time(), queues)
            return True
        self._fresh_until = float("-inf")
        return False

    def record(self, now: float, queues: list[QueueInfo]) -> None:
        """Adds a sample for each queue whose numbers changed, and one for all queues together."""
        oldest = 0.0
        messages = added = 0
        for queue in queues:
            age = 0.0 if queue.oldest_arrived_ms is None else max(0.0, now - queue.oldest_arrived_ms / 1000)
            if queue.type not in ("journal", "system"):
                messages, added = messages + queue.messages, added + queue.messages_in
                oldest = max(oldest, age)
            series = self._series.get(queue.path)
            if series is None:
                if len(self._series) >= MAX_SERIES:
                    continue
                series = self._series[queue.path] = deque(maxlen=KEPT)
            if (
                series
                and self.totals
                and (series[-1].messages, series[-1].added) != (queue.messages, queue.messages_in)
            ):
                before = self.totals[-1].at_s
                if series[-1].at_s < before:  # the values were constant until the previous sample
                    series.append(Sample(before, series[-1].messages, series[-1].added, series[-1].oldest_age_s))
            if not series or (series[-1].messages, series[-1].added) != (queue.messages, queue.messages_in):
                series.append(Sample(now, queue.messages, queue.messages_in, age))
        self.totals.append(Sample(now, messages, added, oldest))
        if len(self._series) > len(queues):
            there = {queue.path for queue in queues}
            for path in [path for path in self._series if path not in there]:
                del self._series[path]

    async def close(self) -> None:
        await self._client.close()


# What needs an operator, the most urgent first. Each item links to a page that shows more.


DEAD_LETTERS = ("system$;deadletter", "system$;deadxact")
MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Item:
    """`level` is `bad` or `warn`."""

    level: str
    manager: str
    sentence: str
    url: str


def items(index: int, name: str, info: ManagerInfo | None, queues: Sequence[QueueInfo]) -> Iterator[Item]:
    """The items of a manager that answers."""
    if info is not None:
        for sentence in attention(info, ()):
            yield Item("bad", name, sentence[0].upper() + sentence[1:], f"/{index}/security")
    stuck = sorted((queue for queue in queues if queue.stuck), key=lambda queue: queue.oldest_arrived_ms or 0)
    for queue in stuck[:MOST_NAMED]:
        waits = f"{plural(queue.messages, 'message')} {'waits' if queue.messages == 1 else 'wait'}"
        yield Item("bad", name, f"Stuck: {waits} for {queue.path}: {queue.why}", _page(index, queue))
    if rest := stuck[MOST_NAMED:]:
        yield Item("bad", name, f"{len(rest)} more outgoing queues are stuck", f"/{index}/network")
    for queue in queues:
        if queue.damaged:
            yield Item("bad", name, f"{plural(queue.damaged, 'damaged message')} in {queue.path}", _page(index, queue))
        if queue.nearly_full:
            quota = size((queue.quota_kb or 0) * 1024)
            yield Item(
                "warn", name, f"{queue.path} is nearly full: {size(queue.bytes)} of {quota}", _page(index, queue)
            )
    for queue in queues:
        if queue.path in DEAD_LETTERS and queue.messages:
            yield Item(
                "warn", name, f"{plural(queue.messages, 'dead letter')} in {short_path(queue)}", f"/{index}/dead"
            )
        elif queue.path.lower().endswith(";poison") and queue.messages:
            yield Item("warn", name, f"{plural(queue.messages, 'poison message')} in {queue.path}", _page(index, queue))


def _page(index: int, queue: QueueInfo) -> str:
    return f"/{index}/queue?{urlencode({'name': queue_name(queue)})}"


def is_own(queue: QueueInfo) -> bool:
    """Whether the manager made the queue itself: a journal, a subqueue or a system queue."""
    return queue.type in ("journal", "system", "subqueue") or queue.is_internal


def short_path(queue: QueueInfo) -> str:
    """The path as commands take it: the manager's own queues have no prefix."""
    return queue.path.removeprefix("system$")


def queue_name(queue: QueueInfo) -> str:
    """The name of the queue for the API."""
    return queue.format_name if queue.type == "outgoing" else queue.path
