"""Checks the coverage of each room separately: coverage.py has only one threshold for all files together.

`python -m scripts.coverage_rooms coverage.json` reads what `coverage json` wrote, and fails if the coverage of a room
is too low.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

LEAST_PERCENT = 95.0  # lines and branches together
ROOMS = ("wire", "queues", "binary", "soap", "store")
# They run only beside a real PostgreSQL, which may be missing, and mostly in processes of its tests.
BESIDE_A_SERVER = frozenset({"lease_keeper.py", "postgresql.py", "postgresql_connection.py"})


def percent_of_rooms(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, float]:
    """The share of the lines and branches in each room that a test has run. 0 for a room without any. Leaves out the
    files of BESIDE_A_SERVER."""
    covered: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for name, file in report["files"].items():
        room = PurePosixPath(name).parts[2]  # src/postroad/ROOM/...
        if room in ROOMS and PurePosixPath(name).name not in BESIDE_A_SERVER:
            summary = file["summary"]
            covered[room] += summary["covered_lines"] + summary["covered_branches"]
            there[room] += summary["num_statements"] + summary["num_branches"]
    return {room: 100 * covered[room] / there[room] if there[room] else 0.0 for room in ROOMS}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m scripts.coverage_rooms coverage.json", file=sys.stderr)
        return 2
    rooms = percent_of_rooms(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    for room, percent in rooms.items():
        verdict = "" if percent >= LEAST_PERCENT else f"  too little: at least {LEAST_PERCENT:.0f} % is wanted"
        print(f"{room:<8} {percent:6.2f} %{verdict}")
    return 0 if all(percent >= LEAST_PERCENT for percent in rooms.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
