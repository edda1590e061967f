"""What Postroad can do today, shown by running it: decodes the sample packets with the `postroad` command.

Only the command line is used here, as a reader would use it; nothing is imported from the package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
SCENES = (
    ("frame7.hex", "A message that Windows sent over TCP port 1801, with its sender's SID and a body of 1000 letters"),
    ("frame8.hex", "The acknowledgment that answered it"),
    ("v1-express.hex", "An express message to a private queue, with an administration queue"),
    ("v2-transactional.hex", "A transactional message to a public queue, carrying the counters of its session"),
)


def main() -> int:
    """Show every scene; 1 as soon as one does not play."""
    for name, title in SCENES:
        print(f"\n{title}\n$ postroad decode examples/{name}", flush=True)
        command = [sys.executable, "-m", "postroad", "decode", str(EXAMPLES / name)]
        if (code := subprocess.run(command, check=False).returncode) != 0:
            print(f"postroad decode examples/{name} ended with exit code {code}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
