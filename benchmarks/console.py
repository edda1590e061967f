"""The console with many queues and a million messages: how fast its pages are, how long a search takes, and what both
cost the manager. The manager's rate is measured in turns with and without them. `make bench-console` runs it."""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import quote, urlencode

import postroad
from benchmarks.harness import print_table, process_cpu_s
from postroad.console.search import row
from postroad.describe.received import ReceivedMessage

BACKLOG, TRAFFIC = r"private$\backlog", r"private$\traffic"
MIXED, LARGE = r"private$\mixed", r"private$\large"
SAMPLES = Path(__file__).parents[1] / "tests/data/bodies/samples.jsonl"
LISTED = 100
LARGE_BYTES = 1 << 20
BATCH = 100
FILLED_AT_ONCE = 1000
TURN_S = 5.0
TURNS = 4
PAGES_EVERY_S = 5.0  # like the live parts of an open page
CONFIGURATION = """
[manager]
name = "bench"
data = "data"
[listen]
host = "127.0.0.1"
binary = false
ping = false
http = false
rpc = false
api = 0
console = 0
"""


class Browser:
    """One session of the console, without a screen."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._cookie = ""

    def get(self, path: str) -> str:
        return self._ask("GET", path)[1]

    def post(self, path: str, form: dict[str, str], page: str) -> str:
        """Posts the form of `page`, and returns where the console redirects to."""
        found = re.search(r'name="csrf"[^>]*?(?:value|content)="([^"]+)"', page)
        assert found is not None
        return self._ask("POST", path, urlencode(form | {"csrf": found[1]}))[0]

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[str, str]:
        connection = http.client.HTTPConnection(self._address, timeout=600)
        headers = {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status < 400, (method, path, answer.status, text[:500])
        if cookie := answer.getheader("set-cookie"):
            self._cookie = cookie.partition(";")[0]
        return answer.getheader("location", ""), text


class Search:
    """A search of the whole backlog that finds one in a hundred messages."""

    def __init__(self, browser: Browser, messages: int) -> None:
        self._browser = browser
        self._messages = messages
        name = quote(BACKLOG)
        page = browser.get(f"/0/search?name={name}")
        form = {"name": BACKLOG, "label": "", "id": "", "class": "", "body": "number 77 ", "where": ""}
        self.address = browser.post("/0/search", form, page)
        self.began = time.perf_counter()

    def look(self) -> str:
        return self._browser.get(self.address)

    @property
    def is_running(self) -> bool:
        return "data-done" not in self.look()

    def wait(self) -> float:
        while self.is_running:
            time.sleep(0.5)
        assert f"{self._messages // 100:,}" in self.look(), self.look()
        return time.perf_counter() - self.began

    def cancel(self) -> float:
        began = time.perf_counter()
        page = self.look()
        found = re.search(r'action="([^"]*cancel[^"]*)"', page)
        assert found is not None, page
        self._browser.post(found[1], {"id": self.address.partition("id=")[2]}, page)
        assert not self.is_running
        return time.perf_counter() - began


@contextmanager
def serving(directory: Path) -> Iterator[tuple[int, str, str]]:
    """Starts a manager. Returns its process id, the address of its API, and that of its console."""
    file = directory / "bench.toml"
    file.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "postroad", "serve", "-c", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        listen = json.loads(server.stdout.readline())["listen"]
        try:
            yield server.pid, listen["api"], listen["console"]
        finally:
            server.terminate()


def fill(api: str, queues: int, messages: int) -> None:
    with postroad.connect(f"http://{api}") as manager:
        manager.create_queue(TRAFFIC)
        manager.create_queue(BACKLOG)
        for number in range(queues - 2):
            manager.create_queue(rf"private$\queue{number:05}")
        backlog = manager.queue(BACKLOG)
        for first in range(0, messages, FILLED_AT_ONCE):
            backlog.send(
                [
                    postroad.Message(f"number {n % 100} {'x' * 180}", label=f"order {n}", recoverable=True)
                    for n in range(first, min(first + FILLED_AT_ONCE, messages))
                ]
            )


def fill_lists(api: str) -> None:
    """A queue with every sixth of the samples that .NET has written, and one with large bodies of four kinds."""
    with postroad.connect(f"http://{api}") as manager:
        for name in (MIXED, LARGE):
            manager.create_queue(name)
        samples = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
        for each in samples[:: len(samples) // LISTED][:LISTED]:
            body, extension = b64decode(each["body_base64"]), b64decode(each["extension_base64"] or "")
            manager.queue(MIXED).send(postroad.Message(body, body_type=each["body_type"], extension=extension))
        objects = next(b64decode(each["body_base64"]) for each in samples if each["kind"] == "nrbf")
        bodies = (
            json.dumps([{"id": number} for number in range(LARGE_BYTES // 14)]).encode(),
            b"<orders>" + b"<order><id>7</id></order>" * (LARGE_BYTES // 25) + b"</orders>",
            objects + bytes(LARGE_BYTES),
            bytes(range(256)) * (LARGE_BYTES // 256),
        )
        for number in range(LISTED):
            manager.queue(LARGE).send(postroad.Message(bodies[number % len(bodies)]))


def measure_lists(api: str, browser: Browser) -> list[tuple[str, str]]:
    """The rows of a list alone, and the first page with half of them."""
    rows = []
    with postroad.connect(f"http://{api}") as manager:
        for name, words in ((MIXED, "mixed messages"), (LARGE, "messages of 1 MiB")):
            messages = list(manager.queue(name).messages())
            assert len(messages) == LISTED
            decoding = median(timed(lambda: _rows(messages)) for _ in range(5))  # noqa: B023
            page = median(timed(lambda: browser.get(f"/0/messages?name={quote(name)}")) for _ in range(5))  # noqa: B023
            rows += [
                (f"rows of {LISTED} {words}", f"{decoding * 1000:.0f} ms"),
                (f"first page of {words}", f"{page:.2f} s"),
            ]
    return rows


def _rows(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        row(message)


def measure_traffic() -> None:
    """A client that sends and receives in batches. For each line it works for as many seconds as the line says, and
    prints the rate."""
    with postroad.connect(f"http://{sys.argv[2]}") as manager:
        queue = manager.queue(TRAFFIC)
        batch = [postroad.Message(b"x" * 1024, recoverable=True) for _ in range(BATCH)]
        print("ready", flush=True)
        for line in sys.stdin:
            began, done, seconds = time.perf_counter(), 0, float(line)
            while time.perf_counter() - began < seconds:
                queue.send(batch)
                done += len(queue.receive_many(BATCH))
            print(done / (time.perf_counter() - began), flush=True)


class Traffic:
    def __init__(self, api: str, pid: int) -> None:
        command = [sys.executable, "-m", "benchmarks.console", "--traffic", api]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pid = pid
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def rate(self, seconds: float) -> tuple[float, float]:
        """Returns messages per second, and microseconds of the manager's processor time for each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        used = process_cpu_s(self._pid)
        print(seconds, file=self._process.stdin, flush=True)
        rate = float(self._process.stdout.readline())
        return rate, (process_cpu_s(self._pid) - used) / (rate * seconds) * 1e6

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def repeated(step: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Repeats the work in the background until the end."""
    end = threading.Event()

    def run() -> None:
        while not end.is_set():
            step()
            end.wait(pause_s)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    end.set()
    thread.join()


def main() -> None:
    if sys.argv[1:2] == ["--traffic"]:
        measure_traffic()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=2000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as (pid, api, console):
        fill(api, arguments.queues, arguments.messages)
        browser = Browser(console)
        pages = {
            "overview": "/",
            "queues": "/0/queues",
            "messages of the long queue": f"/0/messages?name={quote(BACKLOG)}",
        }
        rows = []
        for name, path in pages.items():
            times = [timed(lambda path=path: browser.get(path)) for _ in range(6)]  # type: ignore[misc]
            rows.append((f"{name}: first, then", f"{times[0]:.2f} s, {median(times[1:]):.2f} s"))
        fill_lists(api)
        rows += measure_lists(api, browser)
        search = Search(browser, arguments.messages)
        rows.append(("search without other work", f"{search.wait():.0f} s"))
        search = Search(browser, arguments.messages)
        time.sleep(0.2)
        rows.append(("cancel of a search", f"{search.cancel():.2f} s"))
        rows += beside(Traffic(api, pid), browser, arguments.messages)
    print_table(
        f"The console with {arguments.queues:,} queues and {arguments.messages:,} messages",
        ("", "figure"),
        rows,
        "Rates are the best of their turns; without, with open pages, and with a search take turns.",
    )


def beside(traffic: Traffic, browser: Browser, messages: int) -> list[tuple[str, str]]:
    """Measures the manager's rate while the console works."""
    found: dict[str, list[tuple[float, float]]] = {"without": [], "open pages": [], "a search": []}

    def look() -> None:
        browser.get("/")
        browser.get("/0/queues")

    traffic.rate(2 * TURN_S)  # by then the console has seen that the manager is busy
    for _ in range(TURNS):
        found["without"].append(traffic.rate(TURN_S))
        with repeated(look, PAGES_EVERY_S):
            found["open pages"].append(traffic.rate(TURN_S))
        search = Search(browser, messages)
        found["a search"].append(traffic.rate(TURN_S))
        if search.is_running:
            search.cancel()
    search = Search(browser, messages)
    with repeated(lambda: traffic.rate(1), 0):
        whole = search.wait()
    traffic.close()
    best = {name: (max(rate for rate, _ in each), min(us for _, us in each)) for name, each in found.items()}
    rows = [
        (f"messages/s, {name}", f"{rate:,.0f}: {rate / best['without'][0]:.2f}; CPU {us:.0f} us")
        for name, (rate, us) in best.items()
    ]
    return [*rows, ("search beside it", f"{whole:.0f} s")]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
