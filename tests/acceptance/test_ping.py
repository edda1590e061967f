"""`postroad ping`, and managers that ask before they connect: real processes, and scripted peers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import pytest

import postroad as client
from postroad.wire import EstablishConnection, Ping, SessionAck, SessionHeader
from postroad.wire.constants import OperatingSystemFlags
from postroad.wire.framer import decode_packet
from tests.commands import PATIENCE_S, ServerProcess, postroad, serving

ALPHA, BETA, SCRIPTED, NOBODY = "127.0.0.41", "127.0.0.42", "127.0.0.43", "127.0.0.44"
SOMEBODY = UUID("8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10")
QUIET = "http = false\nrpc = false\napi = 0\n"
ESTABLISH_CONNECTION_SIZE = 572

Answer = Callable[[bytes], list[bytes]]


@contextmanager
def manager(directory: Path, name: str, host: str, listen: str, rest: str = "") -> Iterator[ServerProcess]:
    file = directory / f"{name}.toml"
    file.write_text(f'[manager]\nname = "{name}"\n[listen]\nhost = "{host}"\n{QUIET}{listen}\n{rest}')
    with serving(file) as server:
        yield server


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Pings use the default port, unless a test sets another."""
    with manager(tmp_path_factory.mktemp("alpha"), "alpha", ALPHA, "binary = 0") as server:
        yield server


