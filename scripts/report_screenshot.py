"""Writes docs/images/report.png: the report of a generated history, as Chromium draws it.

`python -m scripts.report_screenshot [MESSAGES] [WIDTH] [FILE]`; Chromium must be installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from postroad.spark import session
from postroad.spark.pipeline.facts import gather
from postroad.spark.pipeline.report import render
from postroad.spark.pipeline.service_levels import service_level
from tests.spark.generated import END_S, history, made_lake

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
HEIGHT = 2150
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"}


def screenshot(page: Path, image: Path, width: int, height: int = HEIGHT) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed")
    with TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        size = [f"--window-size={width},{height}", "--virtual-time-budget=20000"]
        command = [chromium, *options, *size, f"--screenshot={image}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def main(messages: int, width: int, image: Path) -> None:
    with TemporaryDirectory() as directory:
        spark = session("report screenshot", "local[2]", settings=SETTINGS)
        lake = made_lake(spark, Path(directory) / "lake", history(messages))
        facts = replace(gather(lake, [service_level(r"private$\orders=1min")]), lake="lake")
        page = Path(directory) / "report.html"
        page.write_text(render(facts, datetime.fromtimestamp(END_S, UTC)), encoding="utf-8")
        screenshot(page, image.absolute(), width)
        spark.stop()


if __name__ == "__main__":
    messages, width, image = [*sys.argv[1:], *("100000", "1280", str(IMAGE))[len(sys.argv) - 1 :]]
    main(int(messages), int(width), Path(image))
