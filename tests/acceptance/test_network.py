"""Real processes over loopback: every kind of delivery, one hop and two, with kill -9 in the middle."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import postroad as client
from postroad.errors import PostroadError
from tests.commands import PATIENCE_S, ServerProcess, postroad

ADDRESSES = {"alpha": "127.0.0.12", "router": "127.0.0.13", "beta": "127.0.0.14"}
IDS = {name: f"00000000-0000-0000-0000-0000000000a{number}" for number, name in enumerate(ADDRESSES)}
PORTS = {"alpha": 11812, "router": 11813, "beta": 11814}
PEERS = "".join(f'"{ADDRESSES[name]}" = {{ binary = {port} }}\n' for name, port in PORTS.items())
ENTERPRISE = """
[[site]]
name = "left"
[[site]]
name = "middle"
[[site]]
name = "right"
[[link]]
sites = ["left", "middle"]
cost = 1
gates = ["alpha", "router"]
[[link]]
sites = ["middle", "right"]
cost = 1
gates = ["router", "beta"]
""" + "".join(
    f'[[manager]]\nname = "{name}"\nid = "{IDS[name]}"\naddress = "{ADDRESSES[name]}"\n'
    f'sites = ["{site}"]\nrouting_server = true\n'
    for name, site in zip(ADDRESSES, ("left", "middle", "right"), strict=True)
)
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
binary = {port}
ping = false
http = false
rpc = false
api = 0
[binary]
retry_connect_s = 0.2
resend_s = [1, 1, 1]
[directory]
file = "enterprise.toml"
[peers]
{peers}
"""


