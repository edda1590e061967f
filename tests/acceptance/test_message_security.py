"""Signed, encrypted, allowed: real managers and the real command, with a router in between that has no key."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import postroad as client
from postroad.errors import PostroadError
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.security.descriptors import Sid
from postroad.security.guard import Sealer
from postroad.wire import ConnectionParameters, EstablishConnection, UserMessage
from postroad.wire.constants import MessageClass, SecurityFlags, SenderIdType
from postroad.wire.framer import Framer
from postroad.wire.headers import SecurityHeader
from postroad.wire.octets import NULL_GUID
from postroad.wire.security_patch import with_security
from postroad.wire.view import MessageView
from tests.commands import Outcome, ServerProcess, postroad
from tests.security_vectors import ADVANCED, RING
from tests.signers import Files, key_files

PATIENCE_S = 60
BINARY, HTTP = 11890, 18090
HOSTS = {"alpha": "127.0.90.11", "router": "127.0.90.12", "beta": "127.0.90.13", "gamma": "127.0.90.14"}
IDS = {name: UUID(int=0xE2E0 + number) for number, name in enumerate(HOSTS)}
PEERS = "".join(f'"{host}" = {{ binary = {BINARY}, http = {HTTP} }}\n' for host in HOSTS.values())
ANN, BOB = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002"
PASSWORD = "a-password-that-nobody-guesses"
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {binary}
ping = false
http = {http}
rpc = 0
api = 0
[binary]
retry_connect_s = 0.2
resend_s = [1, 1, 1]
insecure_nacks = true
[rpc]
authenticate = true
[directory]
file = "{enterprise}.toml"
poll_s = 0.05
[[user]]
name = "ann"
password = "{password}"
sid = "{ann}"
[[certificate]]
sid = "{ann}"
file = "ann.pem"
[peers]
{peers}
{more}
"""
OLD = """
[security]
accept_hashes = ["sha512", "sha256", "sha1", "md5"]
accept_ciphers = ["aes256", "rc4", "rc2"]
sender_ids = "claimed"
"""


class Peer:
    """A manager that can be killed and started again."""

    def __init__(self, name: str, file: Path, stack: ExitStack) -> None:
        self.name = name
        self.data = file.parent / "data" / name
        self._file = file
        self._stack = stack
        self._numbers = count(1)
        self.start()

    def start(self) -> None:
        self.process = ServerProcess(self._file)
        self._stack.callback(self.process.close)
        self.manager = self._stack.enter_context(client.connect(self.process.api))

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)

    def run(self, *arguments: str, user: str | None = None) -> Outcome:
        variables = {} if user is None else {"POSTROAD_USER": user, "POSTROAD_PASSWORD": PASSWORD}
        return postroad(*arguments, api=self.process.api, variables=variables)

    def queue(self, **properties: Any) -> client.Queue:
        return self.manager.create_queue(rf"private$\q{next(self._numbers)}", **properties)

    @property
    def public_keys(self) -> str:
        (shown,) = self.run("keys", "show", "--json").objects
        return str(shown["public_keys"])

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.manager.info().messages_refused)


