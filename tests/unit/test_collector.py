"""A process that runs a queue manager collects garbage less often."""

from __future__ import annotations

import gc

from postroad.runtime.supervision import YOUNG, relax_collector


def test_the_collector_leaves_alone_what_is_loaded_and_waits_longer() -> None:
    before = gc.get_threshold()
    gc.unfreeze()
    try:
        relax_collector()
        assert gc.get_threshold() == (YOUNG, *before[1:])
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
