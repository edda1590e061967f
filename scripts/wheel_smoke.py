"""Builds the wheel, installs it into an empty environment, and serves, sends and receives with it.

It installs only what the wheel asks for, at the versions of constraints.txt, and the source tree cannot be reached. So
it finds a file that is missing from the wheel, and a dependency that pyproject.toml does not name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATIENCE_S = 300
CONFIGURATION = """
[manager]
name = "smoke"
data = "data"
[listen]
host = "127.0.0.1"
binary = 0
ping = false
http = 0
rpc = 0
api = 0
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        wheel = build(directory)
        programs = install(directory / "venv", str(wheel), "--constraint", str(ROOT / "constraints.txt"))
        version = run(str(programs / "postroad"), "--version", cwd=directory).split()[1]
        assert wheel.name == f"postroad-{version}-py3-none-any.whl", (wheel.name, version)
        assert "serve" in run(str(programs / "postroad"), "--help", cwd=directory)
        with serving(programs, directory, CONFIGURATION) as listen:
            exchange(programs, directory, f"http://{listen['api']}")
    print(f"{wheel.name}: installs, serves, sends and receives")
    return 0


def build(directory: Path) -> Path:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(directory / "dist"), str(ROOT))
    (wheel,) = (directory / "dist").glob("*.whl")
    return wheel


def install(environment: Path, *wanted: str) -> Path:
    """Makes an environment with the given requirements, in pip's words. Returns the directory of its programs."""
    venv.create(environment)
    programs = environment / "bin"
    # It uses the pip of this environment and makes no byte code: a pip of its own, and modules that nothing imports,
    # would take most of the time.
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-compile", *wanted)
    return programs


@contextmanager
def serving(programs: Path, directory: Path, configuration: str) -> Iterator[dict[str, str]]:
    """Starts a server in `directory`, which is outside the source tree. Returns the addresses that it listens on."""
    (directory / "postroad.toml").write_text(configuration)
    server = subprocess.Popen(
        [str(programs / "postroad"), "serve", "-c", "postroad.toml"],
        cwd=directory,
        env=_environment(),
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    try:
        yield json.loads(server.stdout.readline())["listen"]
        server.terminate()
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def exchange(programs: Path, directory: Path, api: str) -> None:
    """Sends a message to a new queue, and receives it."""
    postroad, queue = str(programs / "postroad"), r"private$\smoke"
    for command in (["queue", "create", queue], ["send", queue, "--body", "hello", "--recoverable"]):
        run(postroad, *command, "--api", api, cwd=directory)
    received = json.loads(run(postroad, "receive", queue, "--timeout", "10", "--json", "--api", api, cwd=directory))
    assert received["body"] == "hello", received


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROAD_", "COVERAGE_"))
    }


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