class Network:
    """alpha - router - beta and gamma. beta has the default algorithms, gamma old ones too."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.ann = key_files(directory)
        self.bob = key_files(directory, ADVANCED, "bob")
        self.keys: dict[str, str] = {}
        self.write_enterprise()
        self._write("router-enterprise.toml", self._enterprise({}))
        self.beta, self.gamma = self._serve("beta"), self._serve("gamma", more=OLD)
        self.keys = {"beta": self.beta.public_keys, "gamma": self.gamma.public_keys}
        self.write_enterprise()
        self.router, self.alpha = self._serve("router", "router-enterprise"), self._serve("alpha")

    def _serve(self, name: str, enterprise: str = "enterprise", more: str = "") -> Peer:
        values = {"binary": BINARY, "http": HTTP, "password": PASSWORD, "ann": ANN, "peers": PEERS, "more": more}
        file = self.directory / f"{name}.toml"
        file.write_text(CONFIGURATION.format(name=name, host=HOSTS[name], enterprise=enterprise, **values))
        file.chmod(0o600)
        return Peer(name, file, self._stack)

    def _enterprise(self, keys: dict[str, str]) -> str:
        """Each manager is alone in its site, and each site has a link to that of the router."""
        text = ""
        for name, host in HOSTS.items():
            text += f'[[site]]\nname = "site-{name}"\n'
            if name != "router":
                text += f'[[link]]\nsites = ["site-{name}", "site-router"]\ncost = 1\ngates = ["{name}", "router"]\n'
            text += f'[[manager]]\nname = "{name}"\nid = "{IDS[name]}"\naddress = "{host}"\n'
            text += f'sites = ["site-{name}"]\nrouting_server = true\n'
            text += f'public_keys = "{keys[name]}"\n' if name in keys else ""
        return text

    def write_enterprise(self) -> None:
        self._write("enterprise.toml", self._enterprise(self.keys))

    def _write(self, name: str, text: str) -> None:
        new = self.directory / f"{name}.new"
        new.write_text(text)
        new.replace(self.directory / name)

    def send(self, *arguments: str) -> None:
        done = self.alpha.run("send", *arguments)
        assert (done.code, done.errors) == (0, "")


def signing(files: Files, sid: str = ANN) -> tuple[str, ...]:
    return "--sign", str(files.certificate), "--key", str(files.key), "--sender-id", sid


def name_of(queue: client.Queue) -> str:
    return queue.info().format_name


def received(queue: client.Queue) -> dict[str, Any]:
    return queue.receive(timeout=PATIENCE_S).describe()


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(tmp_path_factory.mktemp("network"), stack)


# Signed, encrypted, both


@pytest.mark.parametrize(("version", "hash", "level"), [("2.0", "sha512", 3), ("2.0", "sha256", 3), ("2.0", "", 3)])
def test_a_signature_is_checked_behind_a_router(network: Network, version: str, hash: str, level: int) -> None:
    queue = network.beta.queue(authenticate=True)
    options = (*signing(network.ann), "--signature", version, *(("--hash", hash) if hash else ()))
    network.send(name_of(queue), "--body", "ten boxes", *options)
    message = queue.receive(timeout=PATIENCE_S)
    found = message.describe()
    assert (found["body"], message.view.hop_count, found["sender_id"]) == ("ten boxes", 1, ANN)
    assert (found["authentication_level"], found["hash"], found["authenticated"]) == (level, hash or "sha512", True)
    assert (found["encrypted"], found["cipher"]) == (False, None)


@pytest.mark.parametrize("cipher", ["", "aes256", "aes192", "aes128"])
def test_an_encrypted_body_is_plain_at_its_destination(network: Network, cipher: str) -> None:
    queue = network.beta.queue(privacy="body")
    network.send(name_of(queue), "--body", "ten boxes", "--encrypt", *filter(None, [cipher]))
    found = received(queue)
    assert (found["body"], found["encrypted"], found["cipher"]) == ("ten boxes", True, cipher or "aes256")
    assert (found["authentication_level"], found["authenticated"]) == (0, False)


def test_a_transaction_is_signed_and_encrypted(network: Network) -> None:
    queue = network.beta.queue(authenticate=True, privacy="body", transactional=True)
    options = (*signing(network.ann), "--encrypt", "--transactional")
    network.send(name_of(queue), "--body", "ten boxes", "--count", "20", *options)
    for _ in range(20):
        found = received(queue)
        assert (found["body"], found["authentication_level"], found["cipher"]) == ("ten boxes", 3, "aes256")


def test_one_signature_serves_queues_of_two_managers(network: Network) -> None:
    queues = [peer.queue(authenticate=True) for peer in (network.beta, network.gamma, network.gamma)]
    network.send(",".join(map(name_of, queues)), "--body", "ten boxes", *signing(network.ann), "--encrypt")
    for queue in queues:
        found = received(queue)
        assert (found["body"], found["authentication_level"], found["cipher"]) == ("ten boxes", 5, "aes256")


def test_what_a_queue_holds_can_be_verified_from_a_file(network: Network, tmp_path: Path) -> None:
    queue, file = network.beta.queue(), tmp_path / "packets"
    network.send(name_of(queue), "--body", "ten boxes", *signing(network.ann), "--encrypt")
    queue.peek(timeout=PATIENCE_S)
    assert network.beta.run("export", queue.name, str(file)).code == 0
    for more, code in ((), 0), ((str(network.ann.certificate),), 0), ((str(network.bob.certificate),), 1):
        done = postroad("decode", str(file), "--json", "--verify", *more)
        assert done.code == code
        fits = {"profile": "listed", "signature": "2.0", "hash": "sha512"}
        assert done.objects[0]["verified"] == (None if code else fits)


# Refused


@pytest.mark.spec("QB-3.1.5.8.3-01", "QB-3.1.5.8.3-11", "DM-3.1.1.2-05", "DM-3.1.1.2-06")
@pytest.mark.parametrize(
    ("properties", "options", "sent_by", "reason", "message_class"),
    [
        ({"authenticate": True}, (), "", "not-authenticated", 0x8006),
        ({"authenticate": True}, ("--encrypt",), "", "not-authenticated", 0x8006),
        ({}, (), "bob", "certificate-not-registered", 0x8006),
        ({}, ("--hash", "sha1"), "ann", "hash-refused", 0x8006),
        ({}, ("--hash", "md5"), "ann", "hash-refused", 0x8006),
        ({"privacy": "body"}, (), "ann", "body-not-encrypted", 0x8007),
        ({"privacy": "none"}, ("--encrypt",), "", "body-encrypted", 0x8007),
        ({}, ("--encrypt", "rc4"), "", "cipher-refused", 0x8007),
        ({}, ("--encrypt", "rc2"), "", "cipher-refused", 0x8007),
    ],
)
def test_the_sender_of_a_refused_transaction_has_a_dead_letter_with_the_class(
    network: Network,
    properties: dict[str, Any],
    options: tuple[str, ...],
    sent_by: str,
    reason: str,
    message_class: int,
) -> None:
    before = network.beta.refused.get(reason, 0)
    queue = network.beta.queue(transactional=True, **properties)
    signed = signing(getattr(network, sent_by), BOB if sent_by == "bob" else ANN) if sent_by else ()
    network.send(name_of(queue), "--label", reason, "--transactional", "--dead-letter", *signed, *options)
    dead = received(network.alpha.manager.queue(";deadxact"))
    assert (dead["class"], dead["label"]) == (message_class, reason)
    assert network.beta.refused[reason] == before + 1
    assert queue.info().messages == 0


# Old algorithms


@pytest.mark.parametrize(
    ("options", "key", "word"),
    [
        (("--hash", "sha1"), "hash", "sha1"),
        (("--hash", "md5"), "hash", "md5"),
        (("--encrypt", "rc4"), "cipher", "rc4"),
        (("--encrypt", "rc2"), "cipher", "rc2"),
    ],
)
def test_an_old_algorithm_works_where_it_is_on(network: Network, options: tuple[str, ...], key: str, word: str) -> None:
    queue = network.gamma.queue()
    signed = signing(network.ann) if key == "hash" else ()
    network.send(name_of(queue), "--body", "ten boxes", *signed, *options)
    found = received(queue)
    assert (found["body"], found[key]) == ("ten boxes", word)
    (line,) = [each for each in network.gamma.process.log.splitlines() if f"algorithm={word}" in each]
    assert "an old algorithm is on" in line


def test_the_log_names_nothing_where_old_algorithms_are_off(network: Network) -> None:
    assert "old algorithm" not in network.beta.process.log


# On the way


def stored(peer: Peer) -> bytes:
    """Everything that a manager has on its disk."""
    return b"".join(each.read_bytes() for each in peer.data.rglob("*") if each.is_file())


@pytest.mark.spec("MQ-2.2.20.6-09")
def test_a_router_never_has_the_body(network: Network) -> None:
    """The label shows that the packet is on its disk. The message that is only signed shows that bodies are visible."""
    queue = network.beta.queue()
    name = name_of(queue)
    network.beta.kill()
    try:
        secret = ("--body", "a secret of two", "--label", "of-the-secret", *signing(network.ann), "--encrypt")
        network.send(name, "--recoverable", *secret)
        network.send(name, "--recoverable", "--body", "not a secret", *signing(network.ann))
        until(lambda: network.router.manager.queue(name).info().messages == 2)
        network.router.kill()
        network.router.start()
        kept = stored(network.router)
        assert "of-the-secret".encode("utf-16-le") in kept
        assert b"not a secret" in kept
        assert b"a secret of two" not in kept
    finally:
        network.beta.start()
    found = {each["body"]: each for each in (received(network.beta.manager.queue(queue.name)) for _ in range(2))}
    assert [found[each]["encrypted"] for each in ("a secret of two", "not a secret")] == [True, False]
    assert [each["authentication_level"] for each in found.values()] == [3, 3]


def test_a_copy_at_the_sender_stays_encrypted(network: Network) -> None:
    queue = network.beta.queue()
    network.send(name_of(queue), "--body", "a secret of two", "--recoverable", "--journal", "--encrypt")
    copy = received(network.alpha.manager.queue(";journal"))
    assert (copy["encrypted"], copy.get("body")) == (True, None)
    assert b"a secret of two" not in stored(network.alpha)
    assert received(queue)["body"] == "a secret of two"


class Load(threading.Thread):
    """Sends encrypted messages one after the other, to two queues in turn, until it is stopped."""

    def __init__(self, network: Network, plain: str, orders: str) -> None:
        super().__init__()
        self.sent: dict[str, list[str]] = {plain: [], orders: []}
        self._api = network.alpha.process.api
        self._orders = orders
        self._stopped = threading.Event()

    def run(self) -> None:
        with client.connect(self._api) as alpha:
            for number in count(1):
                for name, bodies in self.sent.items():
                    message = client.Message(f"{number}", recoverable=True, encrypt="")
                    alpha.queue(name).send(message, transactional=name == self._orders)
                    bodies.append(f"{number}")
                if self._stopped.wait(0.01):
                    break

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def session_keys(peer: Peer, queue: str) -> set[bytes]:
    """The encrypted session keys of the messages in a queue."""
    headers = [each.view.security_header for each in peer.manager.queue(queue).messages()]
    return {each.encryption_key for each in headers if each is not None}


def test_keys_rotated_and_a_kill_under_load_lose_and_double_nothing(network: Network) -> None:
    beta = network.beta
    plain, orders = beta.queue(privacy="body"), beta.queue(privacy="body", transactional=True)
    load = Load(network, name_of(plain), name_of(orders))
    load.start()
    try:
        until(lambda: plain.info().messages > 20)
        assert beta.run("keys", "rotate").code == 0
        at_rotation = plain.info().messages
        until(lambda: plain.info().messages > at_rotation + 20)  # alpha has the old keys
        beta.kill()
        beta.start()
        network.keys["beta"] = beta.public_keys
        network.write_enterprise()
        until(lambda: len(session_keys(beta, plain.name)) == 2)
    finally:
        load.stop()
    for queue, bodies in zip((plain, orders), load.sent.values(), strict=True):
        reader, found = beta.manager.queue(queue.name), list[str]()
        while len(found) < len(bodies):
            found += [each.text or "" for each in reader.receive_many(500, timeout=PATIENCE_S)]
        assert found == bodies if queue is orders else sorted(found) == sorted(bodies)
        with pytest.raises(PostroadError):
            reader.receive(timeout=0.5)
    assert beta.refused == {}


# Who may send and read


def test_an_access_list_counts_at_once_for_every_protocol(network: Network) -> None:
    beta = network.beta
    queue = beta.queue()

    def acl(*arguments: str) -> None:
        verb, *rest = arguments
        assert beta.run("queue", "acl", verb, queue.name, *rest).code == 0

    def accepted(*arguments: str) -> bool:
        """Whether a message of alpha reaches the queue."""
        messages, refused = queue.info().messages, beta.refused.get("access-denied", 0)
        network.send(*arguments)
        until(lambda: queue.info().messages > messages or beta.refused.get("access-denied", 0) > refused)
        return queue.info().messages > messages

    def may_write() -> dict[str, bool]:
        return {
            "unsigned": accepted(name_of(queue)),
            "signed": accepted(name_of(queue), *signing(network.ann)),
            "soap": accepted(rf"DIRECT=http://{HOSTS['beta']}:{HTTP}/msmq/{queue.name}".replace("\\", "/")),
            "api": beta.run("send", queue.name, user="ann").code == 0,
        }

    def may_read() -> list[bool]:
        rpc = beta.process.ready["listen"]["rpc"]
        variables = {"POSTROAD_USER": "ann", "POSTROAD_PASSWORD": PASSWORD}
        remote = postroad("remote", "peek", rpc, queue.name, "--timeout", "0", variables=variables)
        return [remote.code == 0, beta.run("peek", queue.name, "--timeout", "0", user="ann").code == 0]

    assert may_write() == {"unsigned": True, "signed": True, "soap": True, "api": True}
    assert may_read() == [False, False]
    acl("grant", "ann", "peek")
    assert may_read() == [True, True]
    acl("deny", "ann", "peek", "write")
    assert may_read() == [False, False]
    assert may_write() == {"unsigned": True, "signed": False, "soap": True, "api": False}
    acl("revoke", "ann", "peek", "write")
    acl("grant", "ann", "write")
    acl("revoke", "everyone", "write")
    acl("revoke", "anonymous", "write")  # the default list has an entry for each
    assert may_write() == {"unsigned": False, "signed": True, "soap": False, "api": True}
    acl("grant", "anonymous", "write")
    assert may_write() == {"unsigned": True, "signed": True, "soap": False, "api": True}


# By hand


class Line:
    """A session of somebody who writes packets by hand."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._source = uuid4()
        self._ids = count(1)
        self._socket = socket.create_connection((HOSTS[peer.name], BINARY), PATIENCE_S)
        for packet in EstablishConnection(self._source, NULL_GUID, 1), ConnectionParameters(500, 120_000, 64):
            self._socket.sendall(packet.encode())
            framer = Framer()
            while not framer.feed(self._socket.recv(65536)):
                pass

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def compose(self, queue: client.Queue, **properties: Any) -> bytes:
        composer = Composer(self._source, parse_format_name(name_of(queue)), manager=IDS[self._peer.name])
        return composer.compose(Message("ten boxes " * 4, **properties), next(self._ids), int(time.time()))

    def send(self, packet: bytes) -> None:
        self._socket.sendall(packet)


