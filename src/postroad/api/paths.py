r"""Queues in URLs: turns every spelling of a queue's name in a path into one segment for the router.

It works on the path as sent: after decoding, nothing tells a slash within a name from one between segments.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

API = "/api/v1"
QUEUES = f"{API}/queues/"
_PRIVATE = "private$"
KNOWN_PATHS = 1024  # cached results: a client calls the same few paths over and over
_COMPLETE = "\\=;"  # a first segment with one of these is a whole name, not a computer


@lru_cache(KNOWN_PATHS)
def canonical_path(raw: str) -> str:
    """The path with its queue, if any, as one percent-encoded segment. Other paths stay as they are.

    `private$/orders`, `alpha/private$/orders` and `alpha/orders` are local paths with slashes, and fill two or three
    segments after `/api/v1/queues/`. A single word is no queue name, so it must be a computer.
    """
    if not raw.startswith(QUEUES):
        return raw
    segments = raw[len(QUEUES) :].split("/")
    length = _segments_of_name(segments)
    name = "\\".join(unquote(each) for each in segments[:length])
    return QUEUES + "/".join([quote(name, safe=""), *segments[length:]])


def _segments_of_name(segments: list[str]) -> int:
    first = unquote(segments[0])
    if first.lower() == _PRIVATE:
        return 2
    if any(mark in first for mark in _COMPLETE) or "/" in first:
        return 1
    return 3 if len(segments) > 1 and unquote(segments[1]).lower() == _PRIVATE else 2
