"""How long the property tests search: a hundred examples each, or many with HYPOTHESIS_PROFILE=long.

And what runs side by side: the tests of one file share servers and addresses, so they stay together; those of Spark
share one session.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fast", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("long", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

SPARK = Path(__file__).parent / "spark"
WITHOUT_THE_SESSION = frozenset({"test_cluster.py", "test_remote_killed.py"})


@pytest.hookimpl(tryfirst=True)  # before those who deal the tests out read the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item.path)))


def _group(path: Path) -> str:
    together = path.is_relative_to(SPARK) and path.name not in WITHOUT_THE_SESSION
    return str(SPARK if together else path)
