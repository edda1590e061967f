"""A running manager that publishes: its public queues change in a real Active Directory before they change here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec
from uuid import UUID, uuid4

import pytest

from postroad.config import default_configuration
from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, Scope, connect
from postroad.directory.publisher import OwnObject, Publisher
from postroad.errors import AccessDenied, DirectoryError, InvalidArgument, LdapError, QueueExists, QueueNotFound
from postroad.manager import Manager, build_manager
from postroad.manager.publishing import REFRESH_S, Publishing
from postroad.message import Composer, Message
from postroad.names import PrivateName
from postroad.names.format import NOTIFY_QUEUE
from postroad.security.access import Token, allowed
from postroad.security.descriptors import SecurityDescriptor, Sid
from postroad.security.directory_rights import queue_descriptor
from postroad.security.rights import QueueRight
from postroad.store import open_store
from postroad.wire.change_notifications import ChangeEvent, ChangeNotification
from postroad.wire.view import MessageView
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


COMPUTERS = f"CN=Computers,{BASE}"
OWN = OwnObject(public_keys=b"", signing_keys=b"", quota_kb=None, journal_quota_kb=None)


@pytest.fixture
def settings(domain_controller: Controller, tmp_path: Path) -> LdapSettings:
    return settings_for(domain_controller, tmp_path)


def settings_for(controller: Controller, place: Path, user: str = ADMINISTRATOR) -> LdapSettings:
    (place / "password").write_text(PASSWORD)
    return LdapSettings(
        servers=(controller.ldaps,),
        user=user,
        password_file=place / "password",
        ca_certificates=controller.ca_certificates,
    )


@pytest.fixture
def directory(settings: LdapSettings) -> Iterator[LdapConnection]:
    with connect(settings) as connection:
        yield connection


def add_computer(directory: LdapConnection) -> str:
    name = f"pc{uuid4().hex[:8]}"
    values = {"objectClass": ["computer"], "sAMAccountName": [f"{name}$"], "userAccountControl": ["4096"]}
    directory.add(f"CN={name},{COMPUTERS}", values)
    return name


@asynccontextmanager
async def publishing_manager(
    settings: LdapSettings,
    name: str,
    place: Path,
    clock: Callable[[], float] = time.time,
    refresh: Callable[[], object] = lambda: None,
    publisher: Publisher | None = None,
) -> AsyncIterator[Manager]:
    """A manager on files, as `postroad serve` would join and start it. With a clock that stands still, nobody but the
    test reads the notifications."""
    publisher = publisher or Publisher(settings, name)
    store = open_store(place / name)
    known = store.state("manager").get("manager")
    joined = publisher.join(OWN, None if known is None else UUID(bytes=known), empty=known is None)
    config = default_configuration(name)
    manager = build_manager(config, store, identifier=joined.identifier, clock=clock)
    await manager.start()
    try:
        manager.publish(Publishing(manager, publisher, lambda: OWN, OWN, "dc1.postroad.test", refresh))
        yield manager
    finally:
        await manager.stop()


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110  (nothing tells when)
        await asyncio.sleep(0.01)


def stopped_clock() -> float:
    return 1_800_000_000.0


def held(directory: LdapConnection, name: str) -> dict[str, dict[str, tuple[bytes, ...]]]:
    """The public queues of a manager in the directory, by their cn."""
    entries = directory.search(
        f"CN=msmq,CN={name},{COMPUTERS}", names.equals("objectClass", "mSMQQueue"), ["*"], scope=Scope.CHILDREN
    )
    return {(each.first("cn") or b"").decode(): dict(each.attributes) for each in entries}


@pytest.mark.spec("DM-3.1.7.1.3-07")
@on_a_loop
async def test_a_public_queue_gets_its_id_from_the_directory(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        info = await manager.create_queue(r".\orders", label="Orders", transactional=True)
        entry = held(directory, name)["orders"]
        assert UUID(info.id).bytes_le == entry["objectguid"][0]
        assert entry["msmqlabelex"] == (b"Orders",)
        assert entry["msmqtransactional"] == (b"TRUE",)
        assert manager.queue(f"PUBLIC={info.id}").path == rf"{name}\orders"
        await manager.create_queue(r"private$\own")
        assert list(held(directory, name)) == ["orders"]
    async with publishing_manager(settings, name, tmp_path) as manager:
        assert manager.queue(rf"{name}\orders").id == info.id


@pytest.mark.spec("DM-3.1.7.1.3-08")
@on_a_loop
async def test_a_queue_that_the_directory_refuses_is_not_created(
    domain_controller: Controller, directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    user = f"u{uuid4().hex[:8]}"
    domain_controller.add_user(user)
    Publisher(settings, name).join(OWN, None, empty=True)
    poor = settings_for(domain_controller, tmp_path, f"{user}@POSTROAD.TEST")
    async with publishing_manager(poor, name, tmp_path) as manager:
        with pytest.raises(AccessDenied, match="directory check"):
            await manager.create_queue(r".\orders")
        with pytest.raises(QueueNotFound):
            manager.queue(r".\orders")
    assert held(directory, name) == {}


@on_a_loop
async def test_what_cannot_be_created_here_does_not_reach_the_directory(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        with pytest.raises(InvalidArgument):
            await manager.create_queue(r".\orders", label="x" * 125)
        with pytest.raises(InvalidArgument):
            await manager.create_queue(r".\orders", transactional=True, multicast_address="234.1.1.1:8001")
        await manager.create_queue(r".\orders")
        with pytest.raises(QueueExists):
            await manager.create_queue(rf"{name}\ORDERS")
        assert len(held(directory, name)) == 1


@on_a_loop
async def test_a_queue_that_the_directory_has_already(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        directory.add(f"CN=orders,CN=msmq,CN={name},{COMPUTERS}", {"objectClass": ["mSMQQueue"]})
        with pytest.raises(QueueExists, match="already"):
            await manager.create_queue(r".\orders")


@pytest.mark.spec("DM-3.1.7.1.24-01")
@pytest.mark.spec("DM-3.1.1-02")
@on_a_loop
async def test_changes_are_written(directory: LdapConnection, settings: LdapSettings, tmp_path: Path) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path, stopped_clock) as manager:
        await manager.create_queue(r".\orders", label="Orders")
        notified(manager)
        info = await manager.set_queue(r".\orders", label="", quota_kb=7, privacy="body", abort_limit=3)
        entry = held(directory, name)["orders"]
        assert (info.quota_kb, info.abort_limit) == (7, 3)
        assert (entry["msmqqueuequota"], entry["msmqprivacylevel"]) == ((b"7",), (b"2",))
        assert "msmqlabelex" not in entry
        (told,) = notified(manager)
        assert (told.event, told.object_guid) == (ChangeEvent.QUEUE_UPDATE, UUID(info.id))
        await manager.set_queue(r".\orders", abort_limit=4)  # the directory has no place for it
        assert notified(manager) == []


@on_a_loop
async def test_access_lists_are_written(directory: LdapConnection, settings: LdapSettings, tmp_path: Path) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        info = await manager.create_queue(r".\orders")
        await manager.access_lists.edit(r".\orders", "grant", "S-1-5-21-1-2-3-77", ["receive"])
        entry = directory.read(f"<GUID={info.id}>", ["nTSecurityDescriptor"])
        assert entry is not None
        found = queue_descriptor(SecurityDescriptor.decode(entry.first("ntsecuritydescriptor") or b""))
        clerk = Token.of_user(Sid.parse("S-1-5-21-1-2-3-77"))
        assert allowed(found, clerk, QueueRight.RECEIVE_MESSAGE.value)
        assert not allowed(found, Token.of_user(Sid.parse("S-1-5-21-1-2-3-78")), QueueRight.RECEIVE_MESSAGE.value)
        assert "-77" in manager.access_lists.show(r".\orders")


@on_a_loop
async def test_a_queue_that_is_gone_from_the_directory_can_still_be_changed_and_deleted(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        await manager.create_queue(r".\orders")
        directory.delete(f"CN=orders,CN=msmq,CN={name},{COMPUTERS}")
        assert (await manager.set_queue(r".\orders", label="x")).label == "x"
        await manager.delete_queue(r".\orders")
        with pytest.raises(QueueNotFound):
            manager.queue(r".\orders")


@on_a_loop
async def test_a_deleted_queue_is_deleted_in_the_directory(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        info = await manager.create_queue(r".\orders")
        await manager.delete_queue(r".\orders")
        assert held(directory, name) == {}
        assert manager.publishing is not None
        assert manager.publishing.is_newer(UUID(info.id), manager.publishing.mark())
        again = await manager.create_queue(r".\orders")
        assert again.id != info.id


@on_a_loop
async def test_many_callers_at_once(directory: LdapConnection, settings: LdapSettings, tmp_path: Path) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        paths = [rf".\q{number % 10}" for number in range(20)]
        done = await asyncio.gather(*(manager.create_queue(path) for path in paths), return_exceptions=True)
        assert sum(isinstance(each, QueueExists) for each in done) == 10
        assert {each["objectguid"][0] for each in held(directory, name).values()} == {
            UUID(manager.queue(rf".\q{number}").id).bytes_le for number in range(10)
        }


@on_a_loop
async def test_two_managers_publish_at_once(directory: LdapConnection, settings: LdapSettings, tmp_path: Path) -> None:
    one, other = add_computer(directory), add_computer(directory)
    async with (
        publishing_manager(settings, one, tmp_path) as first,
        publishing_manager(settings, other, tmp_path) as second,
    ):
        paths = [rf".\q{number}" for number in range(10)]
        await asyncio.gather(*(each.create_queue(path) for path in paths for each in (first, second)))
        assert len(held(directory, one)) == len(held(directory, other)) == 10


@on_a_loop
async def test_a_caller_who_leaves_leaves_nothing_half_done(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        task = asyncio.create_task(manager.create_queue(r".\orders"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other = await manager.create_queue(r".\other")  # it waits for its turn
        assert manager.queue(r".\orders").id
        assert UUID(other.id).bytes_le == held(directory, name)["other"]["objectguid"][0]


@on_a_loop
async def test_callers_who_change_and_delete_one_queue_at_once(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        await manager.create_queue(r".\orders")
        done = await asyncio.gather(
            manager.delete_queue(r".\orders"),
            manager.set_queue(r".\orders", label="late"),
            manager.access_lists.edit(r".\orders", "grant", "S-1-5-21-1-2-3-77", ["receive"]),
            manager.delete_queue(r".\orders"),
            return_exceptions=True,
        )
        assert done[0] is None
        assert all(isinstance(each, QueueNotFound) for each in done[1:])
    assert held(directory, name) == {}
    async with publishing_manager(settings, name, tmp_path) as manager:
        assert not [each for each in manager.queues() if each.type == "public"]


class WatchedPublisher(Publisher):
    """Calls `created` between the directory and the manager."""

    created: Callable[[UUID], object]

    def create_queue(self, *arguments: Any) -> UUID:
        identifier = super().create_queue(*arguments)
        self.created(identifier)
        return identifier


@on_a_loop
async def test_a_refresh_that_is_faster_than_the_caller(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name, loop = add_computer(directory), asyncio.get_running_loop()
    publisher = WatchedPublisher(settings, name)
    async with publishing_manager(settings, name, tmp_path, publisher=publisher) as manager:
        publishing = manager.publishing
        assert publishing is not None
        mark = publishing.mark()

        def refresh(identifier: UUID) -> None:
            making = manager.create_queue(rf"{name}\orders", identifier=identifier, label="Orders")
            asyncio.run_coroutine_threadsafe(making, loop).result()

        publisher.created = refresh
        info = await manager.create_queue(r".\orders", label="Orders", abort_limit=3)
        assert (info.label, info.abort_limit) == ("Orders", 3)
        assert publishing.is_newer(UUID(info.id), mark)
        assert not publishing.is_newer(UUID(info.id), publishing.mark())
        assert len(held(directory, name)) == 1


# Outages


@pytest.fixture
def away(new_controller: Callable[[], Controller]) -> Controller:
    controller = new_controller()
    controller.start()
    return controller


@pytest.mark.spec("DM-3.1.7.1.18-01")
@pytest.mark.spec("DM-3.1.7.1.4-03")
@pytest.mark.spec("DM-3.1.7.1.19-01")
@on_a_loop
async def test_a_controller_that_is_away(away: Controller, tmp_path: Path) -> None:
    settings = settings_for(away, tmp_path)
    with connect(settings) as directory:
        name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path, stopped_clock) as manager:
        info = await manager.create_queue(r".\orders", label="before")
        notified(manager)
        away.stop()

        with pytest.raises(LdapError):
            await manager.create_queue(r".\more")
        with pytest.raises(QueueNotFound):
            manager.queue(r".\more")
        assert [each.event for each in notified(manager)] == [ChangeEvent.QUEUE_CREATION]  # it comes first

        with pytest.raises(LdapError):
            await manager.set_queue(r".\orders", label="after")
        assert manager.queue(r".\orders").label == "before"
        assert notified(manager) == []  # it follows the write

        with pytest.raises(DirectoryError, match="deleted here"):
            await manager.delete_queue(r".\orders")
        with pytest.raises(QueueNotFound):
            manager.queue(r".\orders")
        (told,) = notified(manager)
        assert (told.event, told.object_guid) == (ChangeEvent.QUEUE_DELETION, UUID(info.id))
    away.start()
    with connect(settings) as directory:
        assert list(held(directory, name)) == ["orders"]
        async with publishing_manager(settings, name, tmp_path) as manager:  # it remembers what it has to delete
            assert manager.publishing is not None
            assert manager.publishing.is_newer(UUID(info.id), manager.publishing.mark())
            await until(lambda: not held(directory, name) and not manager.core.store.state("published/"))


@on_a_loop
async def test_a_controller_killed_in_the_middle_of_a_create(away: Controller, tmp_path: Path) -> None:
    settings = settings_for(away, tmp_path)
    with connect(settings) as directory:
        name = add_computer(directory)
    async with publishing_manager(settings, name, tmp_path) as manager:
        creating = asyncio.gather(
            *(manager.create_queue(rf".\q{number}") for number in range(30)), return_exceptions=True
        )
        await until(lambda: any(each.type == "public" for each in manager.queues()))
        away.stop()
        done = await creating
        made = {each.id for each in done if not isinstance(each, BaseException)}
        assert made
        assert all(isinstance(each, DirectoryError) for each in done if isinstance(each, BaseException))
        here = {each.id for each in manager.queues() if each.type == "public"}
        assert made == here
    away.start()
    with connect(settings) as directory:
        there = {str(UUID(bytes_le=each["objectguid"][0])) for each in held(directory, name).values()}
    # At most the one that was under way is in the directory alone: the next refresh creates it here.
    assert here <= there
    assert len(there - here) <= 1


# Notifications, [MS-MQCN]


def notified(manager: Manager) -> list[ChangeNotification]:
    """What is in the notification queue. Takes it away."""
    queue = manager.core.queues.get(NOTIFY_QUEUE)
    found = [ChangeNotification.decode(bytes(MessageView(each.packet).body)) for each in queue.available(100)]
    manager.core.purge(queue, manager.clock())
    return found


def tell(manager: Manager, body: bytes) -> None:
    """A message in the notification queue, as a stranger would send it."""
    queue = manager.core.queues.get(NOTIFY_QUEUE)
    name = PrivateName(manager.identifier, 3)
    packet = Composer(uuid4(), name, manager=manager.identifier).compose(Message(body), 1, 1_700_000_000)
    manager.core.delivery.arrive(queue, packet, MessageView(packet), manager.clock())


@on_a_loop
async def test_a_notification_makes_the_manager_ask_the_directory_once_a_minute(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name, asked = add_computer(directory), []
    async with publishing_manager(settings, name, tmp_path, stopped_clock, lambda: asked.append(1)) as manager:
        publishing, now = manager.publishing, stopped_clock()
        assert publishing is not None
        queue = await manager.create_queue(r".\orders")
        notified(manager)
        concerns = [
            ChangeNotification(ChangeEvent.QUEUE_CREATION, uuid4(), "dc1"),
            ChangeNotification(ChangeEvent.QUEUE_UPDATE, UUID(queue.id), "dc1"),
            ChangeNotification(ChangeEvent.QUEUE_DELETION, UUID(queue.id), "attacker.example"),
            ChangeNotification(ChangeEvent.QUEUE_MANAGER_UPDATE, manager.identifier, "dc1"),
        ]
        for number, each in enumerate(concerns):
            tell(manager, each.encode())
            publishing.take_notifications(now + number * (REFRESH_S + 1))
            assert len(asked) == number + 1
        for step in range(50):  # a flood
            for _ in range(10):
                tell(manager, concerns[0].encode())
            publishing.take_notifications(now + 3 * (REFRESH_S + 1) + step / 10)
        assert len(asked) == 4
        publishing.take_notifications(now + 4 * (REFRESH_S + 1))
        publishing.take_notifications(now + 5 * (REFRESH_S + 1))
        assert len(asked) == 5  # the last of them counts once
        assert manager.core.queues.get(NOTIFY_QUEUE).count == 0
        assert manager.queue(r".\orders").id == queue.id  # nobody deletes a queue by a message


@on_a_loop
async def test_notifications_that_concern_nobody_here(
    directory: LdapConnection, settings: LdapSettings, tmp_path: Path
) -> None:
    name, asked = add_computer(directory), []
    async with publishing_manager(settings, name, tmp_path, stopped_clock, lambda: asked.append(1)) as manager:
        for body in (
            b"",
            b"\1\1",
            b"\2\1" + "<Notification>".encode("utf-16-le"),
            b"\2\1" + b"<" * 5000,
            ChangeNotification(ChangeEvent.QUEUE_UPDATE, uuid4(), "dc1").encode(),
            ChangeNotification(ChangeEvent.QUEUE_DELETION, uuid4(), "dc1").encode(),
            ChangeNotification(ChangeEvent.QUEUE_MANAGER_UPDATE, uuid4(), "dc1").encode(),
        ):
            tell(manager, body)
        assert manager.publishing is not None
        manager.publishing.take_notifications(stopped_clock())
        assert asked == []
        assert manager.core.queues.get(NOTIFY_QUEUE).count == 0
