"""Installs the wheel with the newest and with the oldest dependencies that pyproject.toml allows, and uses both.

This verifies the lower bounds: the wheel is installed with exactly these versions. Spark and its table formats are left
out, because they are large; `constraints.txt` has the versions that their tests run with.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from scripts.wheel_smoke import ROOT, build, exchange, install, run, serving

EXTRAS = ("arrow", "auth", "console", "legacy", "otel")
CONFIGURATION = """
[manager]
name = "ranges"
data = "data"
[listen]
host = "127.0.0.1"
binary = 0
ping = false
http = 0
rpc = 0
api = 0
console = 0
[[user]]
name = "ann"
password = "a secret"
[tracing]
enabled = true
file = "spans.json"
"""
# The arguments are the addresses of the API and of the console.
PROGRAM = r"""
import sys
from urllib.request import urlopen
import postroad
from postroad.security import algorithms
api, console = sys.argv[1:]
with postroad.connect(f"http://{api}") as manager:
    queue = manager.queue(r"private$\smoke")
    queue.send("one")
    stream = b"".join(queue.arrow(columns=("label", "body")))
    assert b"one" in stream
    assert queue.submit_arrow(stream, "ranges", 1, 0).sent == 1
assert algorithms.HASHES["md4"].compute(b"")
assert urlopen(f"http://{console}/login", timeout=60).status == 200
"""


def lower_bounds(project: Mapping[str, Any]) -> list[str]:
    """Pins each dependency of `project`, and each one that EXTRAS add, to the oldest allowed version.

    Raises ValueError for a dependency without a lower bound, because nobody knows with what it was tried.
    """
    extras = (each for name in EXTRAS for each in project["optional-dependencies"][name])
    pins: dict[str, str] = {}
    for text in (*project["dependencies"], *extras):
        wanted = Requirement(text)
        lowest = [each.version for each in wanted.specifier if each.operator == ">="]
        if len(lowest) != 1:
            raise ValueError(
                f"{text}: pyproject.toml must name the oldest version that works, as in {wanted.name}>=1.0"
            )
        pins[wanted.name] = f"{wanted.name}=={lowest[0]}"
    return [*pins.values()]


def use(directory: Path, *wanted: str) -> None:
    """Installs the requirements into an environment in a new directory, and uses it."""
    directory.mkdir()
    programs = install(directory / "venv", *wanted)
    with serving(programs, directory, CONFIGURATION) as listen:
        exchange(programs, directory, f"http://{listen['api']}")
        run(str(programs / "python"), "-c", PROGRAM, listen["api"], listen["console"], cwd=directory)
        login = ("--user", "ann", "--password", "a secret")
        peek = run(
            str(programs / "postroad"), "remote", "peek", listen["rpc"], r"private$\smoke", *login, cwd=directory
        )
        assert "one" in peek, peek
    assert (directory / "spans.json").stat().st_size


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = lower_bounds(project)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch))
        wanted = f"{wheel}[{','.join(EXTRAS)}]"
        for name, pins in (("newest", []), ("oldest", oldest)):
            print(f"{name}: {' '.join(pins) or 'whatever the index has'}", flush=True)
            use(Path(scratch, name), wanted, *pins)
            print(f"{name}: installs, serves, sends, receives, logs in, traces and shows the console", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
