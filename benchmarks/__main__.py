"""`python -m benchmarks [NAME ...]`: runs the named benchmarks of this directory, or all of them."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "wire",
    "security",
    "soap_codec",
    "soap_tables",
    "store",
    "queues",
    "client",
    "listing",
    "routing",
    "sessions",
    "queues_many",
    "backlog",
)  # quick ones first


def main(names: list[str]) -> int:
    for name in names:
        if name not in NAMES:
            print(f"there is no benchmark {name}: choose from {', '.join(NAMES)}", file=sys.stderr)
            return 2
    del sys.argv[1:]  # a module with arguments of its own must not see ours
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