class Network:
    """Three managers in a row. alpha and beta meet only through the router, unless a direct name leads there."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        (directory / "enterprise.toml").write_text(ENTERPRISE)
        self._stack = stack
        self._files = {}
        self.processes: dict[str, ServerProcess] = {}
        for name, address in ADDRESSES.items():
            file = directory / f"{name}.toml"
            file.write_text(CONFIGURATION.format(name=name, address=address, port=PORTS[name], peers=PEERS))
            self._files[name] = file
            self.start(name)
        beta = self.manager("beta")
        beta.create_queue(r"private$\plain")
        beta.create_queue(r"private$\orders", transactional=True)
        self.names = {
            1: {kind: rf"DIRECT=TCP:{ADDRESSES['beta']}\private$\{kind}" for kind in ("plain", "orders")},
            2: {kind: beta.queue(rf"private$\{kind}").info().format_name for kind in ("plain", "orders")},
        }

    def start(self, name: str) -> None:
        self.processes[name] = ServerProcess(self._files[name])

    def kill(self, name: str) -> None:
        self.processes[name].end(signal.SIGKILL)

    def manager(self, name: str) -> client.QueueManager:
        return self._stack.enter_context(client.connect(self.processes[name].api))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with ExitStack() as stack:
        network = Network(tmp_path_factory.mktemp("network"), stack)
        yield network
        for process in network.processes.values():
            process.end()


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("recoverable", [False, True])
def test_express_and_recoverable_messages_arrive(network: Network, hops: int, recoverable: bool) -> None:
    alpha, beta = network.manager("alpha"), network.manager("beta")
    labels = [f"{hops} {recoverable} {number}" for number in range(200)]
    alpha.send(
        network.names[hops]["plain"], [client.Message(b"x", label=each, recoverable=recoverable) for each in labels]
    )
    received = [beta.queue(r"private$\plain").receive(timeout=30) for _ in labels]
    assert [each.label for each in received] == labels
    assert {each.view.hop_count for each in received} == {hops - 1}


@pytest.mark.parametrize("hops", [1, 2])
def test_a_transaction_arrives_whole_and_in_order(network: Network, hops: int) -> None:
    alpha, beta = network.manager("alpha"), network.manager("beta")
    with alpha.transaction() as transaction:
        alpha.queue(network.names[hops]["orders"]).send(
            [client.Message(f"{number}") for number in range(150)], transaction
        )
    received = [beta.queue(r"private$\orders").receive(timeout=30) for _ in range(150)]
    assert [each.text for each in received] == [f"{number}" for number in range(150)]
    assert (received[0].describe()["first_in_transaction"], received[0].describe()["last_in_transaction"]) == (
        True,
        False,
    )
    assert (received[-1].describe()["first_in_transaction"], received[-1].describe()["last_in_transaction"]) == (
        False,
        True,
    )


@pytest.mark.parametrize("victim", ["alpha", "router", "beta"])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(network: Network, victim: str) -> None:
    alpha = network.manager("alpha")
    sent = {"plain": [], "orders": []}  # type: dict[str, list[str]]
    for batch in range(10):
        for kind, labels in sent.items():
            names = [f"{victim} {kind} {batch}.{number}" for number in range(20)]
            messages = [client.Message(b"x" * 500, label=each, recoverable=True) for each in names]
            alpha.queue(network.names[2][kind]).send(messages, transactional=kind == "orders")
            labels += names
        if batch in (4, 7):
            network.kill(victim)
            network.start(victim)
            alpha = network.manager("alpha")
    beta = network.manager("beta")
    for kind, labels in sent.items():
        queue = beta.queue(rf"private$\{kind}")
        received: list[str] = []
        while len(received) < len(labels):
            received += [each.label for each in queue.receive_many(100, timeout=60)]
        assert received == labels if kind == "orders" else sorted(received) == sorted(labels)
        with pytest.raises(PostroadError):
            queue.receive(timeout=0.5)


def traced(network: Network, at: str, identifier: str) -> tuple[str, list[tuple[str, str]]]:
    """The state of a message as a whole and at each manager, as one of them knows it."""
    (found,) = postroad("trace", identifier, "--json", api=network.processes[at].api).objects
    return found["state"], [(hop["name"], hop["state"]) for hop in found["hops"]]


def traced_until(network: Network, at: str, identifier: str, *states: str) -> None:
    """Each manager in the row comes to this state."""
    deadline = time.monotonic() + PATIENCE_S
    expected = list(zip(ADDRESSES, states, strict=True))
    while (found := traced(network, at, identifier))[1] != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert found[0] == [state for state in states if state != "unknown"][-1]


def test_a_trace_says_what_is_known_of_each_manager(network: Network) -> None:
    there = network.names[2]["plain"]
    alpha, beta = network.manager("alpha"), network.manager("beta")
    alpha.create_queue(r"private$\acks")
    acks = alpha.queue(r"private$\acks").info().format_name
    told = client.Message("x", recoverable=True, ack="full", admin_queue=acks, time_to_reach_queue=5)
    silent = client.Message("x", recoverable=True, time_to_reach_queue=5)
    first, second = alpha.send(there, [told, silent])
    traced_until(network, "alpha", first, "handed over", "handed over", "arrived")
    traced_until(network, "alpha", second, "handed over", "unknown", "unknown")
    traced_until(network, "router", second, "handed over", "handed over", "unknown")
    beta.queue(r"private$\plain").receive_many(2, timeout=PATIENCE_S)
    traced_until(network, "alpha", first, "handed over", "handed over", "received")
    assert traced(network, "alpha", second)[0] == "handed over"
    assert traced(network, "beta", second) == ("received", [("alpha", "handed over"), ("beta", "received")])

    network.processes["beta"].end()
    first, second = alpha.send(there, [told, silent])
    traced_until(network, "router", second, "handed over", "waiting", "unknown")
    traced_until(network, "router", second, "handed over", "died", "unknown")
    traced_until(network, "alpha", first, "handed over", "died", "unknown")
    traced_until(network, "alpha", second, "handed over", "unknown", "unknown")
    lines = postroad("trace", first, api=network.processes["alpha"].api).lines
    assert lines[0] == "died: it did not reach its queue in time"
    assert [line.split()[0] for line in lines[3:6]] == [*ADDRESSES]
    network.start("beta")


def test_commands_show_why_a_message_waits(network: Network) -> None:
    alpha = network.manager("alpha")
    name = r"DIRECT=TCP:127.0.0.99\private$\q"
    alpha.send(name, client.Message("waiting", recoverable=True))
    shown = postroad("queue", "show", name, "--json", api=network.processes["alpha"].api).objects[0]
    assert shown["messages"] == 1
    assert shown["state"] in ("WAITING", "DISCONNECTED", "INACTIVE")
    assert alpha.queue(name).purge() == 1
