"""Two processes of one manager on a real PostgreSQL with a synchronous replica, killed, stopped and handed over under
load, while the database restarts and its replica is promoted, with a ledger at both ends: what was acknowledged and
lost, what came twice, what came out of order, and how long nobody served.

Beta has a store in files and exchanges messages with alpha by the binary protocol and SOAP; applications use alpha by
the HTTP API. A message that is handed over again after an acknowledgment without an answer is the same message: it has
the same lookup id. One that has arrived twice has two.

A process that is stopped gets messages by the API while another one serves. When it goes on, it must acknowledge none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import postroad
from postroad.errors import PostroadError
from tests.clusters import Clusters, new_schema

LEASE_S = 3
PATIENCE_S = 120.0
BETA, ONE, OTHER = "127.0.62.1", "127.0.62.2", "127.0.62.3"
PORTS = {"binary": 11862, "ping": 13562, "http": 18062, "rpc": 12162, "api": 18862}
PEER = "{{ " + ", ".join(f"{name} = {port}" for name, port in PORTS.items() if name != "api") + " }}"
ALPHA_ID, BETA_ID = "746f7274-0000-4000-8000-00000000000a", "746f7274-0000-4000-8000-00000000000b"
KINDS = {"kill": 2, "stop": 2, "hand over": 1, "terminate": 1, "database": 1, "promote": 1}  # and how often
KNOCKS = 5  # messages for a process that is stopped
LEDGER, PLAIN = r"private$\ledger", r"private$\plain"
CONFIGURATION = f"""
[manager]
name = "{{name}}"
id = "{{identifier}}"
data = "{{host}}"
{{store}}
[listen]
host = "{{host}}"
{chr(10).join(f"{name} = {port}" for name, port in PORTS.items())}
epm = false
[binary]
retry_connect_s = 0.5
resend_s = [2, 2, 5]
[srmp]
retransmission_ms = 1000
resend_s = [2, 2, 5]
[directory]
file = "enterprise.toml"
[peers]
"{BETA}" = {PEER}
"{ONE}" = {PEER}
"{OTHER}" = {PEER}
"alpha" = {PEER}
[[queue]]
path = 'private$\\ledger'
transactional = true
[[queue]]
path = 'private$\\plain'
"""
ENTERPRISE = f"""
[[site]]
name = "here"
[[manager]]
name = "alpha"
id = "{ALPHA_ID}"
address = ["{ONE}", "{OTHER}"]
sites = ["here"]
[[manager]]
name = "beta"
id = "{BETA_ID}"
address = "{BETA}"
sites = ["here"]
"""


class Server:
    """`postroad serve`, and what it has printed."""

    def __init__(self, directory: Path, name: str, identifier: str, host: str, store: str = "") -> None:
        self.host = host
        self.api = f"http://{host}:{PORTS['api']}"
        self._config = directory / f"{host}.toml"
        text = CONFIGURATION.format(name=name, identifier=identifier, host=host, store=store)
        self._config.write_text(text)
        self.lines: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        with self._config.with_suffix(".log").open("ab") as log:
            command = [sys.executable, "-m", "postroad", "serve", "-c", str(self._config)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        lines: list[dict[str, Any]] = []
        self.lines = lines
        output = self.process.stdout
        assert output is not None
        threading.Thread(target=lambda: lines.extend(map(json.loads, output)), daemon=True).start()

    @property
    def ready(self) -> bool:
        return self.process.poll() is None and bool(self.lines) and "ready" in self.lines[-1]

    @property
    def standing_by(self) -> bool:
        return self.process.poll() is None and bool(self.lines) and "standby" in self.lines[-1]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Load:
    """Threads that send and receive, and what they know."""

    def __init__(self, alpha: str, beta: str) -> None:
        self.kept: dict[str, list[int]] = defaultdict(list)  # by flow: the numbers that were acknowledged
        self.unknown: dict[str, int] = Counter()
        self.copies: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))  # lookup ids by number
        self.order: dict[str, list[int]] = defaultdict(list)  # first arrivals
        self.again: dict[str, int] = Counter()  # the same message handed over again
        self.sending = self.reading = True
        by_soap = f"DIRECT=HTTP://alpha:{PORTS['http']}/msmq/private$/plain"
        work: list[Callable[[], None]] = [
            lambda: self._send("binary in", beta, rf"DIRECT=OS:alpha\{LEDGER}", transactional=True),
            lambda: self._send("soap in", beta, by_soap, transactional=False),
            lambda: self._send("api and binary out", alpha, rf"DIRECT=TCP:{BETA}\{LEDGER}", transactional=True),
            lambda: self._read(alpha, LEDGER),
            lambda: self._read(alpha, PLAIN),
            lambda: self._read(beta, LEDGER),
        ]
        self.threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in self.threads:
            thread.start()

    def _send(self, flow: str, api: str, name: str, *, transactional: bool) -> None:
        number = 0
        with postroad.connect(api) as manager:
            queue = manager.queue(name)
            while self.sending:
                number += 1
                message = postroad.Message(b"", label=f"{flow}/{number}", recoverable=True)
                try:
                    if transactional:
                        with manager.transaction() as transaction:
                            queue.send(message, transaction)
                    else:
                        queue.send(message)
                    self.kept[flow].append(number)
                except PostroadError:
                    self.unknown[flow] += 1
                    time.sleep(0.2)
                time.sleep(0.02)

    def _read(self, api: str, name: str) -> None:
        while self.reading:
            with suppress(PostroadError), postroad.connect(api) as manager:
                for message in manager.queue(name).consume(prefetch=20, timeout=2):
                    flow, _, number = message.label.partition("/")
                    copies = self.copies[flow][int(number)]
                    self.again[flow] += message.lookup_id in copies
                    if not copies:
                        self.order[flow].append(int(number))
                    copies.add(message.lookup_id)
            time.sleep(0.1)

    def missing(self) -> dict[str, int]:
        found = {flow: len(set(kept) - set(self.copies[flow])) for flow, kept in list(self.kept.items())}
        return {flow: count for flow, count in found.items() if count}

    def settle(self) -> None:
        self.sending = False
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.missing():
            time.sleep(1)
        time.sleep(5)
        self.reading = False

    def report(self) -> tuple[str, bool]:
        lines, good = [], True
        for flow, kept in self.kept.items():
            lost = len(set(kept) - set(self.copies[flow]))
            doubled = sum(len(copies) > 1 for copies in self.copies[flow].values())
            order = self.order[flow]
            reordered = sum(after < before for before, after in pairwise(order))
            transactional = not flow.startswith("soap")
            good &= not lost and not (transactional and (doubled or reordered))
            lines.append(
                f"{flow}: {len(kept)} acknowledged, {self.unknown[flow]} without an answer; lost {lost}, "
                f"doubled {doubled}, reordered {reordered if transactional else 'not promised'}, "
                f"handed over again {self.again[flow]}"
            )
        return "\n".join(lines), good


def wait(what: str, condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.02)
    return time.monotonic() - began


def knock(server: Server, number: int) -> socket.socket:
    """Sends a message to a process that is stopped."""
    body = json.dumps({"messages": [{"label": f"knock/{number}", "recoverable": True}]})
    head = f"POST /api/v1/queues/private$/plain/messages HTTP/1.1\r\nhost: {server.host}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    connection = socket.create_connection((server.host, PORTS["api"]), PATIENCE_S)
    connection.sendall((head + body).encode())
    return connection


def is_acknowledged(connection: socket.socket) -> bool:
    """Whether a process that has ended answered that it took the message."""
    with connection, suppress(OSError):
        return connection.recv(100).startswith(b"HTTP/1.1 2")
    return False


class Database:
    """The server that writes, and a replica of it. A promoted replica gets a new one, at the other port."""

    def __init__(self, clusters: Clusters) -> None:
        self.primary = clusters(replica=True)
        assert self.primary.replica is not None
        ports = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.primary.replica.port}"
        self.url = f"postgresql://postgres@{ports}/postgres?target_session_attrs=read-write"

    def promote(self) -> None:
        old, new = self.primary, self.primary.replica
        assert new is not None
        old.stop("immediate")
        new.promote()
        self.primary = new
        new.add_replica(old.port)
        shutil.rmtree(old.directory)

    def stop(self) -> None:
        for each in (self.primary.replica, self.primary):
            if each is not None:
                each.stop("immediate")


def hand_over(active: Server) -> bool:
    """`postroad failover`. After a crash of the database it takes a while until a standby is known again. Returns False
    if the process was deposed meanwhile, because the database was away for long."""
    command = [sys.executable, "-m", "postroad", "--api", active.api, "failover"]
    until = time.monotonic() + PATIENCE_S
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"postroad failover: exit {done.returncode}, {done.stderr.strip()}", flush=True)
        if active.process.poll() is not None:
            return False
        assert "no other process stands by" in done.stderr, "`postroad failover` must find the standby"
        assert time.monotonic() < until, "in vain: postroad failover"
        time.sleep(0.5)
    return True


def one_stands_by(servers: list[Server]) -> bool:
    """Whether one process is active and the other stands by. Starts one again that was deposed while the database was
    away."""
    for each in servers:
        code = each.process.poll()
        if code is not None:
            assert code == 4, f"a deposed manager must exit with 4, got {code}"
            print(f"{each.host} was deposed", flush=True)
            each.start()
    return [each.ready for each in servers].count(True) == 1 and any(each.standing_by for each in servers)


def fail_over(kind: str, servers: list[Server], database: Database) -> float | None:
    """Makes one failover. Returns how long nobody served; None if nothing had to fail over."""
    wait("one active, one standing by", lambda: one_stands_by(servers))
    active = next(each for each in servers if each.ready)
    (standby,) = [each for each in servers if each is not active]
    if kind == "database":
        database.primary.restart("immediate")
        return None
    if kind == "promote":
        database.promote()
        return None
    began = time.monotonic()
    if kind == "kill":
        active.signal(signal.SIGKILL)
    elif kind == "stop":
        active.signal(signal.SIGSTOP)
    elif kind == "terminate":
        active.signal(signal.SIGTERM)
    elif kind == "hand over":
        if not hand_over(active):
            return None
        wait("the old active to stand by", lambda: active.standing_by)
    wait(f"{standby.host} to serve after {kind}", lambda: standby.ready)
    seconds = time.monotonic() - began
    if kind == "stop":
        knocks = [knock(active, number) for number in range(KNOCKS)]
        active.signal(signal.SIGCONT)
        code = active.process.wait(PATIENCE_S)
        assert code == 4, f"a deposed manager must exit with 4, got {code}"
        acknowledged = sum([is_acknowledged(each) for each in knocks])
        assert not acknowledged, f"a deposed manager acknowledged {acknowledged} messages"
    if kind != "hand over":
        active.process.wait(PATIENCE_S)
        active.start()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failovers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=7200.0, help="ends earlier if these are over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS), action="append", help="failovers of this kind; repeatable")
    parser.add_argument("--keep", action="store_true", help="keep the directory with the logs")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    directory = Path(tempfile.mkdtemp(prefix="postroad-failover-", dir="/tmp"))
    scratch = Path(tempfile.mkdtemp(prefix="postroad-pg-", dir="/tmp"))
    clusters = Clusters(scratch)
    (directory / "enterprise.toml").write_text(ENTERPRISE)
    servers: list[Server] = []
    beta: Server | None = None
    database: Database | None = None
    try:
        database = Database(clusters)
        schema = new_schema()
        store = f'[store]\nurl = "{database.url}"\nschema = "{schema}"\nlease_s = {LEASE_S}'
        servers = [Server(directory, "alpha", ALPHA_ID, host, store) for host in (ONE, OTHER)]
        beta = Server(directory, "beta", BETA_ID, BETA)
        wait("beta", lambda: bool(beta and beta.ready))
        wait("alpha", lambda: any(each.ready for each in servers))
        load = Load(",".join(each.api for each in servers), beta.api)
        times: dict[str, list[float]] = defaultdict(list)
        done: Counter[str] = Counter()
        stuck, shaken = 0, ""
        until = time.monotonic() + arguments.seconds
        while sum(map(len, times.values())) < arguments.failovers and time.monotonic() < until:
            time.sleep(chance.uniform(0.5, 3.0))
            kinds = arguments.only or list(KINDS)
            (kind,) = chance.choices(kinds, [KINDS[each] for each in kinds])
            try:
                seconds = fail_over(kind, servers, database)
            except AssertionError as fault:  # the ledgers tell what it meant for messages
                print(f"{kind}: {fault}")
                stuck += 1
                break
            done[kind] += 1
            if seconds is not None:
                times[f"{kind}{shaken}"].append(seconds)
            # A replica calls a server that was away again after some seconds, and until then nothing is confirmed.
            shaken = " after a database fault" if kind in ("database", "promote") else ""
            print(f"{sum(done.values())}: {kind}{'' if seconds is None else f', {seconds:.2f} s'}", flush=True)
        load.settle()
        text, good = load.report()
        print(text)
        print(", ".join(f"{kind} {number}" for kind, number in sorted(done.items())))
        for kind, found in sorted(times.items()):
            found.sort()
            print(
                f"{kind}: {len(found)} times, a standby served after {found[len(found) // 2]:.2f} s (50 %), "
                f"{found[min(len(found) - 1, len(found) * 99 // 100)]:.2f} s (99 %)"
            )
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
        return 0 if good and not stuck else 1
    finally:
        for each in [*servers, *([beta] if beta else [])]:
            each.end()
        if database is not None:
            database.stop()
        clusters.close()
        shutil.rmtree(scratch, ignore_errors=True)
        if arguments.keep:
            print(f"logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
