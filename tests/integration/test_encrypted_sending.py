"""Encrypted messages between servers with real sockets. Keys come from the directory, and rotate or restart
meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import current_thread
from typing import TypeVar
from uuid import UUID

import pytest

import postroad as client
from postroad.config import load_configuration
from postroad.describe.received import ReceivedMessage
from postroad.errors import NotEncrypted
from postroad.manager import Manager
from postroad.message import Message
from postroad.security.guard import arrived_encrypted
from postroad.security.keys import MAX_PREVIOUS
from postroad.server.server import Server
from postroad.wire.view import MessageView
from tests.commands import ServerProcess, postroad

T = TypeVar("T")
PATIENCE_S = 30
HOSTS = {"alpha": "127.0.20.62", "beta": "127.0.20.63"}
IDS = {"alpha": UUID(int=0xA), "beta": UUID(int=0xB)}
PORT = 11862
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {port}
ping = false
http = false
rpc = false
api = false
[binary]
retry_connect_s = 0.05
[directory]
file = "enterprise.toml"
poll_s = 0.05
[peers]
"{alpha}" = {{ binary = {port} }}
"{beta}" = {{ binary = {port} }}
[[queue]]
path = 'private$\\orders'
[[queue]]
path = 'private$\\wanted'
transactional = true
"""


def write_enterprise(directory: Path, keys: dict[str, str]) -> None:
    text = '[[site]]\nname = "london"\n'
    for name, host in HOSTS.items():
        text += f'[[manager]]\nname = "{name}"\nid = "{IDS[name]}"\naddress = "{host}"\nsites = ["london"]\n'
        text += f'public_keys = "{keys[name]}"\n' if keys.get(name) else ""
    text += f"[[queue]]\npath = 'beta\\public'\nid = \"{UUID(int=0xB1)}\"\n"
    new = directory / "enterprise.new"
    new.write_text(text)
    new.replace(directory / "enterprise.toml")


@asynccontextmanager
async def running(directory: Path, name: str) -> AsyncIterator[Manager]:
    file = directory / f"{name}.toml"
    file.write_text(CONFIGURATION.format(name=name, host=HOSTS[name], port=PORT, **HOSTS))
    server = Server(load_configuration(file))
    await server.start()
    try:
        yield server.manager
    finally:
        await server.stop()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110  (it watches another task)
            await asyncio.sleep(0.02)


def knows(manager: Manager, name: str, public_keys: str) -> bool:
    entry = manager.router.directory.manager(IDS[name])
    return entry is not None and entry.public_encryption_keys.hex() == public_keys


def with_both(directory: Path, body: Callable[[Manager, Manager], Awaitable[T]], *, publish: bool = True) -> T:
    """alpha and beta. With `publish`, alpha knows beta's keys."""

    async def run() -> T:
        write_enterprise(directory, {})
        async with running(directory, "alpha") as alpha, running(directory, "beta") as beta:
            if publish:
                await published(directory, alpha, beta)
            return await body(alpha, beta)

    return asyncio.run(run())


async def published(directory: Path, alpha: Manager, beta: Manager) -> None:
    keys = beta.keys.describe().public_keys
    write_enterprise(directory, {"beta": keys})
    await until(lambda: knows(alpha, "beta", keys))


def orders(manager: Manager) -> str:
    return manager.queue("private$\\orders").format_name


async def received(manager: Manager, queue: str = "private$\\orders") -> ReceivedMessage:
    (message,) = await manager.reads.receive(queue, 1, PATIENCE_S)
    return message


def waiting(manager: Manager) -> list[bytes]:
    """The packets in all outgoing queues."""
    return [each.packet for queue in manager.core.queues.outgoing.values() for each in queue.everything()]


async def refused_sending(manager: Manager, destination: str) -> str:
    """Why the manager does not send an encrypted message to this destination."""
    with pytest.raises(NotEncrypted) as caught:
        await manager.send(destination, [Message("ten boxes", encrypt="")])
    return str(caught.value)


@pytest.mark.spec("QB-3.1.7.1.5-01", "QB-3.1.7.1.5-03", "QB-3.1.7.1.5-05", "QB-5.1-01")
@pytest.mark.parametrize(
    ("cipher", "number"), [("", 0x6610), ("aes256", 0x6610), ("aes192", 0x660F), ("aes128", 0x660E)]
)
def test_an_encrypted_message_arrives_and_can_be_read(tmp_path: Path, cipher: str, number: int) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        await alpha.send(orders(beta), [Message("ten boxes", encrypt=cipher)])
        message = await received(beta)
        assert message.text == "ten boxes"
        assert arrived_encrypted(message.view)
        assert message.view.encryption_algorithm == number

    with_both(tmp_path, body)


