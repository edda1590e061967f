"""One phase of the backlog benchmark, in a separate process."""

from __future__ import annotations

import asyncio
import json
import sys

from benchmarks.backlog import run_phase

if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_phase(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
