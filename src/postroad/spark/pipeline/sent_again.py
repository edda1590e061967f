"""The dead letters that replays of a lake have sent again: a file for each replay, by the ids of the messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256

from postroad.spark.pipeline.files import Files

_SUFFIX = ".sent"


def keep(plans: Files, replay: str, ids: Iterable[str]) -> None:
    """Replaces what was kept of the same replay before."""
    name = f"{replay}{_SUFFIX}"
    plans.delete(name)
    plans.write_text(name, json.dumps(list(ids)))


def ids_sent_again(plans: Files) -> set[str]:
    return {each for name in _names(plans) for each in json.loads(plans.read_text(name) or "[]")}


def fingerprint(plans: Files) -> str | None:
    """Changes with every replay that has sent something; None if there is none."""
    names = _names(plans)
    return sha256("\n".join(names).encode()).hexdigest()[:16] if names else None


def _names(plans: Files) -> list[str]:
    return [file.path for file in plans.walk("") if file.path.endswith(_SUFFIX)]
