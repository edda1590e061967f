"""`python -m tests.torture.hostile --seconds 1800` prints the verdict, and exits 1 if anything is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.torture.hostile.verdict import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800, help="of each seed")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for the managers' data and logs")
    arguments = parser.parse_args()
    failed = False
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            if arguments.keep is not None:
                directory = arguments.keep / str(seed)
                directory.mkdir(parents=True)
            verdict = run(directory, seed, arguments.seconds)
        print(verdict, flush=True)
        failed = failed or bool(verdict.faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
