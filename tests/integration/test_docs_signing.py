"""The page about signing runs as written, and lists the fields that no signature covers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import postroad
from postroad.security.signatures import UNSIGNED_FIELDS
from tests.faces import served
from tests.security_vectors import ADVANCED
from tests.signers import key_files

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sign-and-encrypt.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (all|\d\.\d) \| (.*) \|$", re.MULTILINE)


def test_every_block_of_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    key_files(tmp_path, ADVANCED)
    with served(":memory:") as url:
        with postroad.connect(url) as manager:
            manager.create_queue(r"private$\orders", authenticate=True)
        for block in BLOCK.finditer(PAGE):
            exec(block[1].replace("http://127.0.0.1:8180", url), {"__name__": "page"})
    assert capsys.readouterr().out == "3 sha512 None\n"


def test_the_page_lists_every_field_that_is_not_signed() -> None:
    listed = {row[1]: {name.strip("`") for name in row[2].split(", ")} for row in ROW.finditer(PAGE)}
    common = listed.pop("all")
    assert {version: common | names for version, names in listed.items()} == UNSIGNED_FIELDS
