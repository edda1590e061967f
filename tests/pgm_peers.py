"""PGM peers as processes in namespaces: our own cores, and libpgm where its development files are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue

from tests.namespaces import Namespace

LIBPGM = "openpgm-5.3"  # its name in pkg-config
OURS = (sys.executable, "-m", "tests.pgm_peer")
LARGEST_OF_LIBPGM = 16 * 1336  # it accepts 16 fragments of the size that ours have, and cannot send fragments


def libpgm_missing() -> str | None:
    """Why there is no libpgm to compile with. None if there is."""
    for program in ("gcc", "pkg-config"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if subprocess.run(["pkg-config", "--exists", LIBPGM], check=False).returncode != 0:
        return "libpgm is not installed (libpgm-dev on Debian)"
    return None


def compile_libpgm_peer(directory: Path) -> tuple[str, ...]:
    """The command that runs `libpgm_peer.c`."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", LIBPGM], check=True, capture_output=True, text=True)
    source, program = Path(__file__).with_name("libpgm_peer.c"), directory / "libpgm_peer"
    subprocess.run(["gcc", "-O2", "-o", str(program), str(source), *flags.stdout.split()], check=True)
    return (str(program),)


class PeerProcess:
    """One peer as a process, ready when the object exists. `cpu_us` is known after `close`."""

    def __init__(
        self, command: Sequence[str], namespace: Namespace, *arguments: object, env: Mapping[str, str] | None = None
    ) -> None:
        self._process = namespace.run(
            subprocess.Popen,
            [*command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if command is not OURS else None,  # where libpgm logs
            text=True,
            env=env,
        )
        self.cpu_us = 0
        self._lines: Queue[tuple[float, str]] = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self.line()[1] == "ready"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("cpu "):
                self.cpu_us = int(line.split()[1])
            else:
                self._lines.put((time.monotonic(), line.strip()))
        self._lines.put((time.monotonic(), ""))

    def line(self, patience_s: float | None = None) -> tuple[float, str]:
        """The next line, and when it was printed. Empty at the end, or if none comes in time."""
        try:
            return self._lines.get(timeout=patience_s)
        except Empty:
            return time.monotonic(), ""

    def lines(self, count: int) -> list[str]:
        return [self.line()[1] for _ in range(count)]

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
