"""How a search reads a queue: at full speed from an idle manager, with pauses from a busy one. Rows of lists."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postroad.bodies import write_headers
from postroad.console import search
from postroad.console.history import COST
from postroad.console.jobs import Job
from postroad.console.manager_client import ManagerClient
from postroad.console.pages import dead_letters, failed
from postroad.console.pages.dead_letters import Group, count_groups, group_key
from postroad.console.search import Reader, matcher, row, scan
from postroad.describe.received import ReceivedMessage
from tests.packets import by_hand, properties

ANSWER_S = 3.0
BODIES = Path(__file__).parents[2] / "data/bodies/samples.jsonl"


class SlowManager:
    """Needs ANSWER_S for every page, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pages: list[list[ReceivedMessage]] = [cast(list[ReceivedMessage], ["a message"]), []]

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        self.now += ANSWER_S
        return self.pages.pop(0)


@pytest.mark.parametrize(("busy", "paused_s"), [(True, COST * ANSWER_S), (False, 0)])
def test_a_busy_manager_gets_long_pauses_and_none_after_the_last_page(
    monkeypatch: pytest.MonkeyPatch, busy: bool, paused_s: float
) -> None:
    manager = SlowManager()
    monkeypatch.setattr(search, "time", manager)
    monkeypatch.setattr("postroad.console.search.asyncio.sleep", manager.sleep)
    reader = Reader(cast(ManagerClient, manager), lambda: busy)

    async def run() -> None:
        while await reader.page("queue", -1, 10):
            pass

    asyncio.run(run())
    assert manager.now == 2 * ANSWER_S + paused_s


def received(body: bytes, body_type: int = 0, extension: bytes = b"", lookup_id: int = 1) -> ReceivedMessage:
    packet = by_hand(properties=properties(body=body, body_type=body_type, extension=extension))
    return ReceivedMessage(packet, lookup_id, 0)


def finds(wanted: str, message: ReceivedMessage) -> bool:
    return matcher("", "", "", wanted, "")(message)


def test_a_search_finds_what_dotnet_has_written() -> None:
    with BODIES.open() as lines:
        samples = [json.loads(line) for line in lines]
    missed = []
    for sample in samples:
        body, extension = b64decode(sample["body_base64"]), b64decode(sample["extension_base64"] or "")
        message = received(body, sample["body_type"], extension)
        found = message.decoded()
        said = [found.get("message_type"), *found["headers"], *found["headers"].values()]
        shown = [line.strip() for line in (found["body_text"] or "").splitlines()[:20]]
        missed += [(sample["name"], each) for each in (*said, *shown) if each and not finds(each.upper(), message)]
        if "message_type" in found:  # a damaged body has one in lists only
            assert row(message).type == found["message_type"]
    assert [each for each in missed if each[1].upper().casefold() == each[1].casefold()] == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_search_finds_text_between_bytes(encoding: str) -> None:
    message = received(b"\0\x81\x01" + "needle".encode(encoding) + b"\xff")
    assert finds("needle", message)
    assert not finds("another", message)


def test_a_search_keeps_no_decoded_body() -> None:
    message = received(b'{"a": [1, 2]}')
    assert not finds("needle", message)
    assert message._decoded is None


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("mono/system.messaging/xml", "<Order> <Id>4711</Id> <Customer>Ada Lovelace</Customer>"),
        ("mono/binaryformatter/array-struct", '[ { "$type": "Shop.Money", "Amount": '),
        ("core/activex/currency/129.9", "129.9000"),
        ("core/netmsmq/request", "<Create><name>Ada Lovelace</name><count>3</count></Create>"),
        ("core/netmsmq-text/soap12-utf16-big", "<Create><name>Ada Lovelace</name><count>3</count></Create>"),
        ("core/netmsmq/empty-body", ""),
        ("core/nservicebus/error-json", '{"Id":4711,"Customer":"Ada Lovelace"'),
        ("core/text/utf-16-bom", "Grüße aus Köln, 世界"),
        ("core/binaryformatter/dataset-binary", "00 01 00 00 00 ff ff ff ff"),  # larger than lists decode
    ],
)
def test_a_list_shows_the_beginning_of_what_a_body_says(name: str, shows: str) -> None:
    with BODIES.open() as lines:
        sample = next(found for line in lines if (found := json.loads(line))["name"] == name)
    found = row(received(b64decode(sample["body_base64"]), sample["body_type"])).preview
    assert found.startswith(shows)
    assert bool(found) == bool(shows)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1}, ' * 300_000,
        b"<a>" + b"<b>1</b>" * 300_000,
        "text ".encode("utf-16") * 200_000,
        b"\0\1\0\0\0\xff\xff\xff\xff" + bytes(3 << 20),
        b"\0\1\0\1\1" + bytes(3 << 20),
        bytes(range(256)) * 10_000,
        b"<s:Envelope>" + b"<s:Body" * 300_000,
    ],
)
def test_a_list_reads_only_the_beginning_of_a_large_body(body: bytes) -> None:
    message = received(body)
    row(message)
    tracemalloc.start()
    found = row(message)
    assert tracemalloc.get_traced_memory()[1] < 1.5 * len(body)  # one copy, and no text of it
    tracemalloc.stop()
    assert 0 < len(found.preview) <= 80


