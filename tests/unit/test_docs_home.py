"""The home page of the documentation leads to every other page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_linked_once() -> None:
    linked = re.findall(r"\| \[[^]]+\]\(([^)]+\.md)\) \|$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(linked) == sorted(pages)
