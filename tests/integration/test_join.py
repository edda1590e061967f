"""`postroad serve` with publish = true in a real domain: the join, what others see of it, and what a restart finds."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from postroad.config import load_configuration
from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, Scope, connect
from postroad.errors import ConfigurationError, DirectoryError, LdapError, QueueNotFound
from postroad.manager.publishing import NOTIFY_QUOTA_KB, REFRESH_S, RETRY_S
from postroad.message import Message
from postroad.names.format import NOTIFY_QUEUE
from postroad.security.keys import peer_keys
from postroad.server.server import Server
from postroad.wire.change_notifications import ChangeEvent, ChangeNotification
from tests.domain import ADMINISTRATOR, BASE, CONFIGURATION, PASSWORD, Controller

COMPUTERS = f"CN=Computers,{BASE}"
PATIENCE_S = 60
CONFIGURATION_FILE = """
[manager]
name = "{name}"
[listen]
host = "{address}"
ping = false
rpc = false
api = false
[directory]
ldap = "{ldaps}"
user = "{user}"
password_file = "password"
ca_certificates = "{authority}"
publish = {publish}
refresh_s = {refresh_s}
online_s = 1
{more}
"""


@dataclass
class Place:
    """A directory with the configuration of one manager, and its computer in the domain."""

    directory: Path
    controller: Controller
    name: str
    address: str

    def server(
        self, more: str = "", *, publish: bool = True, user: str = ADMINISTRATOR, refresh_s: float = 0.05
    ) -> Server:
        file = self.directory / "postroad.toml"
        file.write_text(
            CONFIGURATION_FILE.format(
                name=self.name,
                address=self.address,
                ldaps=self.controller.ldaps,
                authority=self.controller.ca_certificates,
                publish=str(publish).lower(),
                refresh_s=refresh_s,
                user=user,
                more=more,
            )
        )
        (self.directory / "password").write_text(PASSWORD)
        return Server(load_configuration(file))

    @property
    def dn(self) -> str:
        return f"CN=msmq,CN={self.name},{COMPUTERS}"


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Server]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():  # noqa: ASYNC110  (nothing tells when)
            await asyncio.sleep(0.02)


@pytest.fixture
def directory(domain_controller: Controller, tmp_path: Path) -> Iterator[LdapConnection]:
    with administration(domain_controller, tmp_path) as connection:
        yield connection


def administration(controller: Controller, place: Path) -> LdapConnection:
    (place / "password").write_text(PASSWORD)
    return connect(
        LdapSettings(
            servers=(controller.ldaps,),
            user=ADMINISTRATOR,
            password_file=place / "password",
            ca_certificates=controller.ca_certificates,
        )
    )


_addresses = iter(range(1, 250))


def make_place(controller: Controller, directory: LdapConnection, parent: Path) -> Place:
    """A new computer of the domain, with an address of its own."""
    name = f"pc{uuid4().hex[:8]}"
    process = os.getpid()
    address = f"127.{128 + (process >> 8) % 64}.{process % 256}.{next(_addresses)}"
    values = {"objectClass": ["computer"], "sAMAccountName": [f"{name}$"], "userAccountControl": ["4096"]}
    directory.add(f"CN={name},{COMPUTERS}", {**values, "dNSHostName": [address]})
    (parent / name).mkdir()
    return Place(parent / name, controller, name, address)


@pytest.fixture
def place(domain_controller: Controller, directory: LdapConnection, tmp_path: Path) -> Place:
    return make_place(domain_controller, directory, tmp_path)


def queues_there(directory: LdapConnection, place: Place) -> dict[str, UUID]:
    found = directory.search(
        place.dn, names.equals("objectClass", "mSMQQueue"), ["cn", "objectGUID"], scope=Scope.CHILDREN
    )
    return {(each.first("cn") or b"").decode(): UUID(bytes_le=each.first("objectguid") or b"") for each in found}


def test_a_join_gives_the_manager_its_id_and_keeps_it(directory: LdapConnection, place: Place) -> None:
    async def run() -> None:
        async with running(place.server()) as server:
            entry = directory.read(place.dn, ["objectGUID", "mSMQEncryptKey"])
            assert entry is not None
            assert server.manager.identifier.bytes_le == entry.first("objectguid")
            assert peer_keys(entry.first("msmqencryptkey") or b"")
            own = server.manager.router.directory.manager(server.manager.identifier)
            assert own is not None
            assert own.computer_name == place.name
            first = server.manager.identifier
            await server.manager.create_queue(r".\orders")
        async with running(place.server()) as server:
            assert server.manager.identifier == first

    asyncio.run(run())


def test_a_check_writes_nothing(directory: LdapConnection, place: Place) -> None:
    asyncio.run(place.server().check())
    assert directory.read(place.dn, ["cn"]) is None


@pytest.mark.parametrize("checks", [True, False], ids=["check", "start"])
def test_a_manager_with_queues_cannot_take_another_id(directory: LdapConnection, place: Place, checks: bool) -> None:
    async def run() -> None:
        async with running(place.server(publish=False)) as server:
            await server.manager.create_queue(r"private$\own")
        server = place.server()
        with pytest.raises(ConfigurationError, match="definitions export"):
            await (server.check() if checks else server.start())
        assert directory.read(place.dn, ["cn"]) is None

    asyncio.run(run())


def test_a_manager_without_queues_may_take_another_id(directory: LdapConnection, place: Place) -> None:
    async def run() -> None:
        async with running(place.server(publish=False)) as server:
            first = server.manager.identifier
        async with running(place.server()) as server:
            assert server.manager.identifier != first

    asyncio.run(run())


def test_a_copied_data_directory_is_refused(
    domain_controller: Controller, directory: LdapConnection, place: Place, tmp_path: Path
) -> None:
    """Two computers must not be one manager."""
    other = make_place(domain_controller, directory, tmp_path)

    async def run() -> None:
        async with running(place.server()) as server:
            await server.manager.create_queue(r".\orders")
        (other.directory / "data").mkdir()
        os.rename(place.directory / "data" / place.name, other.directory / "data" / other.name)
        with pytest.raises(ConfigurationError, match="another computer"):
            await other.server().start()

    asyncio.run(run())


def test_an_account_without_rights_cannot_join(domain_controller: Controller, place: Place) -> None:
    user = f"u{uuid4().hex[:8]}"
    domain_controller.add_user(user)

    async def run() -> None:
        with pytest.raises(ConfigurationError, match=r"directory.publish.*directory check"):
            await place.server(user=f"{user}@POSTROAD.TEST").start()

    asyncio.run(run())


def test_others_find_a_public_queue_by_id_and_by_path_and_encrypt_for_it(
    domain_controller: Controller, directory: LdapConnection, place: Place, tmp_path: Path
) -> None:
    other = make_place(domain_controller, directory, tmp_path)
    site = directory.read(f"CN=Default-First-Site-Name,CN=Sites,{CONFIGURATION}", ["objectGUID"])
    assert site is not None
    directory.add(other.dn, {"objectClass": ["mSMQConfiguration"], "mSMQSites": [site.first("objectguid") or b""]})

    async def run() -> None:
        async with running(place.server()) as one, running(other.server(publish=False)) as two:
            queue = await one.manager.create_queue(r".\orders", privacy="body")
            await until(lambda: two.manager.router.directory.queue(UUID(queue.id)))
            for target in (f"PUBLIC={queue.id}", rf"{place.name}\orders"):
                await two.manager.send(target, [Message(target, encrypt="")])
            await until(lambda: one.manager.queue(r".\orders").messages == 2)

            # new keys reach the other manager
            old = one.manager.keys.describe().public_keys
            keys = (await one.manager.keys.rotate()).public_keys
            assert keys != old
            await until(lambda: two.manager.router.public_keys(one.manager.identifier).hex() == keys)
            await two.manager.send(f"PUBLIC={queue.id}", [Message(b"third", encrypt="")])
            await until(lambda: one.manager.queue(r".\orders").messages == 3)

    asyncio.run(run())


def test_what_changes_in_the_directory_changes_here(directory: LdapConnection, place: Place) -> None:
    async def run() -> None:
        async with running(place.server()) as server:
            manager = server.manager
            await manager.create_queue(r".\orders", label="Orders", journal_quota_kb=None, abort_limit=3)
            directory.modify(f"CN=orders,{place.dn}", {"mSMQLabelEx": ["changed"], "mSMQQueueQuota": ["17"]})
            await until(lambda: manager.queue(r".\orders").quota_kb == 17)
            info = manager.queue(r".\orders")
            assert (info.label, info.abort_limit) == ("changed", 3)
            directory.add(f"CN=made there,{place.dn}", {"objectClass": ["mSMQQueue"], "mSMQTransactional": ["TRUE"]})
            await until(lambda: any(each.path.endswith("made there") for each in manager.queues()))
            assert manager.queue(r".\made there").transactional

    asyncio.run(run())


def test_a_queue_that_is_deleted_in_the_directory_keeps_its_messages(
    directory: LdapConnection, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(place.server()) as server:
            await server.manager.create_queue(r".\orders")
            await server.manager.send(r".\orders", [Message(b"kept")])
            await until(lambda: server.manager.router.directory.queues_of(server.manager.identifier))
            directory.delete(f"CN=orders,{place.dn}")
            await until(lambda: "the directory does not have this public queue" in caplog.text)
            assert server.manager.queue(r".\orders").messages == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_queues_come_and_go_while_the_directory_is_read(directory: LdapConnection, place: Place) -> None:
    """A directory that was read a moment ago brings back nothing that was deleted or changed since."""

    async def run() -> None:
        async with running(place.server()) as server:
            manager = server.manager
            for number in range(15):
                info = await manager.create_queue(r".\orders", label=f"before {number}")
                await manager.set_queue(r".\orders", label=f"after {number}")
                assert manager.queue(r".\orders").id == info.id
                await asyncio.sleep(0.03)
                assert manager.queue(r".\orders").label == f"after {number}"
                await manager.delete_queue(r".\orders")
                await asyncio.sleep(0.03)
                with pytest.raises(QueueNotFound):
                    manager.queue(r".\orders")
            assert queues_there(directory, place) == {}

    asyncio.run(run())


def test_a_configured_public_queue_is_published(directory: LdapConnection, place: Place) -> None:
    table = "[[queue]]\npath = '.\\orders'\nlabel = '{}'\ntransactional = true\n"

    async def run() -> None:
        async with running(place.server(table.format("first"))) as server:
            assert queues_there(directory, place)["orders"] == UUID(server.manager.queue(r".\orders").id)
        async with running(place.server(table.format("second"))) as server:
            assert server.manager.queue(r".\orders").label == "second"
            entry = directory.read(f"CN=orders,{place.dn}", ["mSMQLabelEx"])
            assert entry is not None
            assert entry.first("msmqlabelex") == b"second"

    asyncio.run(run())


def test_a_notification_makes_the_refresh_run_now(directory: LdapConnection, place: Place) -> None:
    async def run() -> None:
        async with running(place.server(refresh_s=86_400)) as server:
            manager = server.manager
            directory.add(f"CN=orders,{place.dn}", {"objectClass": ["mSMQQueue"]})
            identifier = queues_there(directory, place)["orders"]
            notification = ChangeNotification(ChangeEvent.QUEUE_CREATION, identifier, "dc1")
            tell(manager, notification.encode())
            await until(lambda: any(each.id == str(identifier) for each in manager.queues()))

    asyncio.run(run())


def test_another_manager_can_send_notifications(
    domain_controller: Controller, directory: LdapConnection, place: Place, tmp_path: Path
) -> None:
    """They arrive in the notification queue, which an application cannot use."""
    other = make_place(domain_controller, directory, tmp_path)

    async def run() -> None:
        async with running(place.server(refresh_s=86_400)) as one, running(other.server()) as two:
            directory.add(f"CN=orders,{place.dn}", {"objectClass": ["mSMQQueue"]})
            identifier = queues_there(directory, place)["orders"]
            body = ChangeNotification(ChangeEvent.QUEUE_CREATION, identifier, "dc1").encode()
            await two.manager.send(rf"DIRECT=TCP:{place.address}\{NOTIFY_QUEUE}", [Message(body)])
            await until(lambda: any(each.id == str(identifier) for each in one.manager.queues()))
            assert one.manager.queue(NOTIFY_QUEUE).quota_kb == NOTIFY_QUOTA_KB  # whoever fills it fills no more

    asyncio.run(run())


def test_nobody_sends_notifications_to_a_manager_that_does_not_publish(
    domain_controller: Controller, directory: LdapConnection, place: Place, tmp_path: Path
) -> None:
    other = make_place(domain_controller, directory, tmp_path)

    async def run() -> None:
        async with running(place.server(publish=False)) as one, running(other.server()) as two:
            body = ChangeNotification(ChangeEvent.QUEUE_CREATION, uuid4(), "dc1").encode()
            await two.manager.send(rf"DIRECT=TCP:{place.address}\{NOTIFY_QUEUE}", [Message(body)])
            await until(lambda: one.manager.info().messages_refused)
            assert one.manager.queue(NOTIFY_QUEUE).messages == 0

    asyncio.run(run())


@pytest.fixture
def away(new_controller: Callable[[], Controller]) -> Controller:
    controller = new_controller()
    controller.start()
    return controller


def test_a_manager_that_has_joined_starts_without_the_directory(away: Controller, tmp_path: Path) -> None:
    with administration(away, tmp_path) as directory:
        place = make_place(away, directory, tmp_path)

    async def run() -> None:
        table = "[[queue]]\npath = '.\\later'\n"
        async with running(place.server()) as server:
            first = server.manager.identifier
            info = await server.manager.create_queue(r".\orders")
        away.stop()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(running(place.server(table)))
            assert server.manager.identifier == first
            assert server.manager.queue(r".\orders").id == info.id
            with pytest.raises(DirectoryError):
                await server.manager.create_queue(r".\more")
            with pytest.raises(DirectoryError, match="deleted here"):
                await server.manager.delete_queue(r".\orders")
            away.start()
            server.manager.publishing.wake()  # type: ignore[union-attr]
            with administration(away, tmp_path) as directory:
                await until(lambda: not queues_there(directory, place))
            await server.manager.create_queue(r".\more")

    asyncio.run(run())


@pytest.mark.spec("DM-3.1.7.1.18-02")
@pytest.mark.parametrize("act", ["create", "change", "delete"])
def test_a_write_that_nobody_answers_takes_the_directory_offline(away: Controller, tmp_path: Path, act: str) -> None:
    with administration(away, tmp_path) as directory:
        place = make_place(away, directory, tmp_path)

    async def run() -> None:
        async with running(place.server(refresh_s=86_400)) as server:
            manager, watch = server.manager, server.manager.watch
            assert watch is not None
            started = manager.clock()
            await manager.create_queue(r".\orders")
            await until(lambda: watch.read_at_s >= started)  # its notification; the next one has to wait a minute
            assert watch.online
            away.stop()
            acts: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
                "create": lambda: manager.create_queue(r".\more"),
                "change": lambda: manager.set_queue(r".\orders", label="x"),
                "delete": lambda: manager.delete_queue(r".\orders"),
            }
            with pytest.raises(LdapError):
                await acts[act]()
            async with asyncio.timeout(REFRESH_S / 2):
                await until(lambda: not watch.online)
            assert manager.info().directory_error

    asyncio.run(run())


@pytest.mark.spec("DM-3.1.3-05")
def test_a_manager_whose_object_was_deleted_does_not_start(directory: LdapConnection, place: Place) -> None:
    async def run() -> None:
        async with running(place.server()) as server:
            await server.manager.create_queue(r"private$\own")
        directory.delete(place.dn)
        with pytest.raises(ConfigurationError, match="has no object for it"):
            await place.server().start()
        assert directory.read(place.dn, ["cn"]) is None

    asyncio.run(run())


@pytest.mark.spec("DM-3.1.3-02")
def test_a_new_manager_is_in_the_configured_site(directory: LdapConnection, place: Place) -> None:
    site = f"CN=site-{place.name},CN=Sites,{CONFIGURATION}"
    directory.add(site, {"objectClass": ["site"]})
    entry = directory.read(site, ["objectGUID"])
    assert entry is not None

    async def run() -> None:
        async with running(place.server(f"site = 'site-{place.name}'")) as server:
            own = server.manager.router.directory.manager(server.manager.identifier)
            assert own is not None
            assert [each.bytes_le for each in own.site_identifier_list] == [entry.first("objectguid")]

    asyncio.run(run())
    assert RETRY_S == 120


def test_a_first_join_needs_the_directory(away: Controller, tmp_path: Path) -> None:
    with administration(away, tmp_path) as directory:
        place = make_place(away, directory, tmp_path)
    away.stop()
    with pytest.raises(ConfigurationError):
        asyncio.run(place.server().start())


def tell(manager: object, body: bytes) -> None:
    from tests.integration.test_publishing import tell as send

    send(manager, body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "refused"),
    [("site = 'x'", "directory.site"), ("routing_server = true", "directory.routing_server")],
)
def test_what_is_published_needs_publish(place: Place, more: str, refused: str) -> None:
    with pytest.raises(ConfigurationError, match=refused):
        place.server(more, publish=False)
