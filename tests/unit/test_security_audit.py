"""The audit log: who, from where, what, when and with what outcome, in one line each, whatever happens to the file."""

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
from postroad.security.audit import MAX_COUNTED, MAX_OF_A_CALLER, MAX_RECENT, MAX_REFUSED_A_MINUTE, MAX_TEXT, AuditLog

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
    audit.run_timers(clock[0])
    counted = lines(tmp_path / "audit.jsonl")[MAX_REFUSED_A_MINUTE + 1 :]
    assert len(counted) == MAX_COUNTED + 1
    assert sum(each["times"] for each in counted) == 1000 - MAX_REFUSED_A_MINUTE
    assert counted[-1]["from"] is None
    audit.run_timers(clock[0] + 60)
    assert len(lines(tmp_path / "audit.jsonl")) == MAX_REFUSED_A_MINUTE + 1 + MAX_COUNTED + 1


@pytest.mark.parametrize("event", ["purge", "access refused", "message refused"])
def test_refusals_of_one_caller_are_coalesced_and_hide_no_change(
    tmp_path: Path, clock: list[float], event: str
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: clock[0])
    audit("change access", who="token", address="10.0.0.1")
    for _ in range(5000):
        audit(event, who="ann", address="10.0.0.5", queue="q", outcome="no right to receive from q")
    audit(event, who="bob", address="10.0.0.5", queue="q", outcome="no right to receive from q")
    audit("purge", who="token", address="10.0.0.1")
    found = [(each["what"], each["who"]) for each in lines(tmp_path / "audit.jsonl")]
    assert found == [
        ("change access", "token"),
        *[(event, "ann")] * MAX_OF_A_CALLER,
        (event, "bob"),
        ("purge", "token"),
    ]
    clock[0] += 60
    audit.run_timers(clock[0])
    last = lines(tmp_path / "audit.jsonl")[-1]
    assert (last["what"], last["who"], last["times"]) == (event, "ann", 5000 - MAX_OF_A_CALLER)
    assert (tmp_path / "audit.jsonl").stat().st_size < 4000


def test_the_view_keeps_changes_whatever_is_refused(clock: list[float]) -> None:
    audit = AuditLog(clock=lambda: clock[0])
    for number in range(20):
        audit("purge", who="token", address=str(number))
    for minute in range(2 * MAX_RECENT):
        clock[0] += 60
        audit("purge", who="ann", address=str(minute), outcome="no right")
    for limit, changes in ((10, 5), (40, 20), (MAX_RECENT, 20)):
        view = audit.latest(limit)
        assert len(view) == limit
        assert sum(each["outcome"] == "done" for each in view) == changes
    assert audit.latest(10)[0]["from"] == str(2 * MAX_RECENT - 1)
    audit("purge", who="token", address="last")
    assert audit.latest(1)[0]["from"] == "last"
