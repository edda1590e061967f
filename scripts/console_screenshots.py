"""Makes the screenshots of the console in docs/images, from a real manager in a real browser.

python -m scripts.console_screenshots [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from postroad import Message
from tests.console.sites import BROWSER_FLAGS, CHROMIUM, Site, alpha, fill

DOCS = Path(__file__).parents[1] / "docs" / "images"
NAME = "name=private%24%5Corders"
BUSY = "name=private%24%5Cshop"
# The name of the picture, its page, its width, and whether it is dark.
PICTURES = (
    ("overview", "/", 1280, False),
    ("overview-dark", "/", 1280, True),
    ("overview-narrow", "/", 390, False),
    ("queues", "/0/queues", 1280, False),
    ("queues-narrow", "/0/queues", 390, True),
    ("queue", f"/0/queue?{BUSY}", 1280, False),
    ("messages", f"/0/messages?{NAME}", 1280, False),
    ("messages-narrow", f"/0/messages?{NAME}", 390, False),
    ("message", f"/0/message?{NAME}&id=0&place=first", 1280, False),
    ("message-narrow", f"/0/message?{NAME}&id=0&place=first", 390, True),
    ("send", f"/0/send?{NAME}", 1280, False),
    ("delete", f"/0/delete?{NAME}", 1280, False),
    ("dead", "/0/dead", 1280, False),
    ("network", "/0/network?to=rom-gate&close=paris-rome", 1280, False),
    ("network-dark", "/0/network?to=rom-gate", 1280, True),
    ("network-narrow", "/0/network?to=rom-gate", 390, False),
    ("security", "/0/security", 1280, False),
    ("login", "/login", 390, False),
)
KEPT = ("overview", "queue", "message", "network", "dead")  # the ones in the documentation
SECONDS = 40  # of traffic, for the charts
MAX_BYTES = 150_000


def traffic(site: Site, stop: threading.Event) -> None:
    """Messages come faster than they are received, for a while."""
    with site.connect() as manager:
        queue, turn = manager.create_queue(r"private$\shop", label="The web shop"), 0
        while not stop.wait(0.25):
            turn += 1
            queue.send([Message(f'{{"order": {turn}}}', label=f"order {turn}")] * (8 + turn % 5 * 6))
            queue.receive_many(6 + turn % 7 * 5, timeout=0)


def take(browser: Browser, site: Site, directory: Path, name: str, path: str, width: int, dark: bool) -> Path:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(site.url + path)
    file = directory / f"console-{name}.png"
    height = min(1000 if width > 1000 else 1600, page.evaluate("document.documentElement.scrollHeight"))
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=file)
    context.close()
    return file


def main(directory: Path, names: tuple[str, ...]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, alpha(Path(scratch)) as site, sync_playwright() as runner:
        fill(site)
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=BROWSER_FLAGS)
        context = browser.new_context()
        context.new_page().goto(site.url)  # makes the console start to ask
        stop = threading.Event()
        sender = threading.Thread(target=traffic, args=(site, stop))
        sender.start()
        time.sleep(SECONDS)
        for name, path, width, dark in PICTURES:
            if name in names:
                file = take(browser, site, directory, name, path, width, dark)
                assert directory != DOCS or file.stat().st_size < MAX_BYTES, f"{file} is too large"
        stop.set()
        sender.join()
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), tuple(name for name, *_ in PICTURES))
    else:
        main(DOCS, KEPT)
