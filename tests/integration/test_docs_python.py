"""The Python page of the documentation runs as written, block after block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faces import served

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8180"


def test_every_block_runs_and_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    with served(":memory:") as url:
        for block in [*BLOCK.finditer(text)] * 2:
            line = text[: block.start()].count("\n") + 1
            source = "\n" * line + block[1].replace(ADDRESS, url)  # a fault is told with its line on the page
            exec(compile(source, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "order 1 b'some bytes'"
    *_, mine, remote, awaited, table, removed, first, again, missing = printed
    assert (mine, remote, awaited) == ("order 67", "hello from alpha", "order 1")
    assert ("'order 2'" in table, removed) == (True, "3")
    assert (first, again) == ("Submission(sent=2, dropped=0)", "Submission(sent=1, dropped=2)")
    assert missing.startswith(r"there is no queue .\private$\missing on")
