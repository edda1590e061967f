"""The page in a real browser, wide and narrow: every chart is drawn and fits, text stays text, one queue can be shown
alone. Chromium's policy console would name anything that the page tried to load."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from postroad.spark.pipeline.report import render
from tests.spark.test_report import FULL, NOON, Reader, charts, depth, minute, state

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LONG = r"rome: private$\a.queue.with.the.longest.name.that.any.framework.has.ever.made.up.for.one.of.its.services.v2"
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
FACTS = replace(
    FULL,
    states=[*FULL.states, state("received", 500_000, LONG), state("dead", 3, MARKUP, reason="nack-q-purged")],
    traffic=[*FULL.traffic, minute(10, 500_000, queue=LONG), minute(30, 3, queue=MARKUP)],
    oldest=[FULL.oldest[0] | {"label": MARKUP}],
    backlog=[*FULL.backlog, depth(12, queue=LONG[6:], called=LONG)],
    dead_letters=[*FULL.dead_letters, minute(30, 3, queue=MARKUP, reason="nack-q-purged")],
)
# Shows one queue alone once everything is drawn, and records in the page what is visible.
CHOOSE = """<script>
const wait = setInterval(() => {
  if (!document.body.dataset.drawn) return;
  clearInterval(wait);
  const seen = () => [...document.querySelectorAll("tr[data-queue]")].filter((row) => !row.hidden).length;
  const before = seen();
  const select = document.getElementById("queue");
  select.value = %s;
  select.dispatchEvent(new Event("change"));
  document.body.dataset.rows = before + ">" + seen();
  const drawn = [...document.querySelectorAll(".chart svg, .legend li")];
  const widths = drawn.map((each) => each.getBoundingClientRect().right);
  document.body.dataset.right = Math.max(...widths);
  document.body.dataset.page = document.documentElement.scrollWidth;
}, 50);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 500])  # Chromium's windows cannot be narrower
def test_the_page_in_a_browser(tmp_path: Path, width: int) -> None:
    page = render(FACTS, NOON)
    file = tmp_path / "report.html"
    chosen = '"' + LONG.replace("\\", "\\\\") + '"'
    content, _, tail = page.rpartition("</body>")
    file.write_text(f"{content}{CHOOSE % chosen}</body>{tail}", encoding="utf-8")
    assert CHROMIUM is not None
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/p",
    ]
    command = [CHROMIUM, *options, f"--window-size={width},2000", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=200)
    told = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in told if "source: chrome://" not in line] == []  # those are of Chromium's own pages
    body = re.search(r"<body[^>]*>", done.stdout)
    assert body is not None
    kept = dict(re.findall(r'data-(\w+)="([^"]*)"', body[0]))
    assert int(kept["drawn"]) == len(charts(Reader(page)))
    before, after = map(int, kept["rows"].split(">") if ">" in kept["rows"] else kept["rows"].split("&gt;"))
    assert 0 < after < before
    assert float(kept["right"]) <= width
    legends = [unescape(entry) for entry in re.findall(r"<li style=[^>]*>([^<]*)</li>", done.stdout)]
    assert LONG in legends  # whole, over several lines if necessary
    assert "it was purged from its queue (nack-q-purged)" in legends
    assert int(kept["page"]) <= width
    assert "<title>Postroad: delivery report</title>" in done.stdout
    assert "onerror=" not in re.sub(r"<script.*?</script>|&lt;.*?&gt;", "", done.stdout, flags=re.DOTALL)