@contextmanager
def responder(answer: Answer, host: str = SCRIPTED) -> Iterator[tuple[int, list[bytes]]]:
    """A UDP port that answers each datagram as told, and notes what came."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as door:
        door.bind((host, 0))
        taken: list[bytes] = []

        def serve() -> None:
            while True:
                data, caller = door.recvfrom(2048)
                if not data:
                    return
                taken.append(data)
                for each in answer(data):
                    door.sendto(each, caller)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield door.getsockname()[1], taken
        finally:
            with socket.socket(family, socket.SOCK_DGRAM) as last:
                last.sendto(b"", door.getsockname())
            thread.join(PATIENCE_S)


def accept(data: bytes) -> list[bytes]:
    return [Ping.decode(data).response(SOMEBODY, refused=False).encode()]


def refuse(data: bytes) -> list[bytes]:
    return [Ping.decode(data).response(SOMEBODY, refused=True).encode()]


def ignore(data: bytes) -> list[bytes]:
    return []


# The command


@pytest.mark.spec("QB-2.1.2-02", "QB-2.1.2-03", "QB-2.1.2-05", "QB-2.2.7-15")
def test_a_manager_that_would_accept(alpha: ServerProcess) -> None:
    run = postroad("ping", ALPHA)
    assert (run.code, run.errors) == (0, "")
    assert run.text.startswith(f"{alpha.ready['id']} at {ALPHA}:3527 would accept a session; it answered in ")
    (answer,) = postroad("ping", ALPHA, "--json").objects
    assert (answer["answer"], answer["manager"], answer["port"]) == ("accepts", alpha.ready["id"], 3527)
    assert 0 < answer["seconds"] < PATIENCE_S


@pytest.mark.spec("QB-2.1.2-06", "QB-2.2.7-05", "QB-2.2.7-11", "QB-2.2.7-13", "QB-3.1.5.1.1-06", "QB-3.1.7.7-01")
def test_only_pings_are_answered_and_to_where_they_came_from(alpha: ServerProcess) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker, socket.socket() as probe:
        asker.bind((NOBODY, 0))
        asker.settimeout(PATIENCE_S)
        session_packet = SessionAck(SessionHeader(1, 0, 0, 1, 0, 64)).encode()
        request = Ping(7, SOMEBODY, 0xFFFD)
        for datagram in (b"", b"hello", request.encode()[:23], bytes(24), session_packet, request.encode()):
            asker.sendto(datagram, (ALPHA, 3527))
        data, address = asker.recvfrom(2048)
        assert address == (ALPHA, 3527)
        assert Ping.decode(data) == Ping(7, UUID(alpha.ready["id"]), 0x0001)
        asker.settimeout(0.2)
        with pytest.raises(TimeoutError):
            asker.recvfrom(2048)  # there was one answer in all
        binary = alpha.ready["listen"]["binary"].rpartition(":")[2]
        probe.connect((ALPHA, int(binary)))  # and the manager is none the worse for it


@pytest.mark.spec("QB-2.2.7-06")
def test_a_manager_that_would_refuse(tmp_path: Path) -> None:
    with manager(tmp_path, "shut", BETA, "binary = false\nping = 0") as server:
        port = server.ready["listen"]["ping"].rpartition(":")[2]
        run = postroad("ping", BETA, "--port", port, "--json")
        assert run.code == 1
        assert (run.objects[0]["answer"], run.objects[0]["manager"]) == ("refuses", server.ready["id"])
        assert "would refuse a session" in run.last_error


@pytest.mark.spec("QB-2.1.2-04")
def test_pings_may_be_off_and_sessions_open_all_the_same(tmp_path: Path) -> None:
    with ExitStack() as stack:
        queue = "[[queue]]\npath = 'private$\\q'"
        beta = stack.enter_context(manager(tmp_path, "beta", BETA, "binary = 0\nping = false", queue))
        port = beta.ready["listen"]["binary"].rpartition(":")[2]
        peers = f'[peers]\n"{BETA}" = {{ binary = {port} }}'
        sender = stack.enter_context(manager(tmp_path, "sender", NOBODY, "binary = 0\nping = false", peers))
        run = postroad("ping", BETA, "--timeout", "0.3")
        assert (run.code, run.output) == (3, b"")
        assert run.last_error == f"postroad: nothing listens for pings at {BETA}:3527"
        with client.connect(sender.api) as near, client.connect(beta.api) as far:
            near.send(rf"DIRECT=TCP:{BETA}\private$\q", client.Message("x"))
            assert far.queue(r"private$\q").receive(timeout=PATIENCE_S).text == "x"


@pytest.mark.spec("QB-2.2.7-14", "QB-6-05")
def test_an_answer_to_another_question_counts_for_nothing() -> None:
    def answer(data: bytes) -> list[bytes]:
        cookie = Ping.decode(data).cookie
        return [Ping(cookie + 1, SOMEBODY, 2).encode(), Ping(cookie - 1, SOMEBODY, 2).encode(), *accept(data)]

    with responder(answer) as (port, _):
        assert postroad("ping", SCRIPTED, "--port", str(port)).code == 0


@pytest.mark.spec("QB-2.2.7-11")
@pytest.mark.parametrize("garbage", [b"pong", b"x" * 24])
def test_garbage_is_no_answer(garbage: bytes) -> None:
    with responder(lambda data: [garbage]) as (port, _):
        run = postroad("ping", SCRIPTED, "--port", str(port), "--timeout", "0.3", "--json")
    assert (run.code, run.objects[0]["answer"], run.objects[0]["manager"]) == (1, "garbage", None)
    assert "is no answer to a ping" in run.last_error


@pytest.mark.spec("QB-2.2.7-04", "QB-2.2.7-07", "QB-2.2.7-12", "QB-3.1.1.3-13", "QB-3.1.7.6-01", "QB-6-14")
def test_silence_is_told_apart_and_asked_again_every_second() -> None:
    with responder(ignore) as (port, taken):
        run = postroad("ping", SCRIPTED, "--port", str(port), "--timeout", "2.5")
        assert (run.code, run.output) == (3, b"")
        assert run.last_error == f"postroad: no answer from {SCRIPTED}:{port} within 2.5 s"
        requests = [Ping.decode(each) for each in taken]
    assert len(requests) > 1
    assert [each.cookie for each in requests] == list(range(1, len(requests) + 1))
    assert {each.flags for each in requests} == {0}
    assert len({each.queue_manager for each in requests}) == 1


@pytest.mark.spec("QB-2.1.2-01")
def test_the_address_decides_between_the_two_kinds_of_ip() -> None:
    try:
        with responder(accept, "::1") as (port, _):
            (answer,) = postroad("ping", "::1", "--port", str(port), "--json").objects
            assert (answer["answer"], answer["address"]) == ("accepts", "::1")
    except OSError:
        pytest.skip("there is no IPv6 here")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([NOBODY, "--timeout", "0"], 2, "--timeout: must be above 0 and at most 3600 seconds, got 0"),
        ([NOBODY, "--timeout", "nan"], 2, "--timeout"),
        ([NOBODY, "--port", "0"], 2, "--port"),
        (["nowhere.invalid"], 1, "nowhere.invalid cannot be found"),
    ],
)
def test_wrong_arguments(arguments: list[str], code: int, sentence: str) -> None:
    run = postroad("ping", *arguments)
    assert (run.code, run.output) == (code, b"")
    assert sentence in run.errors


# Before a session


class ScriptedPeer:
    """Something in the place of a manager: a TCP port that accepts connections, and what comes first on them."""

    def __init__(self, stack: ExitStack) -> None:
        self._door = stack.enter_context(socket.create_server((SCRIPTED, 0)))
        self.port: int = self._door.getsockname()[1]

    def first_packet(self) -> EstablishConnection:
        self._door.settimeout(PATIENCE_S)
        connection, _ = self._door.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            data = b""
            while len(data) < ESTABLISH_CONNECTION_SIZE:
                data += connection.recv(ESTABLISH_CONNECTION_SIZE - len(data))
        packet = decode_packet(data)
        assert isinstance(packet, EstablishConnection)
        return packet

    @property
    def called(self) -> bool:
        self._door.settimeout(0.2)
        try:
            self._door.accept()[0].close()
        except TimeoutError:
            return False
        return True


@contextmanager
def asking(directory: Path, answer: Answer, ping: bool = True, retry_s: float = 3600) -> Iterator[Asking]:
    """A manager with a message for a scripted peer, which it asks before it connects."""
    with ExitStack() as stack:
        peer = ScriptedPeer(stack)
        port, taken = stack.enter_context(responder(answer))
        rest = (
            f"[binary]\nping = {str(ping).lower()}\nretry_connect_s = {retry_s}\n"
            f'[peers]\n"{SCRIPTED}" = {{ binary = {peer.port}, ping = {port} }}'
        )
        server = stack.enter_context(manager(directory, "asking", NOBODY, "binary = 0\nping = false", rest))
        yield Asking(peer, taken, server, stack.enter_context(client.connect(server.api)))


class Asking:
    def __init__(
        self, peer: ScriptedPeer, pings: list[bytes], server: ServerProcess, manager: client.QueueManager
    ) -> None:
        self.peer = peer
        self.pings = pings
        self.server = server
        self.queue = manager.queue(rf"DIRECT=TCP:{SCRIPTED}\private$\q")
        self.queue.send(client.Message("x"))

    def failed(self) -> client.QueueInfo:
        deadline = time.monotonic() + PATIENCE_S
        while (info := self.queue.info()).last_error is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return info


def no_ping_bit(packet: EstablishConnection) -> bool:
    return bool(packet.operating_system & OperatingSystemFlags.NO_PING)


@pytest.mark.spec(
    "QB-2.1-01", "QB-2.2.3.1-10", "QB-3.1.1.1.1.9-01", "QB-3.1.5.2.2-02", "QB-3.1.5.2.2-03", "QB-3.1.7.6-02"
)
def test_a_peer_that_would_accept_is_connected_to(tmp_path: Path) -> None:
    with asking(tmp_path, accept) as scene:
        packet = scene.peer.first_packet()
        assert not no_ping_bit(packet)
        (request,) = map(Ping.decode, scene.pings)
        assert str(request.queue_manager) == scene.server.ready["id"]
        assert (request.cookie, request.flags) == (1, 0)


@pytest.mark.spec(
    "QB-3.1.1.1.1.9-01", "QB-3.1.5.2.2-04", "QB-3.1.5.2.2-05", "QB-3.1.6.8-01", "QB-3.1.7.6-03", "QB-2.2.7-06"
)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refuse, f"{SCRIPTED} would refuse a session: its answer to a ping says so"),
        (ignore, f"{SCRIPTED} did not answer a ping"),
    ],
    ids=["refuses", "is silent"],
)
def test_a_peer_that_would_not_is_left_alone_until_the_next_try(tmp_path: Path, answer: Answer, words: str) -> None:
    with asking(tmp_path, answer) as scene:
        info = scene.failed()
        assert info.last_error == words
        assert info.why is not None
        assert info.why.startswith(f"{words}; next try in ")
        assert info.next_retry_s is not None
        (attempt,) = info.history
        assert (attempt["status"], attempt["error"]) == ("ping failure", 0xC00E0069)
        assert not scene.peer.called
        assert len(scene.pings) == 1


@pytest.mark.spec("QB-2.2.3.1-10", "QB-3.1.5.2.2-01")
def test_the_next_try_does_not_ask(tmp_path: Path) -> None:
    with asking(tmp_path, refuse, retry_s=0.1) as scene:
        assert no_ping_bit(scene.peer.first_packet())
        assert len(scene.pings) == 1


@pytest.mark.spec("QB-2.1-01", "QB-2.2.3.1-10", "QB-6-03")
def test_unless_it_is_told_to_a_manager_does_not_ask(tmp_path: Path) -> None:
    with asking(tmp_path, accept, ping=False) as scene:
        assert no_ping_bit(scene.peer.first_packet())
        assert scene.pings == []
