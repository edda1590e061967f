"""Other brokers, run by scripts in a directory that is no part of this project: `brokers.py` starts and stops them,
`native/amqp_bench` and `native/nats_bench` load them from C, and `bench_*.py` from Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers_figures import Figures, figures
from benchmarks.peers_pace import SIZE
from benchmarks.peers_processes import cpu_s, family, rss_mb, traced

NEEDED = ("brokers.py", "common.py", "bench_rabbitmq.py", "bench_nats.py", "native/Makefile")
PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "nats-server", "cc", "make")
WINDOW = 1000  # messages that a client may have unconfirmed
RUN_S = 600.0
SIDES = ("producer", "broker", "consumer")
LOAD = Path(__file__).with_name("peers_load.py")


@dataclass(frozen=True, slots=True)
class Brokers:
    """A copy of the scripts with its native tools built, in a scratch directory on the disk that is measured."""

    scripts: Path
    scratch: Path
    python: str

    @property
    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return ours | {"BENCH_DIR": str(self.scratch)}

    def run(self, *command: str) -> list[dict[str, Any]]:
        """Runs a command, and returns the JSON lines that it prints."""
        done = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, text=True, timeout=RUN_S)
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}: {' '.join(command)}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def _script(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        return self.run(self.python, str(self.scripts / name), *arguments)

    @contextmanager
    def started(self, peers: Sequence[str], trace: Path | None = None) -> Iterator[None]:
        """Starts the brokers. `trace` is a directory that gets the syncs of each broker."""
        with ExitStack() as stack:
            for peer in peers:
                command = [self.python, str(self.scripts / "brokers.py"), "start", peer]
                if trace is None:
                    stack.callback(self._script, "brokers.py", "stop", peer)
                    self.run(*command)
                    continue
                prefix = traced(trace / peer)
                # strace stays until the broker ends. So wait for its end after the stop, and detect the start by its
                # output.
                process = subprocess.Popen(
                    [*prefix, *command], env=self._environment, stdout=subprocess.PIPE, text=True
                )
                stack.callback(process.communicate)
                stack.callback(self._script, "brokers.py", "stop", peer)
                assert process.stdout is not None
                if " up " not in process.stdout.readline():
                    raise RuntimeError(f"{peer} did not start under strace")
            yield

    def _state(self, peer: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.scratch / f"{peer}.json").read_text())
        return found

    def pids(self, peer: str) -> list[int]:
        return family(self._state(peer)["pids"])

    def rss_mb(self, peer: str) -> float:
        return rss_mb(self.pids(peer))

    def native(self, name: str, peer: str, messages: int, *, durable: bool = True, producers: int = 1) -> Figures:
        """Runs C clients, end to end. Each of several producers gets a queue and a consumer of its own."""
        port, each = str(self._state(peer)["port"]), messages // producers
        window = str(WINDOW // producers)
        tool = str(self.scripts / "native" / ("amqp_bench" if peer == "rabbitmq" else "nats_bench"))
        if peer == "rabbitmq":
            sizes = (str(each), str(SIZE), window, str(int(durable)), "classic")
            commands = [[tool, "e2e", port, f"bench{number}", *sizes] for number in range(producers)]
        else:
            assert producers == 1, "nats_bench has one stream"
            commands = [[tool, "e2e", port, str(each), str(SIZE), window, "file"]]
        before = cpu_s(self.pids(peer))
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        try:
            lines = [json.loads(line) for one in running for line in one.communicate(timeout=RUN_S)[0].splitlines()]
        finally:
            for one in running:
                one.kill()
        broker = cpu_s(self.pids(peer)) - before
        if len(lines) != 2 * producers:
            raise RuntimeError(f"the native client of {peer} failed")
        spent = {
            role: sum(one["cpu_us"] for one in lines if one["role"] == role) * each / 1e6 for role in ("pub", "sub")
        }
        began, ended = min(one["t0"] for one in lines if one["role"] == "pub"), max(one["t1"] for one in lines)
        sides = {"producer": spent["pub"], "broker": broker, "consumer": spent["sub"]}
        return figures(name, each * producers, began, ended, sides)

    def scripted(self, name: str, script: str, messages: int, *options: str) -> Figures:
        """Runs a Python client from the directory, end to end."""
        (found,) = self._script(script, "-n", str(messages), "--scenarios", "e2e", *options)
        cpu = (found[key] for key in ("pub_cpu_us", "broker_cpu_us", "sub_cpu_us"))
        return Figures(name, messages, found["rate"], dict(zip(SIDES, cpu, strict=True)))

    def several(self, name: str, messages: int, window: int, producers: int) -> Figures:
        """Runs pika with several publishers into one queue, and one consumer."""
        options = {"messages": messages // producers, "window": window, "producers": producers}
        (found,) = self._load("several", options)
        return figures(
            name, options["messages"] * producers, found["began"], found["ended"], found["cpu_s"], sides=SIDES
        )

    def latencies_ms(self, peer: str, messages: int, per_second: float) -> list[float]:
        (found,) = self._load(peer, {"messages": messages, "per_second": per_second})
        return list(found["latencies_ms"])

    def _load(self, what: str, options: dict[str, Any]) -> list[dict[str, Any]]:
        return self.run(self.python, str(LOAD), str(self.scripts), what, json.dumps(options))


def prepare(directory: Path, scratch: Path, python: str) -> Brokers:
    """Copies the scripts, because their directory may be read-only, and builds the native tools."""
    scripts = scratch / "scripts"
    shutil.copytree(directory, scripts)
    for path in (scripts, *scripts.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    subprocess.run(["make", "--silent", "-C", str(scripts / "native")], check=True)
    (scratch / "run").mkdir()
    return Brokers(scripts, scratch / "run", python)


def missing(directory: Path) -> str | None:
    """Why the peers cannot be measured, or None."""
    absent = [name for name in NEEDED if not (directory / name).is_file()]
    if absent:
        return f"{directory} must hold the scripts that measure other brokers, but has no {absent[0]}"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(absent)} must be installed; README.md in {directory} lists the packages" if absent else None
