"""One target in one process, under atheris: `python -m fuzz.worker TARGET SECONDS CORPUS ARTIFACTS`.

The parent reads the statistics from stderr. libFuzzer ends the process itself.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["postroad"]):
    from fuzz.targets import TARGETS

MAX_LEN = 4096  # longer than every seed; larger packets show nothing new
RSS_LIMIT_MB = 1024  # a claim of a peer must not cost memory
TIMEOUT_S = 10  # for one input, to find endless loops


def main() -> None:
    target, seconds, corpus, artifacts = sys.argv[1:]
    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={artifacts}/{target}-",
        f"-max_len={MAX_LEN}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-timeout={TIMEOUT_S}",
        "-print_final_stats=1",
        corpus,
    ]
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
