"""What the server writes to stderr: one line for each event, whatever is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.reports.trace import class_words
from postroad.runtime.logs import RateLimitedLog, start_logging
from postroad.store.memory import MemoryStore
from postroad.wire.constants import MessageClass

log = logging.getLogger("postroad.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("postroad")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def test_an_event_and_its_facts_are_one_line() -> None:
    stream = io.StringIO()
    start_logging(stream=stream)
    log.info(
        "queue created", extra={"queue": r".\private$\orders", "transactional": True, "label": 'a "b"\n', "none": None}
    )
    time, rest = stream.getvalue().split(" ", 1)
    assert (len(time), time[10], time[-1]) == (24, "T", "Z")
    assert rest == 'info queue created queue=.\\private$\\orders transactional=true label="a \\"b\\"\\n" none=null\n'


def test_json_has_the_same() -> None:
    stream = io.StringIO()
    start_logging(as_json=True, stream=stream)
    log.warning("slow", extra={"seconds": 1.5, "directory": Path("data")})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "event": "slow", "seconds": 1.5, "directory": "data"}


def test_an_exception_is_one_line_too() -> None:
    stream = io.StringIO()
    start_logging(stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError" in stream.getvalue()


def test_levels() -> None:
    stream = io.StringIO()
    start_logging(level=logging.WARNING, stream=stream)
    log.info("too little")
    logging.getLogger("library").info("never")
    logging.getLogger("library").warning("always")
    assert [line.split()[1:] for line in stream.getvalue().splitlines()] == [["warning", "always"]]


def test_of_a_flood_of_events_a_few_of_each_interval_are_logged() -> None:
    stream = io.StringIO()
    start_logging(stream=stream)
    limited = RateLimitedLog(log, "refused", burst=2, interval_s=30.0)
    for now in (100.0, 101.0, 102.0, 129.9, 130.0, 50.0):  # a clock that was put back stops nothing
        limited.warn(now, {"at": now})
    assert [line.partition("Z ")[2] for line in stream.getvalue().splitlines()] == [
        "warning refused at=100.0",
        "warning refused: further warnings of this kind are suppressed for 30 s at=101.0",
        "warning refused at=130.0",
        "warning refused at=50.0",
    ]


def test_of_a_flood_from_a_library_and_of_tracebacks_a_few_of_each_kind_are_logged() -> None:
    stream = io.StringIO()
    start_logging(stream=stream)
    library = logging.getLogger("library")
    for number in range(100):
        library.warning("cannot take %d", number)
        library.warning("another kind\nwith a second line %d", number)
        log.warning("ours to limit")
        log.error("failed", exc_info=ValueError(str(number)))
    lines = stream.getvalue()
    assert lines.count("cannot take") == lines.count("another kind") == lines.count(" failed ") == 10
    assert lines.count("suppressed=") == 3
    assert lines.count("ours to limit") == 100


def test_a_table_stands_below_its_line_in_columns_and_in_json_as_it_is() -> None:
    rows = [{"listener": "binary", "open": True}, {"listener": "x\ny\x1b[2J", "open": False}]
    text, as_json = io.StringIO(), io.StringIO()
    start_logging(stream=text)
    log.info("listeners", extra={"table": rows, "count": 2})
    start_logging(as_json=True, stream=as_json)
    log.info("listeners", extra={"table": rows, "count": 2})
    first, *lines = text.getvalue().splitlines()
    assert first.endswith("info listeners count=2")
    assert lines == ["  listener       open", "  binary         yes", r"  x\ny\u001b[2J  no"]
    assert json.loads(as_json.getvalue())["table"] == rows


@pytest.mark.parametrize("lost", [False, True])
def test_a_message_that_dies_has_a_line_without_its_body(caplog: pytest.LogCaptureFixture, lost: bool) -> None:
    async def run() -> None:
        manager = build_manager(default_configuration("alpha"), MemoryStore())
        await manager.start()
        await manager.create_queue(r"private$\orders")
        if lost:
            await manager.set_queue(";deadletter", quota_kb=0)
        message = Message(b"secret", label="a", dead_letter=True, recoverable=True, time_to_be_received=0)
        await manager.send(r"private$\orders", [message])
        await manager.durably(lambda: manager.core.run_timers(manager.clock() + 10))
        await manager.stop()

    with caplog.at_level(logging.INFO, logger="postroad"):
        asyncio.run(run())
    event = "dead letter lost: its queue is full" if lost else "message died"
    (record,) = [each for each in caplog.records if each.message == event]
    facts = record.__dict__
    assert (facts["queue"], facts["label"], facts["dead_letter"]) == (r"private$\orders", "a", "system$;deadletter")
    assert facts["reason"] == class_words(MessageClass.NACK_RECEIVE_TIMEOUT)
    assert record.levelno == (logging.WARNING if lost else logging.INFO)
    assert "secret" not in repr(facts)


def test_facts_are_made_for_lines_that_are_written(caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    def facts() -> dict[str, object]:
        made.append(1)
        return {"number": len(made)}

    limited = RateLimitedLog(logging.getLogger("postroad.test"), "something", burst=3, level=logging.INFO)
    with caplog.at_level(logging.INFO, logger="postroad.test"):
        for _ in range(10):
            limited.warn(1.0, facts)
    assert len(made) == len(caplog.records) == 3
    assert "further lines of this kind" in caplog.records[-1].message
