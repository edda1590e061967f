"""Builds the wheel, installs it into an empty environment, and serves, sends and receives with it.

Only what the wheel itself asks for is installed, at the versions of constraints.txt, and the source tree is not in
reach: a file that is missing from the wheel, or a dependency that pyproject.toml does not name, is found here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
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
        _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(directory / "dist"), str(ROOT))
        (wheel,) = (directory / "dist").glob("*.whl")
        venv.create(directory / "venv")
        programs = directory / "venv" / "bin"
        # By the pip of this environment, and without byte code: a pip of its own, and modules that nothing imports,
        # would take most of the time.
        pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
        install = ["install", "--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt"), str(wheel)]
        _run(*pip, *install)
        postroad = str(programs / "postroad")
        version = _run(postroad, "--version", cwd=directory).split()[1]
        assert wheel.name == f"postroad-{version}-py3-none-any.whl", (wheel.name, version)
        _use(directory, postroad)
    print(f"{wheel.name}: installs, serves, sends and receives")
    return 0


def _use(directory: Path, postroad: str) -> None:
    """Outside the source tree: the working directory is the scratch one."""
    assert "serve" in _run(postroad, "--help", cwd=directory)
    (directory / "postroad.toml").write_text(CONFIGURATION)
    server = subprocess.Popen(
        [postroad, "serve", "-c", "postroad.toml"], cwd=directory, env=_environment(), stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        api = f"http://{json.loads(server.stdout.readline())['listen']['api']}"
        queue = r"private$\smoke"
        for command in (["queue", "create", queue], ["send", queue, "--body", "hello", "--recoverable"]):
            _run(postroad, *command, "--api", api, cwd=directory)
        received = json.loads(
            _run(postroad, "receive", queue, "--timeout", "10", "--json", "--api", api, cwd=directory)
        )
        assert received["body"] == "hello", received
        server.terminate()
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROAD_", "COVERAGE_"))
    }


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
