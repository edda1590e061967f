"""Writes a draft of what is expected of a capture: `python -m tests.captures FILE...` makes FILE's .toml, if it has
none."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.captures.expectations import draft

for name in sys.argv[1:]:
    expected = Path(name).with_suffix(".toml")
    if expected.exists():
        print(f"{expected}: exists already")
    else:
        expected.write_text(draft(Path(name)), encoding="utf-8")
        print(f"{expected}: read it, say in `about` what was recorded, and correct what is wrong")
