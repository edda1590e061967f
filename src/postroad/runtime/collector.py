"""Python's cyclic garbage collector in a process that runs a queue manager."""

from __future__ import annotations

import gc

YOUNG = 50_000  # objects: more than belong to the messages that are on their way at a time


def relax_collector() -> None:
    """Looks for cycles less often. Messages have none, and go as soon as they are used; with Python's own threshold of
    700 objects, each batch of messages is searched several times. Call it when all modules are loaded: they stay, so
    they are not searched again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
