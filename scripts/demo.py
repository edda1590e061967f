"""The whole story on one machine: three queue managers in three sites, and messages that travel between them.

London (127.0.0.2) and Rome (127.0.0.4) know each other only through Paris (127.0.0.3). The script uses only programs
and interfaces that users have. It exits with 0 if everything that was promised happened.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import postroad

SITES = {"london": "127.0.0.2", "paris": "127.0.0.3", "rome": "127.0.0.4"}
IDS = {name: f"00000000-0000-0000-0000-00000000000{number}" for number, name in enumerate(SITES, 1)}
API_PORT = 8180
NEWS = "239.50.1.1:8001"
REPORTS = "00000000-0000-0000-0000-0000000000aa"  # a public queue of london, for reports on traced messages
TRACE_REPORTS = 8  # of two messages, each seen when it leaves, passes and arrives
REPORT = Path("demo-report.html")
ENTERPRISE = """
[[site]]
name = "uk"
[[site]]
name = "france"
[[site]]
name = "italy"
[[link]]
sites = ["uk", "france"]
cost = 1
gates = ["london", "paris"]
[[link]]
sites = ["france", "italy"]
cost = 2
gates = ["paris", "rome"]
[[queue]]
path = 'london\\reports'
id = "00000000-0000-0000-0000-0000000000aa"
""" + "".join(
    f"""
[[manager]]
name = "{name}"
id = "{IDS[name]}"
address = "{address}"
sites = ["{site}"]
routing_server = true
"""
    for (name, address), site in zip(SITES.items(), ("uk", "france", "italy"), strict=True)
)
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
http = 8880

[binary]
retry_connect_s = 0.5
resend_s = [2, 2, 2, 5]
[directory]
file = "enterprise.toml"
[multicast]
enabled = true
interfaces = ["{address}"]
encapsulation = "udp"
[srmp]
retransmission_ms = 500
"""
# By HTTP too, london reaches rome only through paris.
SOAP = {
    "london": '[[srmp.outbound]]\nfrom = "http://127.0.0.4:8880/*"\nto = "http://127.0.0.3:8880/"\n',
    "paris": "store_and_forward = true\n",
    "rome": "",
}


