"""The threshold of each room, on small reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.coverage_rooms import ROOMS, main, percent_of_rooms


def summary(lines: int, branches: int) -> dict[str, dict[str, int]]:
    """The summary of a file with 90 lines and 10 branches."""
    counts = {"covered_lines": lines, "num_statements": 90, "covered_branches": branches, "num_branches": 10}
    return {"summary": counts}


def report(worst: dict[str, dict[str, int]]) -> dict[str, dict[str, dict[str, dict[str, int]]]]:
    rooms = {f"src/postroad/{room}/one.py": summary(90, 10) for room in ROOMS}
    return {"files": {**rooms, "src/postroad/wire/deep/two.py": worst, "src/postroad/api/none.py": summary(0, 0)}}


def test_branches_count_beside_lines_and_files_count_together() -> None:
    rooms = percent_of_rooms(report(summary(90, 0)))
    assert rooms == {"wire": 95.0, "queues": 100.0, "binary": 100.0, "soap": 100.0, "store": 100.0}


@pytest.mark.parametrize(("branches", "code"), [(1, 0), (0, 1)])
def test_one_room_below_the_threshold_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], branches: int, code: int
) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report(summary(89, branches))))
    assert main([str(tmp_path / "report.json")]) == code
    assert ("too little" in capsys.readouterr().out) == bool(code)


def test_a_room_that_no_test_has_touched_fails(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"files": {}}))
    assert main([str(tmp_path / "report.json")]) == 1
