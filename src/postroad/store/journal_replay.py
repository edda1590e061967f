"""Opening: reads what only the journal has, and finds where the next commit goes.

It lists damage in `damaged` and goes on reading after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from postroad.store.interface import Key
from postroad.store.journal import NAMES, Journal, Segment, decode
from postroad.store.overlay import Overlay
from postroad.store.sqlite import Mark, SqliteStore

RANDOM_BYTES = 6  # of the first generation, so that no sender can imitate it in a message
LIVE = 2  # one segment that fills, and one that moves into the database


@dataclass(slots=True)
class Replayed:
    mark: Mark
    overlay: Overlay
    damaged: dict[Key | str, str] = field(default_factory=dict)


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
    replayed = Replayed(mark, Overlay(mark.spilled + 1, mark.newest))
    journal.go_on(0, mark.spilled + 1, 0, 0)
    for place, (number, segment) in enumerate(segments):
        generation = segment.generation or 0
        expected = mark.spilled + 1 + place
        if generation != expected:
            replayed.damaged[f"journal generation {expected}"] = f"{directory}: a segment of the journal is missing"
        if generation != replayed.overlay.active.generation:
            replayed.overlay.freeze(generation)
        if place and segments[place - 1][1].end < segment.before:
            number_before, segment_before = segments[place - 1]
            _lost(directory / NAMES[number_before], segment_before.end, segment.before, replayed, database)
        _apply(segment, replayed, database, directory / NAMES[number])
        journal.go_on(number, generation, segment.before, segment.end)
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


def _apply(segment: Segment, replayed: Replayed, database: SqliteStore, file: Path) -> None:
    overlay, damaged = replayed.overlay, replayed.damaged
    gaps = {end: start for start, end in segment.gaps}
    for frame in segment.frames:
        if frame.start in gaps:
            _lost(file, gaps[frame.start], frame.start, replayed, database)
        overlay.apply(frame.deletes, frame.puts, frame.state)
        for changed in (frame.deletes, frame.puts, frame.state):
            for key in changed:
                damaged.pop(key if isinstance(key, str) else Key(*key), None)
        for key in frame.damaged:
            damaged[key] = f"{file}: queue {key.queue}, lookup id {key.lookup_id:#x}: the checksum is wrong"


def _lost(file: Path, start: int, end: int, replayed: Replayed, database: SqliteStore) -> None:
    """Notes that commits are lost. They may have changed any state, so all state counts as damaged."""
    damaged = replayed.damaged
    damaged[f"{file.name}, bytes {start} to {end}"] = (
        f"{file}: the journal is damaged in this place: changes of one or more commits are lost"
    )
    for name in {*database.state(), *replayed.overlay.state()}:
        damaged[name] = f"{file}: state {name!r}: it may be out of date, because the journal is damaged"
