"""kill -9 under load, in its short form; `make torture` runs the long one."""

from __future__ import annotations

from tests.torture.kill import run


def test_a_killed_server_loses_doubles_and_reorders_nothing() -> None:
    for path, ledger, verdict in run(kills=3, seed=7):
        assert ledger.sent, path
        assert ledger.received, path
        assert verdict == (0, 0, 0), path
