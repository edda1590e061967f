"""`import postroad` is quick and complete, and its blocking API says the same as the asynchronous one."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import postroad
from postroad import aio
from scripts import unasync
from tests.faces import served

HEAVY = ("aiohttp", "apsw", "asyncio", "postroad.manager", "postroad.wire", "httptools")


def imported(program: str) -> set[str]:
    """The heavy modules that a program loads."""
    show = f"import json, sys; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", f"{program}; {show}"], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import postroad; postroad.__version__; postroad.errors") == set()


def test_an_embedded_manager_needs_no_http() -> None:
    assert imported("import postroad; postroad.open(':memory:').close()") & {"aiohttp", "httptools"} == set()


def test_a_remote_manager_needs_no_server_and_no_manager(tmp_path: Path) -> None:
    rooms = ("store", "queues", "manager", "binary", "soap", "rpc", "remote_read", "api", "offsets")
    foreign = {*(f"postroad.{room}" for room in rooms), "apsw", "httptools", "aiohttp", "asyncio", "typer"}
    with served(tmp_path) as url:
        program = f"""
import json, sys
import postroad

with postroad.connect({url!r}) as qm:
    queue = qm.create_queue("private$\\\\orders")
    queue.send("text")
    assert [message.text for message in queue.messages()] == ["text"]
    with queue.receiving(0) as message:
        assert message.text == "text"
print(json.dumps(sorted(sys.modules)))
"""
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    brought = json.loads(run.stdout)
    assert "postroad.client.http_backend" in brought
    assert sorted(foreign & set(brought)) == []


def test_everything_that_is_offered_is_there() -> None:
    assert {name for name in postroad.__all__ if not hasattr(postroad, name)} == set()
    assert set(postroad.__all__) <= set(dir(postroad))
    assert {name for name in aio.__all__ if not hasattr(aio, name)} == set()
    with pytest.raises(AttributeError, match="nonsense"):
        postroad.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["QueueManager", "Queue", "Transaction", "OpenQueue", "Cursor"])
def test_both_faces_have_the_same_verbs(name: str) -> None:
    def verbs(face: type) -> dict[str, list[str]]:
        found = {verb: value for verb, value in vars(face).items() if inspect.isfunction(value) and verb[0] != "_"}
        return {verb: list(inspect.signature(value).parameters) for verb, value in found.items()}

    assert verbs(getattr(postroad, name)) == verbs(getattr(aio, name))
    assert verbs(getattr(aio, name))


def test_the_blocking_face_is_up_to_date() -> None:
    assert unasync.main(["--check"]) == 0


def test_a_stale_face_is_found_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = tmp_path / "src" / "postroad" / "client"
    for face in ("aio", "sync"):
        (client / face).mkdir(parents=True)
    for name in unasync.MODULES:
        (client / "aio" / f"{name}.py").write_text("async def f() -> None:\n    await g()\n")
    monkeypatch.setattr(unasync, "CLIENT", client)
    assert unasync.main(["--check"]) == 1
    assert "sync/queue.py" in capsys.readouterr().err
    assert unasync.main([]) == 0
    assert unasync.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        ("async def f() -> AsyncIterator[int]: ...", "def f() -> Iterator[int]: ..."),
        ("async with await g() as x, h(): ...", "with g() as x, h(): ..."),
        ("async for x in f(): ...", "for x in f(): ..."),
        ("@asynccontextmanager", "@contextmanager"),
        ("async def __aenter__(self): ...", "def __enter__(self): ..."),
        ("async def __aexit__(self): ...", "def __exit__(self): ..."),
        ("from postroad.client.aio.queue import Queue", "from postroad.client.sync.queue import Queue"),
        ("from x import AsyncIterator, Iterable", "from x import Iterable, Iterator"),
        ("from x import LIMIT, AsyncIterator, Callable, f", "from x import LIMIT, Callable, Iterator, f"),
        ("awaited = asynchronous", "awaited = asynchronous"),
    ],
)
def test_how_async_is_taken_out(asynchronous: str, blocking: str) -> None:
    notice, _, text = unasync.blocking("queue", asynchronous).partition("\n")
    assert notice == "# Written by scripts/unasync.py from client/aio/queue.py: edit that one."
    assert text == blocking
