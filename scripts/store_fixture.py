"""Writes the data directories of two queue managers, which the upgrade test opens with later versions.

python -m scripts.store_fixture 0.1.0

writes `tests/stores/0.1.0.tar.xz`, the directories, and `tests/stores/0.1.0.json`, their content. Run it once for each
released version, with that version installed, and keep the files of older versions. Both managers are processes, and
the script uses only their HTTP API, so it works with every version.

Beta has already received the first half of what waits at alpha. A newer beta must recognize these messages and drop
them.
"""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

STORES = Path(__file__).parents[1] / "tests" / "stores"
PATIENCE_S = 60
LONG_S = 3_000_000_000  # time to be received, so long that the fixture does not expire
ADDRESSES = {"alpha": "127.0.0.2", "beta": "127.0.0.3"}
NOWHERE = r"DIRECT=TCP:127.0.0.4\private$\nowhere"
PUBLIC_QUEUE = "5f6d2f6e-8d5c-4c55-9d0c-5d1a1f0e0b01"
CARRIED = ("TCP", "HTTP")
ORDERS, LEDGER = r"private$\orders", r"private$\ledger"
HOLDER = "nightly"
SENDER = "exporter"
QUEUE_FIELDS = (
    *("path", "format_name", "id", "type", "transactional", "label", "journal", "quota_kb", "journal_quota_kb"),
    *("authenticate", "privacy", "abort_limit", "messages", "bytes", "paused", "created_at_s", "oldest_arrived_ms"),
)
DELIVERIES = {"plain": False, "ledger": True}  # queues of beta, and whether they are transactional

ENTERPRISE = f"""
[[site]]
name = "here"
[[manager]]
name = "alpha"
id = "00000000-0000-0000-0000-0000000000a1"
address = "{ADDRESSES["alpha"]}"
sites = ["here"]
[[queue]]
path = 'alpha\\billing'
id = "{PUBLIC_QUEUE}"
"""
CONFIGURATION = """
[manager]
name = "{name}"
id = "00000000-0000-0000-0000-0000000000{id}"
data = "{name}"
[listen]
host = "{address}"
binary = {binary}
ping = false
http = {http}
rpc = false
api = 0
[binary]
ack_timeout_ms = 20000
retry_connect_s = 0.2
resend_s = [1]
[srmp]
retransmission_ms = 500
resend_s = [1]
[directory]
file = "enterprise.toml"
[peers]
{peers}
"""


