"""Which queues a name or a pattern means."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument
from postroad.spark.reading import matching, require_queues

FOUND = [r"private$\q1", r"private$\Q2", r"private$\orders", r"private$\q1;journal", r"rome\q3"]


@pytest.mark.parametrize(
    ("wanted", "matched"),
    [
        ([r"private$\q*"], [r"private$\Q2", r"private$\q1"]),
        ([r".\private$\q*"], [r"private$\Q2", r"private$\q1"]),
        ([r"private$\*"], [r"private$\Q2", r"private$\orders", r"private$\q1"]),
        (["*q*"], [r"private$\Q2", r"private$\q1", r"rome\q3"]),
        ([r"private$\*;journal"], [r"private$\q1;journal"]),
        ([r"private$\q1", r"private$\q*"], [r"private$\Q2", r"private$\q1"]),
        ([r"private$\b", r"private$\a"], [r"private$\a", r"private$\b"]),
        ([r"private$\q[12]*"], []),
        ([r"private$\x*"], []),
    ],
)
def test_what_matches(wanted: list[str], matched: list[str]) -> None:
    assert matching(FOUND, wanted) == matched


def test_nothing_matches() -> None:
    with pytest.raises(InvalidArgument, match=r"^queue: no queue matches private\$\\x\*; create one first"):
        require_queues(matching(FOUND, [r"private$\x*"]), [r"private$\x*"])
