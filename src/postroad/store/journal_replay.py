"""Opening a data directory: reads the journal's files, and finds where the next commit goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from postroad.store.frames import Segment, decode
from postroad.store.journal import NAMES, Journal
from postroad.store.replay import RANDOM_BYTES, Replayed, replay_segments
from postroad.store.rows import Mark
from postroad.store.sqlite import SqliteStore

LIVE = 2  # one segment that fills, and one that moves into the database


def replay(journal: Journal, database: SqliteStore, directory: Path) -> Replayed:
    """Replays the journal. Raises StorageError if a file cannot be read."""
    mark = database.mark()
    last = None if mark is None else mark.spilled
    segments = live_segments(journal.read, last)
    if mark is None:  # the database is new or of an earlier version, or the mark is damaged
        first = segments[0][1].generation if segments else None
        spilled = int.from_bytes(os.urandom(RANDOM_BYTES), "big") if first is None else first - 1
        mark = Mark(spilled, database.newest())
        database.write((), {}, {}, mark)
    named = [((directory / NAMES[number]).as_posix(), segment) for number, segment in segments]
    replayed = replay_segments(mark, named, str(directory), database.state)
    journal.go_on(0, mark.spilled + 1, 0, 0)
    for number, segment in segments[-1:]:
        journal.go_on(number, segment.generation or 0, segment.before, segment.end)
    return replayed


def live_segments(read: Callable[[int], bytes], spilled: int | None) -> list[tuple[int, Segment]]:
    """The segments that are not in the database yet, in order. All segments if `spilled` is unknown, because reading
    too much does no harm."""

    def is_live(generation: int) -> bool:
        return spilled is None or spilled < generation <= spilled + LIVE

    segments = [(number, decode(read(number), is_live)) for number in range(len(NAMES))]
    segments.sort(key=lambda each: each[1].generation or 0)
    segments[-1][1].drop_torn()
    return [each for each in segments if each[1].frames]
