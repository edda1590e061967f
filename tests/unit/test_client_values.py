"""How many messages one step of an iteration asks for."""

from __future__ import annotations

import pytest

from postroad.client.payloads import MAX_PAGE_MESSAGES, next_page
from postroad.describe.received import ReceivedMessage


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ([200] * 100, MAX_PAGE_MESSAGES),
        ([40_000] * 100, 104),
        ([4 << 20] * 2, 1),
        ([(4 << 20) + 16], 1),
        ([0], MAX_PAGE_MESSAGES),
    ],
)
def test_many_small_messages_or_few_large_ones_are_asked_for(sizes: list[int], limit: int) -> None:
    assert next_page([ReceivedMessage(bytes(size), 1, 0) for size in sizes]) == limit