class Holder:
    """A manager that has these messages in one queue."""

    def __init__(self, messages: list[ReceivedMessage]) -> None:
        self.messages = messages

    async def queue(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(messages=len(self.messages))

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        return [each for each in self.messages if each.lookup_id > after][:limit]

    @property
    def reader(self) -> Reader:
        return Reader(cast(ManagerClient, self), lambda: False)


def test_messages_are_read_beside_the_event_loop_and_a_search_ends_between_two_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "SLICE_S", 0)
    holder = Holder([received(b"x", lookup_id=number) for number in range(10)])
    job = Job("search", "", 0, "queue")
    threads: set[int] = set()
    found: list[int] = []

    def look(message: ReceivedMessage) -> int | None:
        threads.add(threading.get_ident())
        return message.lookup_id if message.lookup_id % 2 else None

    def each(one: int) -> None:
        found.append(one)
        if one == 5 and job.task is not None:
            job.task.cancel()

    async def run() -> None:
        job.task = asyncio.create_task(scan(holder.reader, job, look, each))
        with pytest.raises(asyncio.CancelledError):
            await job.task

    asyncio.run(run())
    assert threading.get_ident() not in threads
    assert (found, job.done) == ([1, 3, 5], 6)


def of_type(name: str, lookup_id: int) -> ReceivedMessage:
    extension = json.dumps({"rbs2-msg-type": name, "rbs2-error-details": "System.IO.IOException: no disk"}).encode()
    return received(b"{}", extension=extension, lookup_id=lookup_id)


def test_groups_have_a_type_and_an_exception_as_a_form_gives_them_back() -> None:
    key = group_key(of_type("Shop.\nOrder\0, Shop", 1))
    assert (key.type, key.exception) == ("Shop.\ufffdOrder\ufffd", "System.IO.IOException")
    assert len(group_key(of_type("x" * 5000, 1)).type) == dead_letters.MOST_OF_NAME


def test_a_flood_of_types_makes_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_GROUPS", 3)
    holder = Holder([of_type(f"Type{number % 5}", number) for number in range(20)])
    groups: dict[tuple[str, dead_letters.Key], Group] = {}
    job = Job("groups", "", 0, "queue")
    asyncio.run(count_groups(holder.reader, job, "queue", groups))
    assert [(key.type, group.count) for (_, key), group in groups.items()] == [(f"Type{n}", 4) for n in range(3)]
    assert (job.done, job.found) == (20, 8)


def test_a_flood_of_failed_messages_makes_a_limited_number_of_short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed, "MOST_GROUPS", 3)

    def gave_up(lookup_id: int) -> ReceivedMessage:
        headers = {
            "NServiceBus.FailedQ": f"queue{lookup_id % 5}@APP01",
            "NServiceBus.ExceptionInfo.ExceptionType": "E" * 5000,
            "NServiceBus.ExceptionInfo.Message": "m" * 5000,
        }
        return received(b"{}", extension=write_headers(headers if lookup_id else {}), lookup_id=lookup_id)

    holder = Holder([gave_up(number) for number in range(21)])
    census = failed.Census()
    job = Job("failed", "", 0, "queue")
    asyncio.run(failed.count(holder.reader, job, census))
    assert [list(group.ids) for group in census.groups] == [[n, n + 5, n + 10, n + 15] for n in (1, 2, 3)]
    assert (job.done, census.unnamed, census.left_out) == (21, 1, 8)
    facts = census.groups[0].facts
    assert (facts.destination, facts.messages) == (r"DIRECT=OS:APP01\private$\queue1", 4)
    assert (facts.exception, facts.text) == ("E" * dead_letters.MOST_OF_NAME, "m" * failed.MOST_OF_TEXT)
