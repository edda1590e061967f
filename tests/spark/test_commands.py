"""`postroad pipeline` as a process: it reports mistakes on the command line in one line, before it starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from postroad.spark.pipeline.lake import DELIVERY, Lake
from tests.commands import Outcome, postroad
from tests.served import Served, served

ENTERPRISE = """
[[site]]
name = "london"
[[site]]
name = "paris"
[[site]]
name = "rome"
[[link]]
sites = ["london", "paris"]
cost = 1
"""
STARTED = "spark.driver.extraJavaOptions=-XX:NoSuchOption"  # makes Java end at once and say why


def run(*arguments: str, api: str | None = None) -> Outcome:
    """Runs a pipeline command for which Spark cannot start."""
    return postroad("pipeline", *arguments, "--conf", STARTED, api=api)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--format", "csv"], "format: must be one of parquet, delta, iceberg, got 'csv'"),
        (["--conf", "novalue"], "--conf: 'novalue' must be KEY=VALUE"),
        (["--sla", "orders=fast"], "--sla: must be QUEUE=TIME, as in"),
        (["--enterprise", "nowhere.toml"], "nowhere.toml"),
        (
            ["--api", "http://127.0.0.1:1", "--api", "http://127.0.0.1:2", "--token", "x"] + ["--token", "y"] * 2,
            "--token: must be given once, or once for each of 2 --api, got 3",
        ),
    ],
)
def test_what_can_never_be_run(options: list[str], sentence: str, tmp_path: Path) -> None:
    ended = run("run", "--lake", str(tmp_path / "lake"), *options)
    assert (ended.code, ended.errors.count("\n")) == (2, 1), ended.errors
    assert sentence in ended.errors
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--down", "london-berlin"], "'london-berlin': there is no site berlin"),
        (["--down", "london"], "must name two sites as A-B, got 'london'"),
        (["--down", "london-rome"], "no routing link joins london and rome"),
        (["--cost", "london-paris=much"], "must have the form A-B=N or A-B=xN, got 'london-paris=much'"),
    ],
)
def test_changes_of_links_that_are_none(options: list[str], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "enterprise.toml"
    file.write_text(ENTERPRISE)
    ended = run("what-if", str(file), *options)
    assert (ended.code, ended.errors.count("\n")) == (2, 1), ended.errors
    assert sentence in ended.errors


def test_a_queue_to_send_to_that_is_no_name(tmp_path: Path) -> None:
    ended = run("replay", "--lake", str(tmp_path), "--where", "true", "--to", "orders")
    assert (ended.code, ended.errors.count("\n")) == (2, 1), ended.errors
    assert "a path must be a computer, a backslash and a queue" in ended.errors


def test_managers_with_tokens_of_their_own(tmp_path: Path) -> None:
    with served(token="one") as first, served(token="two") as second:
        apis = [f"http://{each.server.host}:{each.server.port}" for each in (first, second)]
        given = [
            word for api, token in zip(apis, ("one", "two"), strict=True) for word in ("--api", api, "--token", token)
        ]
        ended = run("run", "--queue", r"private$\nosuch", "--lake", str(tmp_path / "lake"), *given)
        assert r"--queue: no queue matches private$\nosuch" in ended.errors, "both managers have answered"
        ended = run("run", "--lake", str(tmp_path / "lake"), *given[:-1], "one")
        assert ended.code == 1
        assert "token" in ended.errors


def test_missing_queues_and_an_impossible_lake(alpha: Served, tmp_path: Path) -> None:
    api = f"http://{alpha.server.host}:{alpha.server.port}"
    lake = tmp_path / "lake"
    ended = run("run", "--queue", r"private$\nosuch", "--lake", str(lake), api=api)
    assert (ended.code, ended.errors.count("\n")) == (1, 1), ended.errors
    assert r"--queue: no queue matches private$\nosuch" in ended.errors
    assert not lake.exists()
    lake.touch()
    ended = run("run", "--lake", str(lake), api=api)
    assert (ended.code, ended.errors) == (1, f"postroad: {lake} cannot be used for tables: Not a directory\n")


def test_following_takes_messages_as_they_come(alpha: Served, tmp_path: Path) -> None:
    alpha.send("one", label="first")
    url = f"http://{alpha.server.host}:{alpha.server.port}"
    lake = str(tmp_path / "lake")
    command = [sys.executable, "-m", "postroad", "pipeline", "run", "--follow", "--api", url, "--lake", lake, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        try:
            assert json.loads(following.stdout.readline())["packets"] == 1
            alpha.send("two", label="second")
            assert json.loads(following.stdout.readline())["packets"] == 1
        finally:
            following.terminate()
    assert {row["label"] for row in Lake(None, lake).rows(DELIVERY)} == {"first", "second"}


def test_without_news_the_second_run_needs_no_java(alpha: Served, tmp_path: Path) -> None:
    alpha.send("one", label="first")
    url = f"http://{alpha.server.host}:{alpha.server.port}"
    lake = str(tmp_path / "lake")
    assert postroad("pipeline", "run", "--lake", lake, api=url).code == 0
    no_java = ["pipeline", "run", "--lake", lake, "--conf", "spark.driver.memory=none"]
    ended = postroad(*no_java, api=url)
    assert (ended.code, ended.errors) == (0, "")
    assert "0 new packets" in ended.text
    alpha.send("two", label="second")
    assert postroad(*no_java, api=url).code != 0


def test_a_command_that_is_gone_says_what_replaced_it() -> None:
    ended = run("routes", "enterprise.toml", "--down", "london-paris")
    assert ended.code == 2
    assert "postroad pipeline what-if" in ended.errors
