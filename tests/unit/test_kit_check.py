"""`postroad kit check`: what agrees, what differs and in which words, and files that are no result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroad.cli import main
from postroad.cli.kit import MAX_FILE_BYTES, STEPS
from tests.kit_results import fact, result, step


def run(capsys: pytest.CaptureFixture[str], file: Path, *options: str) -> tuple[int, list[str], str]:
    """The exit code, the lines of the output, and the last line of the errors."""
    code = main(["kit", "check", str(file), *options])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


def test_a_result_that_agrees(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(result()))
    code, lines, errors = run(capsys, file)
    assert (code, errors) == (0, "")
    assert lines[0] == "WINSERVER (1) and alpha (Postroad 1)"
    assert lines[1] == "agrees   send-express: Windows sends an express message, 11 facts"
    assert len(lines) == 1 + len(STEPS)
    assert all(line.startswith("agrees") for line in lines[1:])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_that_an_editor_has_marked(file: Path, encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(result(), ensure_ascii=False), encoding=encoding)
    assert run(capsys, file)[0] == 0


def test_letters_of_either_case_agree_in_identifiers_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = result()
    facts = step(value, "send-express")["facts"]
    facts[0] = fact("id", r"{ABC}\1", r"{abc}\1")
    facts[1] = fact("label", "Order", "order")
    file.write_text(json.dumps(value))
    code, lines, errors = run(capsys, file)
    assert (code, errors) == (1, f"postroad: {file}: 1 difference")
    assert lines[1:3] == [
        "differs  send-express: Windows sends an express message",
        '           label: Windows has "Order", Postroad has "order"',
    ]


def changed(name: str, **members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: step(value, name).update(members)


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda value: value["steps"].remove(step(value, name))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (changed("send-soap", state="failed", reason="0xC00E0003"), "failed: 0xC00E0003"),
        (changed("send-soap", state="failed"), "failed: the file does not say why"),
        (changed("send-soap", facts=[fact("label"), fact("body")]), "priority is missing"),
        (changed("management", facts=[]), "bytes is missing"),
        (
            changed("remote-read-of-windows", facts=[fact("left", 1, 0)]),
            "left: Windows has 1, Postroad has 0",
        ),
        (
            changed("send-encrypted", facts=[fact("body"), fact("encrypted", True, 1)]),
            "encrypted: Windows has true, Postroad has 1",
        ),
        (
            changed("remote-purge", facts=[{"name": "left", "windows": 0, "postroad": None}]),
            "left: Windows has 0, Postroad has nothing",
        ),
        (
            changed("send-large", facts=[fact("length"), fact("sha256", "x" * 900, "y")]),
            f'sha256: Windows has "{"x" * 199}... (902 characters), Postroad has "y"',
        ),
        (changed("management", facts=[fact("messages"), fact("bytes"), fact("bytes", 1, 1)]), "bytes is in the file"),
        (without("routing"), "is missing: the script was stopped"),
        (lambda value: value["steps"].append(step(value, "routing")), "is in the file more than once"),
        (lambda value: value["steps"].append({"name": "tea", "state": "done"}), "the kit has no such step"),
        (
            changed("send-soap", facts=[fact("label", "\x1b[2J\u202e", ""), fact("body"), fact("priority")]),
            r'label: Windows has "\u001b[2J\u202e", Postroad has ""',
        ),
    ],
)
def test_a_difference_in_words(
    file: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], None], difference: str
) -> None:
    value = result()
    change(value)
    file.write_text(json.dumps(value))
    code, lines, errors = run(capsys, file)
    assert code == 1
    assert errors.startswith(f"postroad: {file}: ")
    assert errors.endswith(("difference", "differences"))
    assert any(line.startswith(f"           {difference}") for line in lines), lines
    assert all(line.isprintable() for line in lines)


def test_what_was_skipped_is_told_and_is_no_difference(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = result()
    step(value, "send-soap").update(state="skipped", reason="MSMQ-HTTP is not installed", facts=[])
    file.write_text(json.dumps(value))
    code, lines, _ = run(capsys, file)
    assert code == 0
    assert "skipped  send-soap: Windows sends by SOAP: MSMQ-HTTP is not installed" in lines


def test_a_run_that_tried_nothing_is_no_success(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = result()
    for each in value["steps"]:
        each.update(state="skipped", facts=[])
    file.write_text(json.dumps(value))
    code, _, errors = run(capsys, file)
    assert (code, errors) == (1, f"postroad: {file}: no step was done, so nothing is compared")


def test_json_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = result()
    step(value, "send-soap").update(state="skipped", reason="none here", facts=[])
    step(value, "management")["facts"][0]["postroad"] = 8
    file.write_text(json.dumps(value))
    code, lines, _ = run(capsys, file, "--json")
    found = {each["step"]: each for each in map(json.loads, lines)}
    assert code == 1
    assert list(found) == list(STEPS)
    assert found["management"] == {
        "step": "management",
        "what": "Windows shows a queue of Postroad",
        "state": "done",
        "agrees": False,
        "facts": 1,
        "differences": ["messages: Windows has 7, Postroad has 8"],
        "reason": "",
    }
    assert (found["send-soap"]["state"], found["send-soap"]["reason"]) == ("skipped", "none here")


def broken(**members: Any) -> bytes:
    return json.dumps(result(**members)).encode()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "must be the JSON that the Windows kit writes"),
        (b"hello", "must be the JSON"),
        (b"\xff\xfe\x00\xd8", "must be the JSON"),
        (b'{"kit": 1, "started": NaN}', "NaN is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"kit": ' + b"9" * 5000 + b"}", "must be"),
        (b"[1]", 'an object with "kit"'),
        (b"{}", 'an object with "kit"'),
        (broken(kit=2), "kit: must be 1, got 2; use the kit of this version"),
        (broken(kit=True), "kit: must be 1, got True"),
        (broken(kit="1"), "kit: must be 1, got '1'"),
        (broken(steps=None), "steps: must be a list"),
        (broken(steps={"name": "x"}), "steps: must be a list"),
        (broken(steps=[5]), "steps[1]: must be a table"),
        (broken(steps=[{"name": "x", "state": "perhaps"}]), "steps[1].state: must be"),
        (broken(steps=[{"name": "x", "state": "done", "facts": [{"name": "a"}]}]), "facts[1].windows: is missing"),
        (
            broken(steps=[{"name": "x", "state": "done", "facts": [{"name": "a", "windows": {}, "postroad": 1}]}]),
            "facts[1].windows: must be",
        ),
        (
            broken(steps=[{"name": "x", "state": "done", "facts": [fact("a", [["deep"]], [1])]}]),
            "facts[1].windows",
        ),
        (broken(steps=[{"name": "x" * 100, "state": "done"}]), "steps[1].name: must"),
        (broken(windows="WINSERVER"), "windows: must be a table"),
        (broken(postroad={}), "postroad.computer: is missing"),
        (broken(captures=["a\nb"]), "captures[1]: must"),
        (broken(secret="x"), "secret: there is no such setting"),
    ],
)
def test_a_file_that_is_no_result(file: Path, content: bytes, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(content)
    code, lines, errors = run(capsys, file)
    assert (code, lines) == (2, [])
    assert errors.startswith(f"postroad: {file}")
    assert fault in errors
    assert len(errors) < 1000


def test_a_file_that_cannot_be_read(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = run(capsys, file)
    assert (code, errors) == (2, f"postroad: {file}: cannot be read: No such file or directory")
    with file.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    code, _, errors = run(capsys, file)
    assert (code, errors) == (2, f"postroad: {file}: must have at most {MAX_FILE_BYTES} bytes")
