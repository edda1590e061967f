"""Writes the blocking client, client/sync, from the asynchronous one, client/aio: the same text without `async`.
`python -m scripts.unasync` writes it. With `--check`, it only says whether it is up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "postroad" / "client"
MODULES = ("consuming", "manager", "queue")
NOTICE = "# Written by scripts/unasync.py from client/aio/{name}.py: edit that one.\n"

SUBSTITUTIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\bAsync(Iterator)\b", r"\1"),
        (r"\basync(contextmanager)\b", r"\1"),
        (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
        (r"\bStopAsyncIteration\b", "StopIteration"),
        (r"\bpostroad\.client\.aio\b", "postroad.client.sync"),
    )
]
IMPORT = re.compile(r"^( *from \S+ import )([^(\n]+)$", re.MULTILINE)
OUR_IMPORT = r" *from (postroad\S*) import (?:\([^)]*\)|[^(\n]+)\n"
OUR_IMPORTS = re.compile(rf"^(?:{OUR_IMPORT})+", re.MULTILINE)
YIELDING = re.compile(r"^( +)for (\w+) in (.+):\n +yield \2$", re.MULTILINE)


def blocking(name: str, source: str) -> str:
    """The text of one module without `async`, with imported names in order again."""
    for pattern, replacement in SUBSTITUTIONS:
        source = pattern.sub(replacement, source)
    source = YIELDING.sub(r"\1yield from \3", source)  # an asynchronous generator has no such statement
    source = OUR_IMPORTS.sub(lambda block: "".join(_sorted_lines(block[0])), source)
    return NOTICE.format(name=name) + IMPORT.sub(lambda line: line[1] + ", ".join(_sorted(line[2])), source)


def _sorted_lines(block: str) -> list[str]:
    return [line[0] for line in sorted(re.finditer(OUR_IMPORT, block), key=lambda line: line[1])]


def _sorted(names: str) -> list[str]:
    """Constants, classes, functions, in the order of the linter."""
    return sorted(names.split(", "), key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def main(arguments: list[str]) -> int:
    """Returns 0 if all is well. With `--check`, returns 1 if a module is out of date."""
    stale = []
    for name in MODULES:
        wanted = blocking(name, (CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8"))
        target = CLIENT / "sync" / f"{name}.py"
        if target.exists() and target.read_text(encoding="utf-8") == wanted:
            continue
        if "--check" in arguments:
            stale.append(str(target.relative_to(CLIENT.parents[2])))
        else:
            target.write_text(wanted, encoding="utf-8")
    if stale:
        print(f"run `python -m scripts.unasync`: {', '.join(stale)} differ from client/aio", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