def test_public_queues_lists_and_transactions_carry_encrypted_messages(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        public = f"PUBLIC={UUID(int=0xB1)}"
        await alpha.send(f"{public},{orders(beta)}", [Message("twice", encrypt="")])
        wanted = beta.queue("private$\\wanted").format_name
        await alpha.send_transactional(wanted, [Message(f"{number}", encrypt="") for number in range(3)])
        found = [await received(beta, "beta\\public"), await received(beta)]
        found += [await received(beta, "private$\\wanted") for _ in range(3)]
        assert [each.text for each in found] == ["twice", "twice", "0", "1", "2"]
        assert all(arrived_encrypted(each.view) for each in found)

    with_both(tmp_path, body)


def test_only_ciphertext_waits_while_the_peer_is_down(tmp_path: Path) -> None:
    """It survives a restart of both."""

    async def run() -> None:
        write_enterprise(tmp_path, {})
        async with running(tmp_path, "alpha") as alpha, running(tmp_path, "beta") as beta:
            await published(tmp_path, alpha, beta)
            name = orders(beta)
        async with running(tmp_path, "alpha") as alpha:
            await alpha.send(name, [Message("ten boxes", encrypt="", recoverable=True)])
            (packet,) = waiting(alpha)
            assert MessageView(packet).encrypted
            assert "ten boxes".encode("utf-16-le") not in packet
        async with running(tmp_path, "beta") as beta, running(tmp_path, "alpha"):
            assert (await received(beta)).text == "ten boxes"

    asyncio.run(run())


@pytest.mark.spec("QB-3.1.7.1.5-11", "QB-3.1.7.1.5-12", "QB-3.1.7.1.5-15")
def test_session_keys_are_made_in_another_thread_and_used_again(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        sealer, loop_thread = alpha.core.protection.sealer, current_thread()
        threads, random_bytes = [], sealer._random_bytes

        def recorded(size: int) -> bytes:
            threads.append(current_thread())
            return random_bytes(size)

        sealer._random_bytes = recorded
        for _ in range(2):
            await alpha.send(orders(beta), [Message("x", encrypt="")])
        assert threads
        assert loop_thread not in threads
        assert len(sealer.session_keys) == 1
        headers = [(await received(beta)).view.security_header for _ in range(2)]
        assert len({each.encryption_key for each in headers if each is not None}) == 1

    with_both(tmp_path, body)


def test_rotation_while_messages_are_on_their_way_loses_none(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        name, sent = orders(beta), list[str]()

        async def send() -> None:
            for number in range(60):
                sent.append(f"{number}")
                await alpha.send(name, [Message(sent[-1], encrypt="", recoverable=True)])
                alpha.core.protection.sealer.session_keys.clear()  # a new session key for each

        sending = asyncio.create_task(send())
        for _ in range(MAX_PREVIOUS):
            await beta.keys.rotate()  # alpha still has the first keys
        await published(tmp_path, alpha, beta)
        await beta.keys.rotate()
        await sending
        assert [(await received(beta)).text for _ in sent] == sent
        assert [each.previous for each in beta.keys.describe().keys] == [MAX_PREVIOUS, MAX_PREVIOUS]

    with_both(tmp_path, body)


def test_a_message_for_keys_that_are_gone_is_refused_and_counted(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        for _ in range(MAX_PREVIOUS + 1):
            await beta.keys.rotate()
        await alpha.send(orders(beta), [Message("too late", encrypt="")])
        await until(lambda: bool(beta.info().messages_refused))
        assert beta.info().messages_refused == {"not-decrypted": 1}
        assert beta.queue("private$\\orders").messages == 0

    with_both(tmp_path, body)


@pytest.mark.spec("QB-3.1.3.2-19", "QB-3.1.7.1.5-03", "QB-3.1.7.1.5-20", "QB-3.1.7.1.5.1-01", "QB-3.1.7.1.5.1-02")
def test_a_peer_without_published_keys_gets_nothing_until_they_are(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        fault = await refused_sending(alpha, orders(beta))
        assert "set public_keys of that [[manager]] to what `postroad keys show` prints there" in fault
        assert not waiting(alpha)
        await published(tmp_path, alpha, beta)
        await alpha.send(orders(beta), [Message("ten boxes", encrypt="")])
        assert (await received(beta)).text == "ten boxes"

    with_both(tmp_path, body, publish=False)


@pytest.mark.spec("QB-3.1.7.1.5-02", "QB-5.1-02")
@pytest.mark.parametrize("name", [rf"DIRECT=TCP:{HOSTS['beta']}\private$\orders", r"beta\private$\orders"])
def test_a_direct_name_gets_nothing(tmp_path: Path, name: str) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        assert "a direct name does not say which manager's key to use" in await refused_sending(alpha, name)
        assert not waiting(alpha)

    with_both(tmp_path, body)


@pytest.mark.spec("QB-3.1.7.1.5.1-03")
@pytest.mark.parametrize("transactional", [False, True])
def test_what_could_not_be_encrypted_is_a_dead_letter_if_it_asks(tmp_path: Path, transactional: bool) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        message = Message("ten boxes", encrypt="", dead_letter=True, recoverable=True)
        send = alpha.send_transactional if transactional else alpha.send
        with pytest.raises(NotEncrypted):
            await send(orders(beta), [message])
        kept = "system$;deadxact" if transactional else "system$;deadletter"
        other = "system$;deadletter" if transactional else "system$;deadxact"
        assert (await received(alpha, kept)).text == "ten boxes"
        assert alpha.queue(other).messages == 0
        await refused_sending(alpha, orders(beta))
        assert alpha.queue(kept).messages == 0
        assert not waiting(alpha)

    with_both(tmp_path, body, publish=False)


@pytest.mark.spec("QB-3.1.7.1.5.1-04")
def test_the_history_of_the_outgoing_queue_has_the_failure(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        await alpha.send(orders(beta), [Message("clear")])
        await received(beta)
        await refused_sending(alpha, orders(beta))
        attempt = alpha.queue(orders(beta)).history[-1]
        assert attempt["status"] == "invalid server certificate"
        assert attempt["error"] == 0xE00E0003

    with_both(tmp_path, body, publish=False)


@pytest.mark.spec("DM-3.1.1.2-06", "MQ-2.3.1.12-01")
@pytest.mark.parametrize("privacy", ["none", "optional", "body"])
@pytest.mark.parametrize("encrypt", [None, ""])
def test_a_queue_takes_the_bodies_of_its_privacy_level(tmp_path: Path, privacy: str, encrypt: str | None) -> None:
    refused = {("none", ""): "body-encrypted", ("body", None): "body-not-encrypted"}.get((privacy, encrypt))

    async def body(alpha: Manager, beta: Manager) -> None:
        await beta.set_queue("private$\\orders", privacy=privacy)
        await alpha.send(orders(beta), [Message("ten boxes", encrypt=encrypt)])
        if refused is None:
            assert (await received(beta)).text == "ten boxes"
        else:
            await until(lambda: bool(beta.info().messages_refused))
            assert beta.queue("private$\\orders").messages == 0
        assert beta.info().messages_refused == ({} if refused is None else {refused: 1})

    with_both(tmp_path, body)


@pytest.mark.spec("DM-3.1.1.2-05", "MQ-2.3.1.11-01")
def test_encryption_is_no_authentication(tmp_path: Path) -> None:
    async def body(alpha: Manager, beta: Manager) -> None:
        await beta.set_queue("private$\\orders", authenticate=True)
        await alpha.send(orders(beta), [Message("ten boxes", encrypt="")])
        await until(lambda: bool(beta.info().messages_refused))
        assert beta.info().messages_refused == {"not-authenticated": 1}
        assert beta.queue("private$\\orders").messages == 0

    with_both(tmp_path, body)


def test_nothing_is_lost_if_the_receiver_is_killed_after_a_rotation(tmp_path: Path) -> None:
    """beta is a process of its own. alpha still uses the keys from before the rotation."""

    def start() -> ServerProcess:
        return ServerProcess(file)

    async def run() -> None:
        server = await asyncio.to_thread(start)
        try:
            (shown,) = (await asyncio.to_thread(postroad, "keys", "show", "--json", api=server.api)).objects
            queue = await asyncio.to_thread(postroad, "queue", "show", "private$\\orders", "--json", api=server.api)
            name = queue.objects[0]["format_name"]
            write_enterprise(tmp_path, {"beta": shown["public_keys"]})
            sent = [f"{number}" for number in range(40)]
            async with running(tmp_path, "alpha") as alpha:
                for number, text in enumerate(sent):
                    await alpha.send(name, [Message(text, encrypt="", recoverable=True)])
                    if number in (10, 25):
                        done = await asyncio.to_thread(postroad, "keys", "rotate", api=server.api)
                        assert done.code == 0, done.errors
                        server.end(signal.SIGKILL)
                        server = await asyncio.to_thread(start)
                found: list[str] = []
                with await asyncio.to_thread(client.connect, server.api) as beta:
                    receive = beta.queue("private$\\orders").receive_many
                    while len(found) < len(sent):
                        messages = await asyncio.to_thread(receive, 40, timeout=PATIENCE_S)
                        found += [each.text or "" for each in messages]
            assert sorted(found) == sorted(sent)
        finally:
            server.close()

    write_enterprise(tmp_path, {})
    file = tmp_path / "beta.toml"
    file.write_text(
        CONFIGURATION.format(name="beta", host=HOSTS["beta"], port=PORT, **HOSTS).replace("api = false", "api = 0")
    )
    asyncio.run(run())
