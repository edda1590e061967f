"""The audit log: who, from where, what, when and how it ended, one line each, whatever happens to the file."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from postroad.security.attempts import FailedLogins
from postroad.security.audit import MAX_REFUSED_A_MINUTE, MAX_TEXT, AuditLog

NOW = 1_700_000_000.5


@pytest.fixture
def clock() -> list[float]:
    return [NOW]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_who_from_where_what_when_and_how_it_ended(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: NOW)
    audit("purge", who="token", address="10.0.0.5", queue=r"private$\orders", messages=3)
    audit("delete queue", who="CN=ann", address="::1", queue="x\ny", outcome="there is no such queue")
    assert lines(tmp_path / "audit.jsonl") == [
        {
            "when": "2023-11-14T22:13:20.500Z",
            "who": "token",
            "from": "10.0.0.5",
            "what": "purge",
            "queue": r"private$\orders",
            "messages": 3,
            "outcome": "done",
        },
        {
            "when": "2023-11-14T22:13:20.500Z",
            "who": "CN=ann",
            "from": "::1",
            "what": "delete queue",
            "queue": "x\ny",
            "outcome": "there is no such queue",
        },
    ]


def test_without_a_file_nothing_is_written() -> None:
    AuditLog().check()
    AuditLog()("purge", who="local", address="127.0.0.1")


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_the_file_is_its_owners_alone_and_one_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.touch(0o666)
    file.chmod(0o666)
    audit = AuditLog(file)
    audit("purge")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.rename(tmp_path / "audit.jsonl.1")
    before = os.umask(0)
    try:
        audit("move")
    finally:
        os.umask(before)
    assert [each["what"] for each in lines(file)] == ["move"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="Unix pipes")
@pytest.mark.parametrize("kind", ["directory", "pipe", "missing"])
def test_what_cannot_be_written_is_an_error_in_the_log_once_a_minute_and_stops_nobody(
    tmp_path: Path, kind: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "somewhere" / "audit.jsonl"
    if kind != "missing":
        file.parent.mkdir()
        file.mkdir() if kind == "directory" else os.mkfifo(file)
    audit = AuditLog(file, lambda: clock[0])
    with pytest.raises(OSError, match=r"audit\.jsonl"):
        audit.check()
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            audit("purge")
        assert len(caplog.records) == 1
        clock[0] += 61
        audit("purge")
    assert len(caplog.records) == 2
    assert caplog.records[-1].__dict__["lost"] == audit.lost == 6


def test_strangers_cannot_fill_the_disk_with_refused_logins(tmp_path: Path, clock: list[float]) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: clock[0])
    logins = FailedLogins(audit)
    for number in range(1000):
        logins.failed(f"10.0.{number // 250}.{number % 250}", clock[0], door="api", who="x" * 100_000)
    audit("purge", who="token")
    found = lines(tmp_path / "audit.jsonl")
    assert len(found) == MAX_REFUSED_A_MINUTE + 1
    assert found[0]["outcome"] == "refused"
    assert found[0]["door"] == "api"
    assert found[-1]["what"] == "purge"
    assert all(len(str(value)) <= MAX_TEXT for each in found for value in each.values())
    clock[0] += 60
    logins.failed("10.0.0.1", clock[0], door="rpc", who=None)
    assert lines(tmp_path / "audit.jsonl")[-1]["not_listed_before"] == 1000 - MAX_REFUSED_A_MINUTE


def test_refusals_of_each_kind_are_limited_by_themselves(tmp_path: Path, clock: list[float]) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: clock[0])
    for _ in range(MAX_REFUSED_A_MINUTE + 5):
        audit("message refused", why="wrong-signature")
    audit("access refused", who="ann")
    audit("purge", who="token")
    found = [line["what"] for line in lines(tmp_path / "audit.jsonl")]
    assert found == ["message refused"] * MAX_REFUSED_A_MINUTE + ["access refused", "purge"]
    clock[0] += 60
    audit("access refused", who="ann")
    assert lines(tmp_path / "audit.jsonl")[-1]["not_listed_before"] == 5