class Site:
    """One `postroad serve` and a client of it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.file = directory / f"{name}.toml"
        self.file.write_text(CONFIGURATION.format(name=name, address=SITES[name]) + SOAP[name])
        self.start()
        self.manager = postroad.connect(f"http://{SITES[name]}:{API_PORT}")

    def start(self) -> None:
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(self.file), "--log-level", "error"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():  # its standard error says why it cannot run
            self.process.wait()
            raise SystemExit(1)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def say(text: str) -> None:
    print(f"\n-- {text}", flush=True)


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "enterprise.toml").write_text(ENTERPRISE)
        say("three queue managers, in three sites: london - paris - rome")
        sites: dict[str, Site] = {}
        try:
            for name in SITES:
                sites[name] = Site(Path(directory), name)
            play(sites, Path(directory))
            report_all(sites, Path(directory))
        finally:
            for site in sites.values():
                site.manager.close()
                site.stop()
    say(f"done in {time.monotonic() - started:.0f} s")
    return 0


def play(sites: dict[str, Site], directory: Path) -> None:
    london, rome = sites["london"].manager, sites["rome"].manager
    notes = rome.create_queue(r"private$\notes")
    orders = rome.create_queue(r"private$\orders", transactional=True, journal=True)
    answers = london.create_queue(r"private$\answers", journal=True)
    notes_name, orders_name = notes.info().format_name, orders.info().format_name

    say("london's route to rome")
    run("route", "rome", "--from", "london", "--enterprise", str(directory / "enterprise.toml"))

    say("an express and a recoverable message over two hops, with acknowledgments")
    for label, recoverable in (("express", False), ("recoverable", True)):
        message = postroad.Message(
            f"{label} greetings from london",
            label=label,
            recoverable=recoverable,
            admin_queue=answers.info().format_name,
            ack="reach-queue,receive",
            trace=f"PUBLIC={REPORTS}",
        )
        london.send(notes_name, message)
        received = notes.receive(timeout=30)
        print(f"rome received {received.text!r}, {received.delivery}, after {received.view.hop_count} hop(s)")
    for _ in range(4):
        acknowledgment = answers.receive(timeout=30)
        print(f"london got the acknowledgment {acknowledgment.class_name} for {acknowledgment.label!r}")

    say("paris goes down; london sends ten orders in one transaction, and keeps them")
    sites["paris"].process.kill()
    sites["paris"].process.wait()
    with london.transaction() as transaction:
        for number in range(10):
            london.queue(orders_name).send(
                postroad.Message(f"order {number}", label=f"order {number}", journal=True, dead_letter=True),
                transaction,
            )
    time.sleep(1)
    waiting = london.queue(orders_name).info()
    print(f"london holds {waiting.messages} messages for rome: {waiting.why}")

    say("paris comes back: the orders arrive exactly once and in order")
    sites["paris"].start()
    arrived = [orders.receive(timeout=30).label for _ in range(10)]
    print(f"rome received {', '.join(arrived)}")
    assert arrived == [f"order {number}" for number in range(10)], arrived
    assert rome.queue(r"private$\orders;journal").info().messages == 10

    say("rome's final acknowledgments reach london's journal")
    journal = london.queue(";journal")
    wait_until(lambda: journal.info().messages >= 10)
    print(f"london's journal has {journal.info().messages} orders that were received")

    say("by SOAP to a partner behind a router: paris stores and forwards, rome's receipts come straight back")
    ledger = rome.create_queue(r"private$\ledger", transactional=True, journal=True)
    by_soap = "DIRECT=HTTP://127.0.0.4:8880/msmq/private$/ledger"
    london.queue(by_soap).send(
        [postroad.Message(f"entry {number}", label=f"entry {number}", journal=True) for number in range(3)],
        transactional=True,
    )
    wait_until(lambda: ledger.info().messages == 3)
    run("remote", "peek", SITES["rome"], r"private$\ledger", "--count", "3")
    entries = [ledger.receive(timeout=30).label for _ in range(3)]
    print(f"rome received {', '.join(entries)}")
    assert entries == ["entry 0", "entry 1", "entry 2"], entries
    wait_until(lambda: london.queue(by_soap).info().messages == 0)
    print("london has its stream receipt and has let them go")

    say("one multicast message reaches all three managers")
    groups = [site.manager.create_queue(r"private$\news", multicast_address=NEWS) for site in sites.values()]
    london.send(f"MULTICAST={NEWS}", postroad.Message("prices have changed", label="news"))
    for name, news in zip(sites, groups, strict=True):
        print(f"{name} has {news.peek(timeout=30).text!r}")
        news.delete()

    say("a message that cannot be delivered becomes a dead letter with a reason")
    lost = london.send(
        r"DIRECT=TCP:127.0.0.9\private$\nowhere",
        postroad.Message("lost?", label="to nowhere", recoverable=True, dead_letter=True, time_to_reach_queue=2),
    )
    dead_letters = london.queue(";deadletter")
    wait_until(lambda: dead_letters.info().messages == 1)
    letter = dead_letters.peek()
    print(f"{letter.label!r} died of {letter.class_name}")

    say("london shows where a message went, and pings rome")
    run("trace", lost, "--api", f"http://{SITES['london']}:{API_PORT}")
    run("ping", SITES["rome"])

    say("the command decode shows any packet")
    run("decode", "examples/frame8.hex")


def report_all(sites: dict[str, Site], directory: Path) -> None:
    """Spark reads the journals, dead letters, acknowledgments and trace reports of all three, and writes the report."""
    say("Spark reads the journals and dead letters of all three, and writes a report")
    wait_until(lambda: sites["london"].manager.queue(f"PUBLIC={REPORTS}").info().messages >= TRACE_REPORTS)
    figures = _pipeline(directory)
    states, reasons = figures["states"], figures["reasons"]
    print(f"read: {figures['managers']}; {figures['messages']} messages, {states}, dead of {reasons}")
    counted = {name: counters(name) for name in ("london", "rome")}
    by_managers = {
        "received by rome": counted["rome"]["received"],
        "dead letters in london": counted["london"]["dead_lettered"],
        "received, by london's journal": sites["london"].manager.queue(";journal").info().messages,
    }
    by_spark = {
        "received by rome": figures["states"].get("received"),
        "dead letters in london": figures["states"].get("dead"),
        "received, by london's journal": figures["kinds"]["transactional"]["received"],
    }
    for what, number in by_managers.items():
        print(f"{what}: {number}, Spark says {by_spark[what]}")
    assert by_spark == by_managers
    for fault in ("unexplained", "duplicates", "out_of_order", "contradicted", "undecodable"):
        assert figures[fault] == 0, (fault, figures[fault])


def _pipeline(directory: Path) -> dict[str, Any]:
    """Runs the pipeline as users do. Returns its figures."""
    command = ["pipeline", "run", "--lake", str(directory / "lake"), "--report", str(REPORT), "--json"]
    command += [each for address in SITES.values() for each in ("--api", f"http://{address}:{API_PORT}")]
    command += ["--enterprise", str(directory / "enterprise.toml")]
    print(f"$ postroad {' '.join(command[:6])} ... ", flush=True)
    done = subprocess.run([sys.executable, "-m", "postroad", *command], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"the report is in {REPORT}")
    return figures


def counters(name: str) -> dict[str, int]:
    """What a manager has counted since it started."""
    with urlopen(f"http://{SITES[name]}:{API_PORT}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r"^postroad_messages_(\w+)_total(?:\{.*\})? (\d+)", text, re.MULTILINE)
    return {what: int(number) for what, number in found}


def wait_until(happened: object, patience_s: float = 30) -> None:
    assert callable(happened)
    deadline = time.monotonic() + patience_s
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.1)


def run(*arguments: str) -> None:
    print(f"$ postroad {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "postroad", *arguments], check=True, cwd=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
