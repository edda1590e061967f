"""`postroad kit check`: reads the result file of the Windows kit (packaging/windows) and says in words what agrees.

The file has both sides of each fact: what Windows saw, and what our HTTP API answered. This compares them and
asks nobody. docs/reference/windows-kit.md describes the file.
"""

# ruff: noqa: RUF009  (a member of the file is a dataclass field, made by a function)

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from postroad.cli.context import Context
from postroad.cli.output import ExitCode, fail, print_json, print_line, printable, shortened
from postroad.errors import ConfigurationError
from postroad.reports.info import counted
from postroad.validation.fields import required, setting, table, tables
from postroad.validation.kinds import FieldFault, Kind, choice, items, line
from postroad.validation.kinds import text as text_of

app = typer.Typer(help="Compare what Windows and Postroad saw of the same messages.", no_args_is_help=True)

VERSION = 1
MAX_FILE_BYTES = 16 << 20  # a result has some hundred facts
MAX_TEXT = 1 << 16
_SHOWN = 200  # characters of a value in a sentence


class State(StrEnum):
    """What became of a step on Windows."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """What a step tries, and the facts that it must have."""

    what: str
    facts: tuple[str, ...]


_MESSAGE = ("id", "label", "body", "body_type", "priority", "delivery", "app_tag", "correlation_id", "extension")
STEPS = {
    "send-express": Step("Windows sends an express message", (*_MESSAGE, "class_name", "response_queue")),
    "send-recoverable": Step("Windows sends a recoverable message", (*_MESSAGE, "class_name", "response_queue")),
    "send-transactional": Step("Windows sends a transaction of messages", ("labels", "first", "last", "delivery")),
    "send-large": Step("Windows sends a message of 3 MB", ("length", "sha256")),
    "send-acknowledged": Step("Postroad acknowledges a message of Windows", ("acknowledgments", "correlation_id")),
    "send-expired": Step("Postroad lets a message of Windows expire", ("acknowledgments", "correlation_id")),
    "send-several": Step("Windows sends one message to two queues", ("first_label", "second_label")),
    "receive-express": Step("Postroad sends an express message", (*_MESSAGE, "response_queue")),
    "receive-recoverable": Step("Postroad sends a recoverable message", (*_MESSAGE, "response_queue")),
    "receive-transactional": Step("Postroad sends a transaction of messages", ("labels", "first", "last")),
    "receive-large": Step("Postroad sends a message of 3 MB", ("length", "sha256")),
    "receive-acknowledged": Step("Windows acknowledges a message of Postroad", ("acknowledgments", "correlation_id")),
    "receive-expired": Step("Windows lets a message of Postroad expire", ("acknowledgments", "correlation_id")),
    "remote-read": Step("Windows reads a queue of Postroad", ("peeked", "received", "left")),
    "remote-read-of-windows": Step("Postroad reads a queue of Windows", ("left",)),
    "remote-purge": Step("Windows purges a queue of Postroad", ("left",)),
    "management": Step("Windows shows a queue of Postroad", ("messages", "bytes")),
    "routing": Step("Windows sends to a name of the directory", ("label", "delivery")),
    "send-signed": Step("Windows sends a signed message", ("body", "hash", "sender_id", "authenticated")),
    "send-encrypted": Step("Windows sends an encrypted message", ("body", "encrypted")),
    "send-soap": Step("Windows sends by SOAP", ("label", "body", "priority")),
    "receive-soap": Step("Postroad sends by SOAP", ("label", "body", "priority")),
    "send-multicast": Step("Windows sends to a multicast address", ("label", "body")),
    "receive-multicast": Step("Postroad sends to a multicast address", ("label", "body")),
}
# Facts that people write with letters of either case.
_WITHOUT_CASE = frozenset({"id", "correlation_id", "response_queue", "sender_id", "hash", "sha256"})

Value = str | int | float | bool | list[str] | None


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return list(_LINES(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    return _TEXT(value)


_TEXT: Kind[str] = text_of(MAX_TEXT)
_LINES: Kind[tuple[str, ...]] = items(_TEXT, most=10_000)
_VALUE: Kind[Value] = Kind("a text, a number, true, false, null or a list of texts", {}, _value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that both sides know."""

    name: str = required(line(64))
    windows: Value = required(_VALUE)
    postroad: Value = required(_VALUE)

    @property
    def agrees(self) -> bool:
        ours, theirs = self.postroad, self.windows
        if self.name in _WITHOUT_CASE and isinstance(ours, str) and isinstance(theirs, str):
            return ours.casefold() == theirs.casefold()
        return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    name: str = required(line(64))
    state: State = required(choice(State))
    reason: str = setting(text_of(MAX_TEXT), "")
    facts: tuple[Fact, ...] = setting(tables(Fact), (), key="facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A computer, in words. Nothing here is compared."""

    computer: str = required(line(256))
    version: str = setting(line(256, empty=True), "")
    address: str = setting(line(256, empty=True), "")
    details: tuple[str, ...] = setting(items(text_of(MAX_TEXT), most=1000), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class KitResult:
    """The whole file, without `kit`."""

    started: str = required(line(64))
    finished: str = setting(line(64, empty=True), "")
    prefix: str = setting(line(64, empty=True), "")
    windows: Side = required(table(Side))
    postroad: Side = required(table(Side))
    steps: tuple[StepResult, ...] = required(tables(StepResult))
    captures: tuple[str, ...] = setting(items(line(1024), most=100), ())


@dataclass(frozen=True, slots=True)
class Finding:
    """A step as the check sees it. It agrees if it has no differences."""

    step: str
    state: str
    agreed: int
    differences: list[str]
    reason: str


def read_result(file: Path) -> KitResult:
    """Reads a result file. Raises ConfigurationError, which names place and fault, for anything else."""
    place = str(file)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise ConfigurationError(place, "", f"cannot be read: {fault.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError(place, "", f"must have at most {MAX_FILE_BYTES} bytes")
    try:
        read = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        why = "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        raise ConfigurationError(place, "", f"must be the JSON that the Windows kit writes: {why}") from None
    if not isinstance(read, dict) or "kit" not in read:
        raise ConfigurationError(place, "", 'must be a result of the Windows kit, an object with "kit"')
    version = read.pop("kit")
    if isinstance(version, bool) or version != VERSION:
        raise ConfigurationError(
            place, "kit", f"must be {VERSION}, got {shortened(repr(version))}; use the kit of this version of Postroad"
        )
    try:
        return table(KitResult)(read)
    except FieldFault as fault:
        raise ConfigurationError(place, fault.key, fault.fault) from None


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def compare(result: KitResult) -> list[Finding]:
    """A finding for every step, in the order of the kit; steps that the kit does not have come last."""
    found: dict[str, StepResult] = {}
    twice: set[str] = set()
    for each in result.steps:
        if found.setdefault(each.name, each) is not each:
            twice.add(each.name)
    names = [*STEPS, *(name for name in found if name not in STEPS)]
    return [_finding(name, found.get(name), name in twice) for name in names]


def _finding(name: str, result: StepResult | None, is_double: bool) -> Finding:
    step = STEPS.get(name)
    if step is None:
        return Finding(name, "unknown", 0, ["the kit has no such step"], "")
    if result is None:
        return Finding(name, "missing", 0, ["is missing: the script was stopped before it, or the file was cut"], "")
    differences = ["is in the file more than once"] if is_double else []
    if result.state is State.FAILED:
        differences.append(f"failed: {result.reason or 'the file does not say why'}")
    if result.state is not State.DONE:
        return Finding(name, result.state, 0, differences, result.reason)
    facts = {each.name: each for each in result.facts}
    differences += [f"{name} is in the file more than once" for name in _doubles(result.facts)]
    differences += [f"{fact} is missing" for fact in step.facts if fact not in facts]
    differences += [
        f"{fact.name}: Windows has {_shown(fact.windows)}, Postroad has {_shown(fact.postroad)}"
        for fact in facts.values()
        if not fact.agrees
    ]
    return Finding(name, result.state, sum(fact.agrees for fact in facts.values()), differences, result.reason)


def _doubles(facts: tuple[Fact, ...]) -> list[str]:
    names = [each.name for each in facts]
    return sorted({name for name in names if names.count(name) > 1})


def _shown(value: Value) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


@app.callback()
def group() -> None:
    """Compare what Windows and Postroad saw of the same messages."""


@app.command("check")
def check(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="RESULT", help="The result file that test.ps1 wrote.")],
) -> None:
    """Say what agrees in a result file of the Windows kit, and what does not.

    Steps that were skipped are listed, and are no difference. Asks no queue manager.

    Exit code: 0 if all that was tried agrees, 1 if something differs or nothing was tried, 2 if the file is no
    result.
    """
    result = read_result(file)
    findings = compare(result)
    tried = [each for each in findings if each.state == State.DONE]
    differences = sum(len(each.differences) for each in findings)
    if context.as_json:
        for each in findings:
            print_json(
                {"step": each.step, "what": _what(each), "state": each.state, "agrees": not each.differences}
                | {"facts": each.agreed, "differences": each.differences, "reason": each.reason}
            )
    else:
        _print(result, findings)
    if not tried:
        fail(f"{file}: no step was done, so nothing is compared", ExitCode.FAILED)
    if differences:
        fail(f"{file}: {counted(differences, 'difference')}", ExitCode.FAILED)


def _what(finding: Finding) -> str:
    step = STEPS.get(finding.step)
    return step.what if step else ""


def _print(result: KitResult, findings: list[Finding]) -> None:
    windows, postroad = result.windows, result.postroad
    print_line(f"{windows.computer} ({windows.version}) and {postroad.computer} (Postroad {postroad.version})")
    for each in findings:
        if each.differences:
            print_line(f"differs  {each.step}: {_what(each)}")
            for difference in each.differences:
                print_line(f"           {printable(difference)}")
        elif each.state == State.SKIPPED:
            print_line(f"skipped  {each.step}: {_what(each)}: {each.reason or 'the file does not say why'}")
        else:
            print_line(f"agrees   {each.step}: {_what(each)}, {counted(each.agreed, 'fact')}")