class Served:
    """`postroad serve` for one of the two managers, and its HTTP API."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._log = (directory / f"{name}.log").open("ab")
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(directory / f"{name}.toml")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} did not start: {Path(self._log.name).read_text()}")
        self._api = f"http://{json.loads(line)['listen']['api']}/api/v1"

    def call(self, method: str, path: str, value: object = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(
            f"{self._api}/{path}", body, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def queues(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "queues")["queues"]
        return found

    def messages(self, queue: str) -> list[dict[str, Any]]:
        """The messages in queue order. A property without a value is left out."""
        return _with_values(self.call("GET", f"queues/{in_url(queue)}/messages?limit=10000")["messages"])

    def labels(self, queue: str) -> list[str]:
        return [each["label"] for each in self.messages(queue)]

    def send(self, queue: str, *messages: dict[str, Any], transactional: bool = False) -> list[str]:
        value = {"messages": list(messages), "transactional": transactional}
        sent: list[str] = self.call("POST", f"queues/{in_url(queue)}/messages", value)["ids"]
        return sent

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def _with_values(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if value is not None} for each in messages]


def in_url(queue: str) -> str:
    return quote(queue, safe="")


def configure(directory: Path) -> None:
    """Writes the configuration of both, with ports that are free now. The data are in `alpha` and `beta`."""
    ports = {name: (free_port(address), free_port(address)) for name, address in ADDRESSES.items()}
    lines = [f'"{ADDRESSES[name]}" = {{ binary = {each[0]}, http = {each[1]} }}' for name, each in ports.items()]
    (directory / "enterprise.toml").write_text(ENTERPRISE)
    for number, (name, address) in enumerate(ADDRESSES.items(), 1):
        binary, http = ports[name]
        text = CONFIGURATION.format(
            name=name, id=f"a{number}", address=address, binary=binary, http=http, peers="\n".join(lines)
        )
        (directory / f"{name}.toml").write_text(text)


def free_port(address: str) -> int:
    with socket.create_server((address, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{PATIENCE_S} s have passed, and still not: {what}")
        time.sleep(0.1)


def leading_to(name: str, protocol: str, queue: str) -> str:
    """The direct name of a private queue of another manager."""
    address = ADDRESSES[name]
    return (
        f"DIRECT=TCP:{address}\\private$\\{queue}"
        if protocol == "TCP"
        else f"DIRECT=HTTP://{address}/msmq/private$/{queue}"
    )


def message(label: str, **properties: object) -> dict[str, Any]:
    return {"label": label, "body": f"the body of {label}", "recoverable": True, **properties}


def send_batch(sender: Served, receiver: str, batch: str) -> None:
    """Sends three recoverable and three transactional messages by each protocol."""
    for protocol in CARRIED:
        for queue, transactional in DELIVERIES.items():
            labels = batch_labels(batch, protocol, queue)
            lasting = {"time_to_reach_queue": LONG_S, "journal": True}
            messages = [message(each, **lasting) for each in labels]
            sender.send(leading_to(receiver, protocol, queue), *messages, transactional=transactional)


def batch_labels(batch: str, protocol: str, queue: str) -> list[str]:
    return [f"{batch} {protocol} {queue} {number}" for number in range(3)]


def arrived(receiver: Served, *batches: str) -> bool:
    wanted = {
        each
        for batch in batches
        for protocol in CARRIED
        for queue in DELIVERIES
        for each in batch_labels(batch, protocol, queue)
    }
    return wanted <= {label for queue in DELIVERIES for label in receiver.labels(rf"private$\{queue}")}


def nothing_leaves(served: Served) -> bool:
    return not any(each["messages"] for each in served.queues() if each["type"] == "outgoing")


def describe(served: Served) -> dict[str, Any]:
    """Everything that must still exist later: queues with their properties, messages in their order, holds."""
    queues = [each for each in served.queues() if not each["path"].endswith("_queue$")]  # not the manager's own
    described: dict[str, Any] = {
        "queues": {each["format_name"]: {key: each[key] for key in QUEUE_FIELDS} for each in queues},
        "messages": {each["format_name"]: served.messages(each["format_name"]) for each in queues},
        "holds": [],
        "held": [],
    }
    if served.name == "alpha":
        described["holds"] = served.call("GET", f"queues/{in_url(ORDERS)}/holds")["holds"]
        for each in described["holds"]:
            held = f"messages?from={each['from']}&to={each['to']}&hold={each['name']}"
            described["held"] += _with_values(served.call("GET", f"queues/{in_url(ORDERS)}/{held}")["messages"])
    return described


def submit(served: Served, epoch: int, row: int, *labels: str) -> Any:
    path = f"queues/{in_url(ORDERS)}/submissions/{SENDER}/{epoch}/0?row={row}"
    return served.call("POST", path, {"messages": [message(each) for each in labels]})


def make(directory: Path, stack: ExitStack) -> dict[str, Any]:
    """Fills `alpha` and `beta` in the directory. Returns what is in them at the end. The stack ends what still runs."""

    def start(name: str) -> Served:
        served = Served(directory, name)
        stack.callback(served.end, signal.SIGKILL)
        return served

    configure(directory)
    alpha, beta = start("alpha"), start("beta")
    for served in (alpha, beta):
        for queue, transactional in DELIVERIES.items():
            served.call("POST", "queues", {"path": rf"private$\{queue}", "transactional": transactional})
    fill_queues(alpha)
    send_batch(alpha, "beta", "greeting")
    send_batch(beta, "alpha", "greeting")
    wait_until(lambda: arrived(beta, "greeting") and arrived(alpha, "greeting"), "the greetings have arrived")
    wait_until(lambda: nothing_leaves(alpha) and nothing_leaves(beta), "the greetings are acknowledged")
    beta.end()
    send_batch(alpha, "beta", "first")
    alpha.end()

    shutil.copytree(directory / "alpha", directory / "before")
    alpha, beta = start("alpha"), start("beta")
    wait_until(lambda: arrived(beta, "greeting", "first"), "the first half has arrived")
    wait_until(lambda: nothing_leaves(alpha), "the first half is acknowledged")
    found = {"beta": describe(beta)}
    beta.end()
    alpha.end()
    shutil.rmtree(directory / "alpha")
    (directory / "before").rename(directory / "alpha")

    alpha = start("alpha")
    send_batch(alpha, "beta", "second")
    let_messages_die(alpha)
    alpha.call("PUT", f"queues/{in_url(ORDERS)}/holds/{HOLDER}", {"from": 0})
    alpha.send(ORDERS, message("behind the hold"))
    submit(alpha, 1, 0, "epoch 1, row 0")
    alpha.call("POST", f"queues/{in_url(ORDERS)}/submissions/{SENDER}/1/commit")
    submit(alpha, 2, 0, "epoch 2, row 0", "epoch 2, row 1")
    found["alpha"] = describe(alpha)
    # What clients hold does not survive the manager: the kill puts it all back.
    alpha.call("POST", f"queues/{in_url(ORDERS)}/lock?count=1&timeout=0")
    transaction = alpha.call("POST", "transactions")["id"]
    alpha.call("POST", f"queues/{in_url(LEDGER)}/receive?timeout=0&transaction={transaction}")
    alpha.call("POST", f"queues/{in_url(LEDGER)}/messages?transaction={transaction}", message("never committed"))
    alpha.end(signal.SIGKILL)
    return found


def fill_queues(alpha: Served) -> None:
    attributes = {"journal": True, "quota_kb": 4096, "journal_quota_kb": 2048, "label": "Orders"}
    alpha.call("POST", "queues", {"path": ORDERS, "abort_limit": 5, **attributes})
    alpha.call("POST", "queues", {"path": r"private$\sealed", "privacy": "body", "authenticate": True})
    alpha.send(ORDERS, *(message(f"taken {number}") for number in range(2)))
    alpha.call("POST", f"queues/{in_url(ORDERS)}/receive?count=2&timeout=0")  # goes to the queue's journal
    alpha.send(ORDERS, *(message(f"priority {priority}", priority=priority) for priority in range(8)))
    alpha.send(
        ORDERS,
        message(
            "everything",
            body="Grüße",
            body_type=8,
            app_tag=0xFFFFFFFF,
            correlation_id="{11111111-2222-3333-4444-555555555555}\\66",
            response_queue=r"DIRECT=OS:alpha\private$\plain",
            admin_queue=r"DIRECT=OS:alpha\private$\plain",
            ack="full",
            time_to_be_received=LONG_S,
            extension_base64=base64.b64encode(bytes(range(64))).decode(),
            connector_type="77777777-8888-9999-aaaa-bbbbbbbbbbbb",
        ),
        message("on two pages of the store", body="x" * 9_000),
    )
    alpha.send(r"alpha\billing", message("of a public queue"))
    alpha.send(LEDGER, *(message(f"ledger {number}") for number in range(3)), transactional=True)
    transaction = alpha.call("POST", "transactions")["id"]
    alpha.call("POST", f"queues/{in_url(LEDGER)}/receive?count=2&timeout=0&transaction={transaction}")
    alpha.call("POST", f"transactions/{transaction}/abort")


def let_messages_die(alpha: Served) -> None:
    """Sends one message to each of the dead-letter queues."""
    dying = {"time_to_reach_queue": 1, "dead_letter": True}
    alpha.send(NOWHERE, message("dead", **dying))
    alpha.send(NOWHERE, message("dead in its transaction", **dying), transactional=True)
    wait_until(
        lambda: bool(alpha.labels(";deadletter")) and bool(alpha.labels(";deadxact")), "both messages are dead letters"
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m scripts.store_fixture VERSION", file=sys.stderr)
        return 2
    archive, expected = STORES / f"{arguments[0]}.tar.xz", STORES / f"{arguments[0]}.json"
    STORES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        with ExitStack() as stack:
            found = make(Path(scratch), stack)
        with tarfile.open(archive, "w:xz") as tar:
            for name in ADDRESSES:
                tar.add(Path(scratch, name), name, filter=_kept)
    expected.write_text(json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{archive.name}: {archive.stat().st_size:,} bytes; {expected.name}: {expected.stat().st_size:,} bytes")
    return 0


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what every start makes anew: 16 MiB in reserve for a full disk, the lock, SQLite's shared memory."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if Path(member.name).name in ("reserve", "lock", "store.sqlite-shm") else member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
