"""Rows with their verdicts, and the Markdown page they make. The same entries always give the same bytes.

Judging lives in `tests.ledger`; nothing here reads a file or knows pytest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

SPEC_TITLES = {
    "mqmq": "MS-MQMQ: data structures, names, packets",
    "mqdmpr": "MS-MQDMPR: the shared data model of queues",
    "mqqb": "MS-MQQB: the binary protocol",
    "mqbr": "MS-MQBR: routing",
    "mqsrm": "MC-MQSRM: SOAP reliable messaging",
    "mqqp": "MS-MQQP: remote read over RPC",
    "mqrr": "MS-MQRR: remote read over RPC, of Windows Vista and later",
    "mqmr": "MS-MQMR: remote management over RPC",
}
# Sections go down to six levels; three keep one table to a screen or two.
SECTION_DEPTH = 3
# The page stays under 400 KB, which browsers and code hosts still render. The whole sentence is in the CSV,
# and the test of a covered row says the rest.
REQUIREMENT_CHARACTERS = 80
COVERED_CHARACTERS = 40
FAILED_TESTS_NAMED = 20

INTRODUCTION = """# Conformance

Written by `make conformance`; do not edit. Every row is one rule of a specification, kept with its whole wording in
`conformance/*.csv`. A row is *covered* if every test that carries its id passed. It *deviates* if Postroad breaks the
rule on purpose: `conformance/deviations.csv` gives the reason. It is *waived* if the rule does not apply to Postroad:
`conformance/waived.csv` says why. Every other row is *open*: nobody has built or tested it yet.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement of one specification; `spec` is the stem of the file that holds it."""

    id: str
    spec: str
    section: str
    level: str
    role: str
    requirement: str


class Verdict(Enum):
    COVERED = "covered"
    DEVIATES = "deviates"
    WAIVED = "waived"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row and its verdict in the run. `notes` are the tests of a covered row, or else the reason."""

    row: Row
    verdict: Verdict
    notes: tuple[str, ...] = ()


def render(entries: Sequence[Entry], failed: Sequence[str]) -> str:
    """The whole page. `failed` names the tests that failed in the run."""
    blocks = [INTRODUCTION]
    if failed:
        blocks.append(_failure_note(failed))
    blocks.append("\n".join(_summary_lines(entries)) + "\n")
    for spec, group in _by_spec(entries):
        blocks.append(f"## {SPEC_TITLES.get(spec, spec.upper())}\n")
        for section, members in groupby(group, key=lambda entry: _section_group(entry.row.section)):
            blocks.append("\n".join(_section_lines(section, list(members))) + "\n")
    return "\n".join(blocks)


def totals_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """One line for each specification and one for all, for a terminal."""
    groups = [(_short_title(spec), group) for spec, group in _by_spec(entries)]
    for title, group in [*groups, ("all", list(entries))]:
        counts = _count(group)
        covered, rows = counts[Verdict.COVERED], len(group)
        rest = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if verdict is not Verdict.COVERED)
        yield f"{title:<10} {covered:>5} of {rows:>5} covered ({_percent(covered, rows)} %), {rest}"


def _failure_note(failed: Sequence[str]) -> str:
    names = ", ".join(f"`{name}`" for name in failed[:FAILED_TESTS_NAMED])
    more = len(failed) - FAILED_TESTS_NAMED
    tail = f" and {more} more" if more > 0 else ""
    return f"**Tests failed in the run that wrote this page**, and the rows they carry count as open: {names}{tail}.\n"


def _summary_lines(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| specification | role | rows | covered | deviates | waived | open | covered, % |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for spec, group in _by_spec(entries):
        yield _summary_row(f"**{_short_title(spec)}**", "**all**", group)
        for role in sorted({entry.row.role for entry in group}):
            yield _summary_row("", role, [entry for entry in group if entry.row.role == role])
    yield _summary_row("**all**", "**all**", entries)


def _summary_row(spec: str, role: str, entries: Sequence[Entry]) -> str:
    counts = _count(entries)
    cells = [spec, role, len(entries), *(counts[verdict] for verdict in Verdict)]
    return "| " + " | ".join(map(str, [*cells, _percent(counts[Verdict.COVERED], len(entries))])) + " |"


def _section_lines(section: str, entries: Sequence[Entry]) -> Iterator[str]:
    counts = _count(entries)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    yield '<details markdown="1">'
    yield f"<summary>{section}: {told}</summary>"
    yield ""
    yield "| row | level | requirement | covered by |"
    yield "|---|---|---|---|"
    for entry in entries:
        width = COVERED_CHARACTERS if entry.verdict is Verdict.COVERED else REQUIREMENT_CHARACTERS
        requirement = _escape(_shorten(entry.row.requirement, width))
        yield f"| {entry.row.id} | {entry.row.level} | {requirement} | {_state(entry)} |"
    yield ""
    yield "</details>"


def _state(entry: Entry) -> str:
    match entry.verdict:
        case Verdict.COVERED:
            # The directory of a test says no more than its name, but would appear 2400 times.
            name = f"`{entry.notes[0].rpartition('/')[2]}`"
            return name if len(entry.notes) == 1 else f"{name} and {len(entry.notes) - 1} more"
        case Verdict.DEVIATES | Verdict.WAIVED:
            return f"{entry.verdict.value}: {_escape(entry.notes[0])}"
        case Verdict.OPEN:
            return "open"


def _by_spec(entries: Iterable[Entry]) -> list[tuple[str, list[Entry]]]:
    order = {spec: place for place, spec in enumerate(SPEC_TITLES)}
    specs = sorted({entry.row.spec for entry in entries}, key=lambda spec: (order.get(spec, len(order)), spec))
    return [
        (
            spec,
            sorted((entry for entry in entries if entry.row.spec == spec), key=lambda entry: _place(entry.row.section)),
        )
        for spec in specs
    ]


def _place(section: str) -> list[tuple[int, str]]:
    """Orders sections as in the book: 2.2.9 before 2.2.10, and lettered ones last."""
    return [(int(part), "") if part.isdigit() else (1_000_000, part) for part in section.split(".")]


def _section_group(section: str) -> str:
    return ".".join(section.split(".")[:SECTION_DEPTH])


def _count(entries: Iterable[Entry]) -> Counter[Verdict]:
    return Counter(entry.verdict for entry in entries)


def _percent(part: int, whole: int) -> str:
    """A percentage, rounded down so that only all is 100.0."""
    return f"{part * 1000 // whole / 10:.1f}" if whole else "-"


def _short_title(spec: str) -> str:
    return SPEC_TITLES.get(spec, spec.upper()).partition(":")[0]


def _shorten(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1].rpartition(" ")[0].rstrip(" ,;:.") + " …"


def _escape(text: str) -> str:
    """Escapes plain text for a cell of a Markdown table."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_[]|#" else character for character in text)
