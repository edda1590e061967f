"""`python -m benchmarks [NAME ...]`: runs the named benchmarks of this directory, or all of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "__main__"))
NAMES.remove("harness")


def main(names: list[str]) -> int:
    for name in names:
        if name not in NAMES:
            print(f"there is no benchmark {name}: choose from {', '.join(NAMES)}", file=sys.stderr)
            return 2
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
