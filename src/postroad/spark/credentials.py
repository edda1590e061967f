"""Secrets in files: each process reads them where it runs, so no plan, task or checkpoint of Spark contains them."""

from __future__ import annotations

from pathlib import Path
from socket import gethostname

from postroad.errors import InvalidArgument


def read_secret(option: str, file: str) -> str:
    """The only line of a file on this machine. InvalidArgument, with the machine's name, if it cannot be read."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "must be text"
        raise InvalidArgument(f"{option}: {file} cannot be read on {gethostname()}: {why}") from None
    if len(lines) != 1 or not lines[0].strip():
        raise InvalidArgument(f"{option}: {file} on {gethostname()} must contain one line, and nothing else")
    return lines[0].strip()
