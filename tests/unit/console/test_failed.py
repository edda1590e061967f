"""The groups of the console's failed messages, with what strangers write into headers."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import pytest

from postroad.console.pages.failed import Group
from postroad.describe.failed import FailedMessage, failed_groups


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (datetime.min.replace(tzinfo=UTC), "0001-01-01 00:00:00"),
        (datetime(2026, 11, 19, 15, 31, 0, 999_999, UTC), "2026-11-19 15:31:00"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31 23:59:59"),
        (None, ""),
    ],
)
def test_every_time_of_a_failure_can_be_shown(time: datetime | None, shown: str) -> None:
    (facts,) = failed_groups([FailedMessage(r"DIRECT=OS:a\private$\b", None, None, None, time)])
    group = Group(0, facts, array("Q", [1]))
    assert (group.first, group.last) == (shown, shown)
