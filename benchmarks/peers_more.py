"""The long parts of `make bench-peers`: latency at half load, disk syncs, and steady load for minutes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import peers_client, peers_managers
from benchmarks.peers_brokers import Brokers
from benchmarks.peers_client import Calls
from benchmarks.peers_figures import Figures, count_syncs, percentiles, slice_rates
from benchmarks.peers_managers import Load, Run
from benchmarks.peers_plan import CONCURRENT, KINDS, MANAGERS, NATS, NATS_PY, PIKA, RABBITMQ, SINGLE, peers_of

LATENCY_S = 10.0
SLICES = 10  # a peer's steady load is so many runs in a row: its tool gives one rate for each run


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from the planned time of sending to the consumer."""

    name: str
    per_second: float
    percentiles_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Syncs:
    name: str
    messages: int
    syncs: int


@dataclass(frozen=True, slots=True)
class Steady:
    """Rates of the first and last tenth. Resident megabytes of each process after the first tenth and at the end."""

    name: str
    seconds: float
    rates: tuple[float, float]
    rss_mb: Mapping[str, tuple[float, float]]


def latencies(
    brokers: Brokers | None, best: Mapping[str, Figures], window: int, seconds: float = LATENCY_S
) -> Iterator[Latency]:
    """Measures latency at half of the rate that each contender reached in this run."""
    runs: dict[str, Callable[[int, float], list[float]]] = {
        MANAGERS[kind]: partial(_managers_at_pace, kind, window) for kind in KINDS
    }
    runs[CONCURRENT] = _client_at_pace
    if brokers is not None:
        runs |= {PIKA: partial(brokers.latencies_ms, "rabbitmq"), NATS_PY: partial(brokers.latencies_ms, "nats")}
    for name, run in runs.items():
        if name in best:
            per_second = best[name].rate / 2
            yield Latency(name, per_second, percentiles(run(max(1, int(per_second * seconds)), per_second)))


def _managers_at_pace(kind: str, window: int, messages: int, per_second: float) -> list[float]:
    return peers_managers.measure(MANAGERS[kind], Load(kind, messages, window, per_second=per_second)).latencies_ms


def _client_at_pace(messages: int, per_second: float) -> list[float]:
    calls = Calls(messages, concurrent=True, per_second=per_second)
    return peers_client.measure(CONCURRENT, calls).latencies_ms


def syncs(brokers: Brokers | None, messages: int, window: int) -> Iterator[Syncs]:
    """Makes short runs under strace, which slows only the calls that it counts. The brokers must not run yet."""
    runs: dict[str, Callable[[Path], Run]] = {
        MANAGERS[kind]: partial(peers_managers.measure, MANAGERS[kind], Load(kind, messages, window)) for kind in KINDS
    }
    runs[SINGLE] = partial(peers_client.measure, SINGLE, Calls(max(1, messages // 20), concurrent=False))
    runs[CONCURRENT] = partial(peers_client.measure, CONCURRENT, Calls(max(1, messages // 3), concurrent=True))
    for name, run in runs.items():
        with tempfile.TemporaryDirectory() as trace:
            found = run(Path(trace))
            began, ended = (each + time.time() - time.monotonic() for each in found.times)
            yield Syncs(name, found.figures.messages, _count(Path(trace), began, ended))
    if brokers is not None:
        with tempfile.TemporaryDirectory() as trace, brokers.started(("rabbitmq", "nats"), Path(trace)):
            for contender in [each for kind in KINDS for each in peers_of(kind, brokers, messages)]:
                began = time.time()
                (figures,) = contender.run()
                yield Syncs(contender.name, figures.messages, _count(Path(trace), began, time.time()))


def _count(trace: Path, began: float, ended: float) -> int:
    return sum(count_syncs(file.read_text().splitlines(), began, ended) for file in trace.iterdir())


def steady(brokers: Brokers | None, best: Mapping[str, Figures], window: int, seconds: float) -> Iterator[Steady]:
    """Sends as many recoverable messages as each contender can in that time at its best rate of this run."""
    name = MANAGERS["recoverable"]
    if name in best:
        run = peers_managers.measure(name, Load("recoverable", int(best[name].rate * seconds), window))
        memory = {who: (found[len(found) // 10].rss_mb, found[-1].rss_mb) for who, found in run.samples.items()}
        yield Steady(name, run.times[1] - run.times[0], slice_rates(run.samples["consumer"]), memory)
    for name, peer in ((RABBITMQ["recoverable"], "rabbitmq"), (NATS, "nats")):
        if brokers is not None and name in best:
            began, rates, memories = time.monotonic(), [], []
            for _ in range(SLICES):
                rates.append(brokers.native(name, peer, int(best[name].rate * seconds / SLICES)).rate)
                memories.append(brokers.rss_mb(peer))
            memory = {"broker": (memories[0], memories[-1])}
            yield Steady(name, time.monotonic() - began, (rates[0], rates[-1]), memory)