@pytest.mark.spec("QB-3.1.5.8.3-23")
@pytest.mark.parametrize("claimed", [False, True])
def test_the_sid_of_an_unsigned_message_counts_only_where_it_is_believed(network: Network, claimed: bool) -> None:
    peer = network.gamma if claimed else network.beta
    queue = peer.queue()
    queue.set_acl(f"O:{ANN}G:{ANN}D:(A;;0x4;;;{ANN})(A;;0x4;;;{BOB})")
    before = peer.refused.get("access-denied", 0)
    with Line(peer) as line:
        for sid in (ANN, BOB, "S-1-5-21-1-2-3-1003"):
            header = SecurityHeader(SenderIdType.SID | SecurityFlags.SECURITY_DATA, Sid.parse(sid).encode())
            line.send(with_security(MessageView(line.compose(queue, label=sid)), header))
        until(lambda: queue.info().messages + peer.refused.get("access-denied", 0) - before == 3)
    found = list(queue.messages())
    assert [each.label for each in found] == ([ANN, BOB] if claimed else [])
    assert not any(each.describe()["authenticated"] for each in found)


def flipped(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def damaged(packet: bytes, elsewhere: bytes) -> dict[str, bytes]:
    """Encrypted packets, each wrong in one way. `elsewhere` is encrypted with another manager's keys."""
    message = UserMessage.decode(packet)
    security, size = message.security, message.properties.message_size
    assert security is not None
    assert size is not None
    key, body = security.encryption_key, message.properties.body

    def with_key(data: bytes) -> bytes:
        return replace(message, security=replace(security, encryption_key=data, padding=b"")).encode()

    def with_properties(**fields: Any) -> bytes:
        return replace(message, properties=replace(message.properties, **fields)).encode()

    return {
        "first octet of the key": with_key(flipped(key, 12)),
        "last octet of the key": with_key(flipped(key, -1)),
        "header of the key": with_key(flipped(key, 0)),
        "cipher in the key": with_key(key[:4] + (0x660E).to_bytes(4, "little") + key[8:]),
        "key cut": with_key(key[:-1]),
        "key of zeros": with_key(key[:12] + bytes(len(key) - 12)),
        "no key": with_key(b""),
        "another manager's key": elsewhere,
        "padding": with_properties(body=flipped(body, -17)),
        "first block": with_properties(body=body[16:], message_size=30),
        "last octet": with_properties(body=body[:-1]),
        "no body": with_properties(body=b"", message_size=0),
        "length": with_properties(message_size=size + 1),
        "another cipher": with_properties(encryption_algorithm=0x660F),
        "refused cipher": with_properties(encryption_algorithm=0x6801),
        "unknown cipher": with_properties(encryption_algorithm=0x7777),
        "another level": with_properties(privacy_level=3),
        "unknown level": with_properties(privacy_level=9),
    }


@pytest.mark.spec("QB-3.1.5.8.3-13", "QB-3.1.5.8.3-21", "MQ-2.2.19.3-23", "MQ-2.2.19.3-28")
@pytest.mark.parametrize("known", [False, True], ids=["new session key", "known session key"])
def test_the_answer_is_the_same_whatever_is_wrong_with_an_encrypted_message(network: Network, known: bool) -> None:
    beta = network.beta
    queue, admin = beta.queue(), beta.queue()
    before = sum(beta.refused.values())
    asked = {"ack": "full", "admin_queue": name_of(admin)}

    def sealed(line: Line, keys: bytes) -> bytes:
        packet = Sealer(secrets.token_bytes).seal(line.compose(queue, **asked), keys, "aes256", 0)
        assert isinstance(packet, bytes)
        return packet

    public_keys = bytes.fromhex(beta.public_keys)
    with Line(beta) as line:
        right = sealed(line, public_keys)
        if known:
            line.send(right)
            assert received(queue)["body"] == "ten boxes " * 4
            assert [received(admin)["class"] for _ in range(2)] == [MessageClass.ACK_REACH_QUEUE, 0x4000]
        wrong = damaged(right, sealed(line, RING.public_keys))
        for number, packet in enumerate(wrong.values(), 100):
            user = UserMessage.decode(packet).user
            line.send(replace(UserMessage.decode(packet), user=replace(user, message_id=number)).encode())
        until(lambda: sum(beta.refused.values()) - before == len(wrong))
        answers = [received(admin) for _ in wrong]
    assert queue.info().messages == 0
    assert {each["class"] for each in answers} == {MessageClass.NACK_BAD_ENCRYPTION}
    assert {each["correlation_id"].rpartition("\\")[2] for each in answers} == {f"{100 + n}" for n in range(len(wrong))}
    own = ("id", "lookup_id", "correlation_id", "sent_at", "arrived_at")
    texts = [{key: value for key, value in each.items() if key not in own} for each in answers]
    assert all(each == texts[0] for each in texts)
