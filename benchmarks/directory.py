"""A domain with very many public queues: time and memory to read it, to refresh it with a few changes, and what both
cost the messages that a manager receives. `make bench-directory` runs it. It needs root and Samba's domain controller.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from multiprocessing import Process
from pathlib import Path
from statistics import mean, median
from uuid import uuid4

from benchmarks.harness import print_table, process_cpu_s
from benchmarks.network import PORT, send
from postroad.directory.ldap_connection import LdapSettings, connect
from postroad.directory.ldap_watch import COPY_FILE, DomainSettings, LdapWatch
from tests.commands import ServerProcess
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller, add_enterprise, unavailable
from tests.enterprises import client, directory, link, server, site

MANAGERS = 100
CHANGES = 10
TURNS = 5
ROUNDS = 5
MESSAGES = 20_000
HOSTS = {"never": "127.0.0.42", "changes": "127.0.0.43", "everything": "127.0.0.44"}
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.directory", description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    given = parser.parse_args()
    if (why := unavailable()) is not None:
        sys.exit(why)
    logging.getLogger("postroad").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(scratch), given.queues)


def measure(place: Path, queues: int) -> None:
    controller = Controller(place, backend="mdb")
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
            # An account that sees deleted objects knows that only once there are some.
            opened.add(f"CN=gone,CN=Computers,{BASE}", {"objectClass": ["container"]})
            opened.delete(f"CN=gone,CN=Computers,{BASE}")
        controller.stop()
        started = time.perf_counter()
        controller.change_database(_ADD, ";".join(names), str(queues), BASE)
        print(f"{queues} queues added in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        controller.start()
        report(controller, DomainSettings(ldap=ldap, own="m0", copy_file=place / "copy"), queues)
        measure_wire(place, controller, ldap, MESSAGES)
    finally:
        controller.stop()


def report(controller: Controller, settings: DomainSettings, queues: int) -> None:
    before_mb, started = memory_mb(), time.perf_counter()
    now = time.time()
    watch = LdapWatch(settings, now)
    read_s, grown_mb = time.perf_counter() - started, memory_mb() - before_mb
    assert len(watch.directory.queues) == queues
    times: list[float] = []
    with connect(settings.ldap) as opened:
        for turn in range(TURNS):
            for number in range(CHANGES):
                opened.modify(_dn(number), {"mSMQLabelEx": [f"changed {turn}"]})
            started = time.perf_counter()
            assert watch.reload(now)
            times.append(time.perf_counter() - started)
            now += 1
        assert watch.full_reads == 1
        started = time.perf_counter()
        watch.reload(now)
        idle_s = time.perf_counter() - started

    watch.close()
    started = time.perf_counter()
    again = LdapWatch(settings, now)
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
        ],
    )


# Messages that a server receives meanwhile, over TCP


@dataclass(frozen=True, slots=True)
class Round:
    """`beside` is the share of the time in which threads other than that of the event loop had a processor: at most so
    much can a busy event loop lose to them."""

    rate: float
    loop_us: float  # processor time of the event loop's thread for each message
    beside: float


def measure_wire(place: Path, controller: Controller, ldap: LdapSettings, messages: int) -> None:
    """Three servers that receive in turn, so that other load on the machine affects all of them: one never asks the
    directory, one each second while ten queues change each second, and one reads everything again and again."""
    more = {"never": "refresh_s = 86400", "changes": "refresh_s = 1", "everything": "refresh_s = 1\nsites_update_s = 1"}
    rounds: dict[str, list[Round]] = {name: [] for name in more}
    with ExitStack() as opened:
        servers = {}
        for name, settings in more.items():
            (place / name).mkdir()
            config = place / name / "receiver.toml"
            config.write_text(
                _RECEIVER.format(host=HOSTS[name], port=PORT, controller=controller, place=place, more=settings)
            )
            (place / name / "data").mkdir()
            shutil.copy(place / "copy", place / name / "data" / COPY_FILE)
            servers[name] = ServerProcess(config)
            opened.callback(servers[name].close)
        changing = Process(target=change, args=(ldap,))
        changing.start()
        opened.callback(changing.kill)
        for _ in range(ROUNDS):
            for name, server in servers.items():
                rounds[name].append(receive(server, HOSTS[name], messages))
    words = {
        "never": "no refresh",
        "changes": f"a refresh with {CHANGES} changes each second",
        "everything": "everything read again all the time",
    }
    print_table(
        f"{messages:,} express messages of 1 KiB received over TCP meanwhile",
        ("", "messages/s", "event loop, us a message", "beside the event loop"),
        [
            (
                words[name],
                f"{max(each.rate for each in found):,.0f}",
                f"{min(each.loop_us for each in found):.1f}",
                f"{100 * mean(each.beside for each in found):.1f} %",
            )
            for name, found in rounds.items()
        ],
        f"best of {ROUNDS} rounds in turn; beside the event loop: the share of the time in which other threads of the "
        "receiver had a processor, on average, which bounds what they can take from it",
    )


_RECEIVER = """\
[manager]
name = "m0"
data = "data"
[listen]
host = "{host}"
binary = {port}
api = 0
ping = false
http = false
rpc = false
[binary]
window_size = 1024
[[queue]]
path = 'private$\\bench'
[directory]
ldap = "{controller.ldaps}"
user = "Administrator@POSTROAD.TEST"
password_file = "{place}/password"
ca_certificates = "{controller.ca_certificates}"
{more}
"""


def change(ldap: LdapSettings) -> None:
    """Changes ten queues each second, in a process of its own."""
    with connect(ldap) as opened:
        for turn in count():
            for number in range(CHANGES):
                opened.modify(_dn(number), {"mSMQLabelEx": [f"again {turn}"]})
            time.sleep(1.0)


def receive(server: ServerProcess, host: str, messages: int) -> Round:
    wanted = received(server) + messages
    loop_s, all_s = _loop_cpu_s(server.pid), process_cpu_s(server.pid)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(1) as pool:
        sending = send("express", scratch, messages, 1024, receiver=host, identifier=uuid4())
        sent = pool.submit(asyncio.run, sending)
        while received(server) < wanted:
            time.sleep(0.02)
        ended = time.time()
        loop_s, all_s = _loop_cpu_s(server.pid) - loop_s, process_cpu_s(server.pid) - all_s
        started, _ = sent.result()
    return Round(messages / (ended - started), loop_s / messages * 1e6, (all_s - loop_s) / (ended - started))


def received(server: ServerProcess) -> int:
    found: int = server.get("/queues/private$%5Cbench")["messages"]
    return found


def _loop_cpu_s(pid: int) -> float:
    """Processor time of the process's first thread, in which its event loop runs."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _dn(number: int) -> str:
    return f"CN=q{number},CN=msmq,CN=m{number},CN=Computers,{BASE}"


if __name__ == "__main__":
    main()
