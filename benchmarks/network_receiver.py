"""The receiving process of the network benchmark."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.network import receive

if __name__ == "__main__":
    asyncio.run(receive(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
