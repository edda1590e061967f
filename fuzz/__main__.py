"""`python -m fuzz --seconds N [--target NAME ...]` searches for bytes that break a decoder, or replays saved ones.

Exits 1 if an input broke something. The input is kept under fuzz/crashes.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.targets import SEEDS, TARGETS

CRASHES = Path(__file__).parent / "crashes"
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_SAVED = re.compile(r"Test unit written to (\S+)")
_GRACE_S = 60  # time to instrument the code, and to end a last input that hangs


def start(target: str, seconds: int, directory: Path) -> subprocess.Popen[bytes]:
    """The output goes to a file, because a full pipe without a reader would stop the search."""
    corpus = directory / target
    corpus.mkdir()
    for number, seed in enumerate(SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "fuzz.worker", target, str(seconds), str(corpus), str(CRASHES)]
    with (directory / f"{target}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def report(target: str, worker: subprocess.Popen[bytes], seconds: int, directory: Path) -> bool:
    """Waits for a worker and prints what it found. Returns True if nothing broke."""
    try:
        worker.wait(timeout=seconds + _GRACE_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    output = (directory / f"{target}.log").read_text(errors="replace")
    executions = _EXECUTIONS.search(output)
    count = f"{int(executions[1]):,} executions" if executions else "no statistics"
    if worker.returncode == 0 and executions:
        print(f"{target}: {count} in {seconds} s, nothing broke")
        return True
    saved = _SAVED.search(output)
    print(output, file=sys.stderr)
    print(f"{target}: {count}, exit {worker.returncode}, input saved to {saved[1] if saved else 'nowhere'}")
    return False


def fuzz(targets: list[str], seconds: int) -> bool:
    """Runs the targets at the same time, each in a process of its own, because libFuzzer does not return."""
    CRASHES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        workers = {target: start(target, seconds, directory) for target in targets}
        results = [report(target, worker, seconds, directory) for target, worker in workers.items()]
    return all(results)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz everything that reads a peer's bytes.")
    parser.add_argument("--seconds", type=int, default=60, help="how long each target runs (60)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="may be repeated; default all")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="feed one saved input to the targets instead")
    options = parser.parse_args()
    targets = options.target or list(TARGETS)
    if options.replay:
        data = options.replay.read_bytes()
        for target in targets:
            TARGETS[target](data)
        print(f"{options.replay}: nothing broke")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install 'postroad[fuzz]'", file=sys.stderr)
        return 2
    return 0 if fuzz(targets, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
