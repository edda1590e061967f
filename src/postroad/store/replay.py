"""Opening: what only the journal has, from its frames. Damage is listed, and reading goes on after it. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from postroad.store.frames import Segment
from postroad.store.interface import Key
from postroad.store.overlay import Overlay
from postroad.store.rows import Mark

RANDOM_BYTES = 6  # of the first generation, so that no sender can imitate it in a message


@dataclass(slots=True)
class Replayed:
    mark: Mark
    overlay: Overlay
    damaged: dict[Key | str, str] = field(default_factory=dict)


def replay_segments(
    mark: Mark, segments: Sequence[tuple[str, Segment]], where: str, state_names: Callable[[], Iterable[str]]
) -> Replayed:
    """Replays segments, each with the name of its place, in the order of their generations. `where` is the place of all
    of them, and `state_names` are those of the database."""
    replayed = Replayed(mark, Overlay(mark.spilled + 1, mark.newest))
    for number, (place, segment) in enumerate(segments):
        generation = segment.generation or 0
        expected = mark.spilled + 1 + number
        if generation != expected:
            replayed.damaged[f"journal generation {expected}"] = f"{where}: a segment of the journal is missing"
        if generation != replayed.overlay.active.generation:
            replayed.overlay.freeze(generation)
        if number and segments[number - 1][1].end < segment.before:
            place_before, segment_before = segments[number - 1]
            _lost(place_before, segment_before.end, segment.before, replayed, state_names)
        _apply(segment, replayed, place, state_names)
    return replayed


def _apply(segment: Segment, replayed: Replayed, place: str, state_names: Callable[[], Iterable[str]]) -> None:
    overlay, damaged = replayed.overlay, replayed.damaged
    gaps = {end: start for start, end in segment.gaps}
    for frame in segment.frames:
        if frame.start in gaps:
            _lost(place, gaps[frame.start], frame.start, replayed, state_names)
        overlay.apply(frame.deletes, frame.puts, frame.state)
        for changed in (frame.deletes, frame.puts, frame.state):
            for key in changed:
                damaged.pop(key if isinstance(key, str) else Key(*key), None)
        for key in frame.damaged:
            damaged[key] = f"{place}: queue {key.queue}, lookup id {key.lookup_id:#x}: the checksum is wrong"


def _lost(place: str, start: int, end: int, replayed: Replayed, state_names: Callable[[], Iterable[str]]) -> None:
    """Notes that commits are lost. They may have changed any state, so all state counts as damaged."""
    damaged = replayed.damaged
    name_of_place = place.rpartition("/")[2]
    damaged[f"{name_of_place}, bytes {start} to {end}"] = (
        f"{place}: the journal is damaged in this place: changes of one or more commits are lost"
    )
    for name in {*state_names(), *replayed.overlay.state()}:
        damaged[name] = f"{place}: state {name!r}: it may be out of date, because the journal is damaged"
