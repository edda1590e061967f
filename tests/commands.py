"""The `postroad` command as users run it, with servers and commands as separate processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.request import urlopen

POSTROAD = (sys.executable, "-m", "postroad")
PATIENCE_S = 60  # for a busy machine; on an idle one, nothing here takes a second


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def last_error(self) -> str:
        return self.errors.splitlines()[-1] if self.errors else ""


def postroad(
    *arguments: str,
    given: bytes = b"",
    api: str | None = None,
    output: BinaryIO | None = None,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs one command to its end. What it prints goes to `output`, if given.

    A command that would keep a server from starting must also fail `serve --check`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTROAD_")}
    environment |= variables or {}
    if api is not None:
        environment["POSTROAD_API"] = api
    run = subprocess.run(
        [*POSTROAD, *arguments],
        input=given,
        stdout=output or subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        env=environment,
        check=False,
    )
    outcome = Outcome(run.returncode, run.stdout or b"", run.stderr.decode())
    if arguments[:1] == ("serve",) and outcome.code == 2 and "--check" not in arguments:
        checked = postroad(*arguments, "--check", given=given, api=api, variables=variables)
        assert (checked.code, checked.last_error) == (2, outcome.last_error)
    return outcome


class ServerProcess:
    """`postroad serve` with a configuration file, ready when the object exists. `descriptors` limits its
    descriptors."""

    command_prefix: tuple[str, ...] = ()  # a program that runs the server

    def __init__(self, config: Path, *options: str, descriptors: int | None = None) -> None:
        self._log = config.with_suffix(".log")
        command = [*self.command_prefix, *POSTROAD, "serve", "-c", str(config), *options]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        line = self._output.readline()
        if not line:
            self.close()
            raise AssertionError(self.log)
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def api(self) -> str:
        return f"http://{self.ready['listen']['api']}"

    def get(self, path: str) -> Any:
        """What its HTTP API answers to a request without a token. A command for each look would take most of the time
        of a test that is about another command."""
        with urlopen(f"{self.api}/api/v1{path}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def memory_mb(self) -> float:
        """The memory that is resident now."""
        return self._memory_mb("VmRSS")

    @property
    def most_memory_mb(self) -> float:
        """The most memory that was resident since the start."""
        return self._memory_mb("VmHWM")

    def _memory_mb(self, field: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes]:
        """The exit code after this signal, and what was printed since the ready line."""
        self._process.send_signal(number)
        rest = self._output.read()
        self._output.close()
        return self._process.wait(PATIENCE_S), rest

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
        self._output.close()


@contextmanager
def serving(config: Path, *options: str, descriptors: int | None = None) -> Iterator[ServerProcess]:
    server = ServerProcess(config, *options, descriptors=descriptors)
    try:
        yield server
    finally:
        server.close()


def pasted(command: str, directory: Path) -> list[list[str]]:
    """The arguments of each call of `postroad` if somebody pasted the command into a shell."""
    script = 'postroad() { printf "%s\\0" "$@"; printf "\\0"; }\n' + command
    run = subprocess.run(["sh", "-c", script], cwd=directory, capture_output=True, check=False, timeout=PATIENCE_S)
    return [call.decode().split("\0") for call in run.stdout.split(b"\0\0") if call]
