"""How a queue may be written in a URL, and what the router makes of it."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from postroad.api.application import QUEUES, canonical_path


@pytest.mark.parametrize(
    ("written", "queue", "rest"),
    [
        ("private$/orders", "private$\\orders", ""),
        ("private$%5Corders", "private$\\orders", ""),
        ("private%24/orders/messages", "private$\\orders", "/messages"),
        ("PRIVATE$/orders/receive", "PRIVATE$\\orders", "/receive"),
        ("alpha/private$/orders/messages/5", "alpha\\private$\\orders", "/messages/5"),
        ("alpha/orders/purge", "alpha\\orders", "/purge"),
        ("private$/messages/messages", "private$\\messages", "/messages"),
        ("alpha/private$/messages/5", "alpha\\private$\\messages", "/5"),
        (";deadletter/messages", ";deadletter", "/messages"),
        ("system$;journal/messages", "system$;journal", "/messages"),
        ("private$/orders;journal/messages", "private$\\orders;journal", "/messages"),
        ("private$%2Forders/messages", "private$/orders", "/messages"),
        (
            "DIRECT=HTTP:%2F%2Fbeta%2Fmsmq%2Fmessages/messages",
            "DIRECT=HTTP://beta/msmq/messages",
            "/messages",
        ),
        ("DIRECT=OS:beta%5Cprivate$%5Cq/pause", "DIRECT=OS:beta\\private$\\q", "/pause"),
    ],
)
def test_a_queue_is_one_segment(written: str, queue: str, rest: str) -> None:
    segment, _, remainder = canonical_path(QUEUES + written).removeprefix(QUEUES).partition("/")
    assert (unquote(segment), remainder) == (queue, rest.removeprefix("/"))


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/queues", "/api/v1/handles/1/cursors/2/peek"])
def test_other_paths_stay_as_they_are(path: str) -> None:
    assert canonical_path(path) == path
