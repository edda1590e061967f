"""A directory file that changes while it is in use: what takes effect, what does not, and when it is checked."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from postroad.directory.watch import DirectoryWatch, UpdateTimers
from postroad.errors import ConfigurationError
from postroad.routing import Router

GUIDS = [f"0000000{number}-0000-4000-8000-000000000000" for number in range(4)]


def enterprise(*names: str, cost: int = 1) -> str:
    sites = "".join(f'[[site]]\nname = "{name}"\ngates = ["{name}-gate"]\n' for name in ("london", "paris"))
    link = f'[[link]]\nsites = ["london", "paris"]\ncost = {cost}\n'
    gates = "".join(
        f'[[manager]]\nname = "{name}-gate"\nid = "{GUIDS[number]}"\nsites = ["{name}"]\nrouting_server = true\n'
        for number, name in enumerate(("london", "paris"))
    )
    others = "".join(
        f'[[manager]]\nname = "{name}"\nid = "{GUIDS[number]}"\nsites = ["london"]\n'
        for number, name in enumerate(names, 2)
    )
    return sites + link + gates + others


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "enterprise.toml"
    file.write_text(enterprise(), encoding="utf-8")
    return file


def names(watch: DirectoryWatch) -> list[str]:
    return [each.computer_name for each in watch.directory.managers]


def test_the_file_must_be_good_at_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        DirectoryWatch(tmp_path / "nowhere.toml", now=0.0)


def test_a_file_that_was_not_written_is_not_read(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    directory = watch.directory
    assert not watch.reload(1.0)
    assert watch.directory is directory


def test_a_file_that_was_written_is_taken_over(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    file.write_text(enterprise("alpha"), encoding="utf-8")
    assert watch.reload(1.0)
    assert names(watch) == ["london-gate", "paris-gate", "alpha"]
    assert not watch.reload(2.0)


def test_a_file_that_was_replaced_is_taken_over(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    other = file.with_suffix(".new")
    other.write_text(enterprise("alpha"), encoding="utf-8")
    other.replace(file)
    assert watch.reload(1.0)
    assert "alpha" in names(watch)


def test_a_file_that_says_the_same_as_before_is_no_change(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    directory = watch.directory
    os.utime(file, (1, 1))
    assert not watch.reload(1.0)
    assert watch.directory is directory


@pytest.mark.spec("BR-3.1.6.1-04")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[site]\n", "line 1"),
        (enterprise().replace("cost = 1", "cost = 0"), "link[1].cost"),
        (enterprise().replace('["london-gate"]', '["rome-gate"]'), "there is no queue manager rome-gate"),
        ("", "manager: is missing: the file no longer has any"),
        ('[[site]]\nname = "london"\n', "manager: is missing: the file no longer has any"),
        (None, "cannot be read"),
    ],
    ids=["syntax", "range", "reference", "empty", "truncated", "missing"],
)
def test_whatever_goes_wrong_the_last_good_table_stays(
    file: Path, text: str | None, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = DirectoryWatch(file, now=0.0)
    router = Router(watch.directory.managers[0].identifier, watch.directory, now=0.0)
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    with caplog.at_level(logging.ERROR):
        assert not watch.reload(3600.0)
    assert watch.failures == 1
    assert watch.last_error is not None
    assert fault in watch.last_error
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert router.run_timers(watch.directory, 3600.0)
    assert [row.next_hop_site.name for row in router.table.rows] == ["paris"]


def test_a_fault_is_told_once_until_it_is_another(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    file.unlink()
    assert [watch.reload(now) for now in (1.0, 2.0, 4000.0)] == [False] * 3
    assert watch.failures == 1
    file.write_text("[[site]\n", encoding="utf-8")
    assert [watch.reload(now) for now in (4001.0, 4002.0)] == [False] * 2
    assert watch.failures == 2


def test_a_file_that_is_good_again_is_no_failure_any_more(file: Path) -> None:
    watch = DirectoryWatch(file, now=0.0)
    file.write_text("", encoding="utf-8")
    watch.reload(1.0)
    file.write_text(enterprise(), encoding="utf-8")
    assert not watch.reload(2.0)
    assert (watch.failures, watch.last_error) == (1, None)
    file.write_text("[", encoding="utf-8")
    watch.reload(3.0)
    file.write_text(enterprise("alpha"), encoding="utf-8")
    assert watch.reload(4.0)
    assert (watch.failures, watch.last_error) == (2, None)


@pytest.mark.spec("DM-3.1.2.1-01", "DM-3.1.2.2-01")
def test_the_update_timers_run_half_a_day_and_an_hour(file: Path) -> None:
    watch = DirectoryWatch(file, now=1000.0)
    assert (watch.sites_update_at, watch.site_gates_update_at) == (1000.0 + 43200.0, 1000.0 + 3600.0)
    watch.reload(4600.0)
    assert (watch.sites_update_at, watch.site_gates_update_at) == (44200.0, 8200.0)
    watch.reload(50000.0)
    assert (watch.sites_update_at, watch.site_gates_update_at) == (50000.0 + 43200.0, 50000.0 + 3600.0)


@pytest.mark.spec("DM-3.1.6.1-01", "DM-3.1.6.2-01")
@pytest.mark.parametrize(
    "timers",
    [
        UpdateTimers(sites_update_s=10.0, site_gates_update_s=1e9),
        UpdateTimers(sites_update_s=1e9, site_gates_update_s=10.0),
    ],
    ids=["sites", "gates"],
)
def test_when_a_timer_fires_the_file_is_read_whatever_it_looks_like(
    file: Path, timers: UpdateTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.directory.watch._signature", lambda file: (1,))  # a file system that shows nothing
    watch = DirectoryWatch(file, now=0.0, timers=timers)
    changed = enterprise(cost=2).replace("routing_server = true", 'routing_server = true\naddress = "10.0.0.1"', 1)
    file.write_text(changed, encoding="utf-8")
    assert not watch.reload(9.9)
    assert watch.reload(10.0)
    assert watch.directory.links[0].actual_cost == 2
    assert watch.directory.site_gate_collection(watch.directory.sites[0].identifier)[0].address == "10.0.0.1"


def test_what_cannot_work_is_told_when_the_file_is_read(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(enterprise().replace('gates = ["paris-gate"]', ""), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        DirectoryWatch(file, now=0.0)
    (record,) = caplog.records
    assert record.__dict__["fault"].startswith("the site paris has no site gate")
