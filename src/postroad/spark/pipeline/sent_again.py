"""The dead letters that replays of a directory have sent again: a file for each replay, by the ids of the messages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

_SUFFIX = ".sent"


def keep(plans: Path, replay: str, ids: Iterable[str]) -> None:
    """Writing it twice changes nothing."""
    write_whole(plans / f"{replay}{_SUFFIX}", json.dumps(list(ids)))


def ids_sent_again(plans: Path) -> set[str]:
    return {each for file in plans.glob(f"*{_SUFFIX}") for each in json.loads(file.read_text())}


def fingerprint(plans: Path) -> str | None:
    """Changes with every replay that has sent something; None if there is none."""
    names = sorted(file.name for file in plans.glob(f"*{_SUFFIX}"))
    return sha256("\n".join(names).encode()).hexdigest()[:16] if names else None


def write_whole(file: Path, text: str) -> None:
    """Writes the file whole and durably, or not at all."""
    draft = file.with_suffix(".draft")
    with draft.open("w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    os.rename(draft, file)
