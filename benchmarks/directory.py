"""A domain with very many public queues: time and memory to read it, to refresh it with a few changes, and what both
cost the messages of a manager. `make bench-directory` runs it. It needs root and Samba's domain controller."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.harness import print_table
from benchmarks.wire import EXPRESS
from postroad.directory.ldap_connection import LdapSettings, connect
from postroad.directory.ldap_watch import DomainSettings, LdapWatch
from postroad.wire import UserMessage
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller, add_enterprise, unavailable
from tests.enterprises import client, directory, link, server, site

MANAGERS = 100
CHANGES = 10
TURNS = 5
WORK_S = 2.0
_ADD = """
sam.transaction_start()
managers, queues = sys.argv[3].split(";"), int(sys.argv[4])
for number in range(queues):
    dn = "CN=q%d,CN=msmq,CN=%s,CN=Computers,%s" % (number, managers[number % len(managers)], sys.argv[5])
    sam.add({"dn": dn, "objectClass": "mSMQQueue", "mSMQLabelEx": "queue %d" % number, "mSMQQueueQuota": "1024"})
sam.transaction_commit()
"""


def memory_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def busy(seconds: float) -> int:
    """How many packets this thread encodes and decodes, which is what a manager's event loop does."""
    packet = EXPRESS.encode()
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        for _ in range(20):
            UserMessage.decode(packet)
            EXPRESS.encode()
        done += 20
    return done


def beside(work: Callable[[], object]) -> tuple[int, int]:
    """What this thread does in the same time alone and while another thread repeats `work`."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            work()

    alone = busy(WORK_S)
    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        return alone, busy(WORK_S)
    finally:
        stop.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.directory", description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    given = parser.parse_args()
    if (why := unavailable()) is not None:
        sys.exit(why)
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(scratch), given.queues)


def measure(place: Path, queues: int) -> None:
    controller = Controller(place)
    (place / "password").write_text(PASSWORD)
    ldap = LdapSettings(
        servers=(controller.ldaps,),
        user=ADMINISTRATOR,
        password_file=place / "password",
        ca_certificates=controller.ca_certificates,
        timeout_s=120,
    )
    names = [f"m{number}" for number in range(MANAGERS)]
    controller.start()
    try:
        with connect(ldap) as opened:
            places = [site("London"), site("Paris")]
            joint = link("London", "Paris", 1, "gate-l gate-p")
            gates = [server("gate-l", "London"), server("gate-p", "Paris")]
            add_enterprise(opened, directory(*places, joint, *gates, *(client(name, "London") for name in names)))
        controller.stop()
        started = time.perf_counter()
        controller.change_database(_ADD, ";".join(names), str(queues), BASE)
        print(f"{queues} queues added in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        controller.start()
        report(controller, DomainSettings(ldap=ldap, own="m0", copy_file=place / "copy"), queues)
    finally:
        controller.stop()


def report(controller: Controller, settings: DomainSettings, queues: int) -> None:
    before_mb, started = memory_mb(), time.perf_counter()
    watch = LdapWatch(settings, 0.0)
    read_s, grown_mb = time.perf_counter() - started, memory_mb() - before_mb
    assert len(watch.directory.queues) == queues
    now = 1.0
    times: list[float] = []
    with connect(settings.ldap) as opened:
        for turn in range(TURNS):
            for number in range(CHANGES):
                dn = f"CN=q{number},CN=msmq,CN=m{number},CN=Computers,{BASE}"
                opened.modify(dn, {"mSMQLabelEx": [f"changed {turn}"]})
            started = time.perf_counter()
            assert watch.reload(now)
            times.append(time.perf_counter() - started)
            now += 1
        assert watch.full_reads == 1
        started = time.perf_counter()
        watch.reload(now)
        idle_s = time.perf_counter() - started

    later = count(100_000, 50_000)  # so late that the timer for everything has run out

    def refresh() -> None:
        watch.reload(now, asked=True)
        time.sleep(1.0)

    alone, refreshing = beside(refresh)
    alone_too, reading = beside(lambda: watch.reload(next(later), asked=True))
    watch.close()
    started = time.perf_counter()
    again = LdapWatch(settings, 0.0)
    start_s = time.perf_counter() - started
    assert again.full_reads == 0
    again.close()
    print_table(
        "A domain with many public queues",
        ("what", "figure"),
        [
            ("public queues", str(queues)),
            ("first read, s", f"{read_s:.1f}"),
            ("memory of the manager for it, MB", f"{grown_mb:.0f}"),
            ("kept copy, MB", f"{settings.copy_file.stat().st_size / 1e6:.0f}" if settings.copy_file else ""),
            (f"refresh with {CHANGES} changes, s (median)", f"{median(times):.2f}"),
            ("refresh without a change, s", f"{idle_s:.3f}"),
            ("start with the kept copy, s", f"{start_s:.1f}"),
            ("work of another thread while refreshing each second", f"{100 * refreshing / alone:.0f} %"),
            ("work of another thread while everything is read again", f"{100 * reading / alone_too:.0f} %"),
        ],
    )


if __name__ == "__main__":
    main()
