"""The HTTP API's calls about messages, over a real socket: every form of sending, every way of reading."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from postroad.api.formats import ARROW
from postroad.api.messages import DECODED_MESSAGES, PAGE_BYTES, PAGE_MESSAGES
from postroad.bodies import write_headers
from postroad.describe.received import ReceivedMessage, decode_records
from postroad.queues.queue import READ_BYTES
from postroad.reports.operations import RECORDS_TYPE as RECORDS
from tests.served import API, ORDERS, Served, served

OTHER = f"{API}/queues/private$/other"
STRANGER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        running.create("private$/other")
        yield running


def listed(api: Served, queue: str = ORDERS) -> list[dict[str, Any]]:
    return list(api.call("GET", f"{queue}/messages").json["messages"])


# Sending


def test_every_property_of_a_message_goes_into_its_packet(api: Served) -> None:
    sent = {
        "body": "gr\u00fc\u00dfe",
        "body_type": 8,
        "label": "order 1",
        "priority": 5,
        "recoverable": True,
        "app_tag": 7,
        "correlation_id": "{0f0e0d0c-0b0a-0908-0706-050403020100}\\9",
        "response_queue": "private$/other",
        "admin_queue": "DIRECT=OS:beta\\private$\\acks",
        "ack": ["reach-queue", "receive"],
        "time_to_reach_queue": 60,
        "time_to_be_received": 3600,
        "journal": True,
        "dead_letter": True,
        "dead_letter_queue": "private$/dead",
        "trace": "PUBLIC=0f0e0d0c-0b0a-0908-0706-050403020100",
        "extension_base64": b64encode(b"\x00\xff").decode(),
        "connector_type": "0f0e0d0c-0b0a-0908-0706-050403020100",
    }
    answer = api.call("POST", f"{ORDERS}/messages", sent)
    assert answer.status == 201
    (read,) = listed(api)
    for name in ("body", "body_type", "label", "priority", "app_tag", "correlation_id", "admin_queue"):
        assert read[name] == sent[name]
    assert (read["id"], read["delivery"]) == (answer.json["ids"][0], "recoverable")
    assert read["response_queue"].startswith("PRIVATE=")
    assert read["dead_letter_queue"] == r".\private$\dead"
    assert read["extension_base64"] == sent["extension_base64"]
    (record,) = decode_records(api.call("GET", f"{ORDERS}/messages", headers={"Accept": RECORDS}).body)
    view = record.view
    assert (view.time_to_reach_queue, view.time_to_be_received) == (60, 3600)
    assert view.positive_journaling
    assert view.negative_journaling
    assert view.tracing
    assert view.ack_flags == 3
    assert str(view.connector_type) == sent["connector_type"]


NSERVICEBUS = b"""<?xml version="1.0"?><ArrayOfHeaderInfo><HeaderInfo><Key>NServiceBus.EnclosedMessageTypes</Key>
<Value>Shop.Order, Shop</Value></HeaderInfo></ArrayOfHeaderInfo>\0"""


def test_a_listing_says_what_bodies_and_extensions_say(api: Served) -> None:
    extension = b64encode(NSERVICEBUS).decode()
    api.call("POST", f"{ORDERS}/messages", {"body": '{"id": 1}', "extension_base64": extension, "app_tag": 1})
    for number in range(DECODED_MESSAGES):
        api.call("POST", f"{ORDERS}/messages", {"body": f"<a><b>{number}</b></a>"})
    api.call("POST", f"{ORDERS}/messages", {"body_base64": b64encode(b"\0\1").decode()})
    first, *others, last = api.call("GET", f"{ORDERS}/messages?decode=true").json["messages"]
    assert first["body_kind"] == "json"
    assert first["body_text"] == '{\n  "id": 1\n}'
    assert first["body"] == '{"id": 1}'
    assert first["headers"] == {
        "NServiceBus.EnclosedMessageTypes": "Shop.Order, Shop",
        "NServiceBus.MessageIntent": "Send",
    }
    assert (first["system"], first["message_type"]) == ("nservicebus", "Shop.Order")
    assert [each["body_text"] for each in others] == [f"<a>\n  <b>{n}</b>\n</a>" for n in range(DECODED_MESSAGES)]
    assert (last["body_kind"], last["body_text"], last["headers"]) == ("bytes", None, {})
    assert "system" not in last
    assert len(api.call("GET", f"{ORDERS}/messages?decode=true&limit=1").json["messages"]) == 1
    assert api.call("GET", f"{ORDERS}/messages?decode=true&from=0").json["messages"][0]["system"] == "nservicebus"
    assert api.call("GET", f"{OTHER}/messages?decode=true").json == {"messages": []}
    assert "body_kind" not in listed(api)[0]


@pytest.mark.parametrize("decode", ["", "&decode=true"])
def test_a_listing_ends_at_the_bytes_that_it_may_have(api: Served, decode: str) -> None:
    for size in [10] * 150 + [100_000] * 4:
        api.call("POST", f"{ORDERS}/messages", {"body": "x" * size})

    def count(query: str) -> int:
        return len(api.call("GET", f"{ORDERS}/messages?{query}{decode}").json["messages"])

    assert count("limit=200") == count("limit=200&max_bytes=1000000") == 154
    assert count("limit=200&max_bytes=150000") == 152
    assert count("limit=200&max_bytes=1") == count("limit=1&max_bytes=1") == 1
    assert count("limit=2&max_bytes=150000") == 2
    refused = api.call("GET", f"{ORDERS}/messages?from=0&max_bytes=1{decode}")
    assert (refused.status, refused.json["detail"]) == (400, "max_bytes: must not be set together with `from`")


@pytest.mark.parametrize("accept", [RECORDS, ARROW])
@pytest.mark.parametrize("more", ["", "&from=0"])
def test_only_json_is_decoded(api: Served, accept: str, more: str) -> None:
    refused = api.call("GET", f"{ORDERS}/messages?decode=true{more}", headers={"Accept": accept})
    assert (refused.status, refused.json["detail"]) == (400, "decode: needs Accept: application/json")


def test_an_export_has_the_packet_and_not_what_this_manager_keeps_with_it(api: Served) -> None:
    for label in "ab":
        api.call("POST", f"{ORDERS}/messages", {"label": label, "dead_letter_queue": "private$/dead"})
    put = api.call("POST", f"{OTHER}/packets", body=api.call("GET", f"{ORDERS}/packets").body)
    assert put.status == 201
    assert [each["dead_letter_queue"] for each in listed(api)] == [r".\private$\dead"] * 2
    assert [(each["label"], each["dead_letter_queue"]) for each in listed(api, OTHER)] == [("a", None), ("b", None)]


def test_bytes_come_and_go_as_base64(api: Served) -> None:
    body = b64encode(bytes(range(256))).decode()
    api.call("POST", f"{ORDERS}/messages", {"body_base64": body})
    assert listed(api)[0]["body_base64"] == body
    assert "body" not in listed(api)[0]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"])
def test_a_body_that_is_not_json_is_the_message(api: Served, kind: str) -> None:
    query = "label=x&priority=6&recoverable=true&ack=full&admin_queue=private$/other&app_tag=9"
    sent = api.call("POST", f"{ORDERS}/messages?{query}", body=b"a=b&c", headers={"Content-Type": kind})
    assert sent.status == 201
    (read,) = listed(api)
    assert (read["body"], read["label"], read["priority"], read["app_tag"]) == ("a=b&c", "x", 6, 9)
    assert read["delivery"] == "recoverable"
    assert len(listed(api, OTHER)) == 1  # it has reached its queue


def test_several_go_in_their_order(api: Served) -> None:
    answer = api.call("POST", f"{ORDERS}/messages", {"messages": [{"body": str(n)} for n in range(20)]})
    assert [each["id"] for each in listed(api)] == answer.json["ids"]
    assert api.bodies() == [str(n) for n in range(20)]


def test_of_several_all_go_or_none(api: Served) -> None:
    messages = [{"body": "good"}, {"body": "bad", "correlation_id": "none"}]
    assert api.call("POST", f"{ORDERS}/messages", {"messages": messages}).status == 400
    assert api.bodies() == []


def test_separate_messages_succeed_or_fail_by_themselves(api: Served) -> None:
    bodies = [
        {"body": "first"},
        {"body": "x" * (5 << 20)},
        {"body": "third", "prioriti": 1},
        "fourth",
        {"body": "last"},
    ]
    answer = api.call("POST", f"{ORDERS}/messages?separate=true", {"messages": bodies})
    assert answer.status == 207
    outcomes = answer.json["outcomes"]
    errors = [each["problem"]["error"] if "problem" in each else None for each in outcomes]
    assert errors == [None, "MessageTooLarge", "InvalidMessage", "InvalidMessage", None]
    assert outcomes[2]["problem"]["detail"].startswith("prioriti: there is no such property")
    assert api.bodies() == ["first", "last"]
    answer = api.call("POST", f"{ORDERS}/messages?separate=true", {"messages": [{"body": "a"}, {"body": "b"}]})
    assert (answer.status, len(answer.json["ids"])) == (201, 2)
    assert api.bodies() == ["first", "last", "a", "b"]


def test_separate_messages_whose_refusal_is_reported_are_reported_once(api: Served) -> None:
    api.create("private$/small", quota_kb=1)
    api.create("private$/reports")
    properties = {"ack": "nack-reach-queue", "admin_queue": r"DIRECT=OS:.\private$\reports"}
    bodies = [{"body": "x" * 5000, **properties}, {"body": "fits"}]
    answer = api.call("POST", f"{API}/queues/private$/small/messages?separate=true", {"messages": bodies})
    assert ["problem" in each for each in answer.json["outcomes"]] == [True, False]
    assert len(api.bodies(f"{API}/queues/private$/reports")) == 1


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("&transactional=true", {"messages": []}),
        ("", {"messages": [], "transactional": True}),
        ("", {"messages": {}}),
        ("", {"body": "one"}),
        ("", {"messages": [{}] * 10_001}),
    ],
)
def test_separate_takes_a_list_and_no_transaction(api: Served, query: str, body: object) -> None:
    assert api.call("POST", f"{ORDERS}/messages?separate=true{query}", body).status == 400
    assert api.bodies() == []


def test_a_lock_settles_what_was_locked_before(api: Served) -> None:
    api.send("first", "second", "third", "fourth")
    first = api.call("POST", f"{ORDERS}/lock?count=2&timeout=0")
    lookup_ids = [each["lookup_id"] for each in first.json["messages"]]
    settlement = {"lookup_ids": lookup_ids[:1], "delete": True, "leases": [first.headers["postroad-lease"]]}
    second = api.call("POST", f"{ORDERS}/lock?timeout=0", settlement)
    assert [each["body"] for each in second.json["messages"]] == ["third"]
    settlement = {"lookup_ids": lookup_ids[1:], "delete": False}
    third = api.call("POST", f"{ORDERS}/lock?timeout=0", settlement)
    assert [each["body"] for each in third.json["messages"]] == ["second"]
    again = api.call("POST", f"{ORDERS}/lock?timeout=0", {"lookup_ids": lookup_ids[:1], "delete": True})
    assert again.status == 409  # it is gone, and nothing is locked instead
    assert api.bodies() == ["fourth"]
    assert api.call("POST", f"{ORDERS}/lock?timeout=0", {"lookup_ids": "x", "delete": True}).status == 400


@pytest.mark.parametrize("several", [True, False])
def test_a_transaction_of_its_own(api: Served, several: bool) -> None:
    api.create("private$/exact", transactional=True)
    exact = f"{API}/queues/private$/exact"
    message = {"body": "x"}
    value = {"messages": [message, message]} if several else dict(message)
    assert api.call("POST", f"{exact}/messages", {**value, "transactional": True}).status == 201
    read = listed(api, exact)
    assert len(read) == 1 + several
    assert (read[0]["first_in_transaction"], read[-1]["last_in_transaction"]) == (True, True)
    assert api.call("POST", f"{exact}/messages?transactional=true", body=b"raw").status == 201


# Reading


def test_messages_are_listed_page_by_page(api: Served) -> None:
    api.send(*map(str, range(5)))
    first = api.call("GET", f"{ORDERS}/messages?limit=2").json["messages"]
    after = first[-1]["lookup_id"]
    second = api.call("GET", f"{ORDERS}/messages?limit=100&after={after}").json["messages"]
    assert [each["body"] for each in first + second] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("accept", ["application/json", RECORDS])
def test_a_long_list_is_streamed_whole(api: Served, accept: str) -> None:
    count = 2 * PAGE_MESSAGES + 1
    api.send(*map(str, range(count)))
    answer = api.call("GET", f"{ORDERS}/messages?limit={count + 5}", headers={"Accept": accept})
    assert answer.headers["transfer-encoding"] == "chunked"
    if accept == RECORDS:
        bodies = [record.text for record in decode_records(answer.body)]
    else:
        bodies = [each["body"] for each in answer.json["messages"]]
    assert bodies == list(map(str, range(count)))


def test_a_list_stops_at_its_limit_within_a_page(api: Served) -> None:
    api.send(*map(str, range(PAGE_MESSAGES + 20)))
    answer = api.call("GET", f"{ORDERS}/messages?limit={PAGE_MESSAGES + 10}")
    assert len(answer.json["messages"]) == PAGE_MESSAGES + 10


LARGE = 3 << 20  # bytes; 32 of them are a large queue


@pytest.mark.parametrize("path", ["messages?limit=1000", "packets?limit=1000"])
def test_large_messages_before_many_small_ones_are_read_few_at_a_time(
    api: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean size says that a page has room for far more of them."""
    large, small = ["x" * LARGE] * 32, ["y"] * PAGE_MESSAGES
    api.send(*small, priority=0)
    for each in large:
        api.send(each, priority=7)
    peek, read = api.manager.reads.peek, list[int]()

    async def spied(*arguments: Any, **options: Any) -> list[ReceivedMessage]:
        found = await peek(*arguments, **options)
        read.append(sum(len(each.packet) for each in found))
        return found

    monkeypatch.setattr(api.manager.reads, "peek", spied)
    answer = api.call("GET", f"{ORDERS}/{path}", headers={"Accept": RECORDS})
    assert max(read) < PAGE_BYTES + 2 * LARGE
    if path.startswith("messages"):
        assert [record.text for record in decode_records(answer.body)] == large + small


@pytest.mark.parametrize("verb", ["peek", "lock", "receive"])
def test_an_answer_has_few_large_messages_however_many_small_ones_follow(api: Served, verb: str) -> None:
    api.send(*["y"] * PAGE_MESSAGES, priority=0)
    for _ in range(32):
        api.send("x" * LARGE, priority=7)
    answer = api.call("POST", f"{ORDERS}/{verb}?count=10000&timeout=0", headers={"Accept": RECORDS})
    assert len(decode_records(answer.body)) == -(-READ_BYTES // LARGE)


def test_receive_takes_and_peek_does_not(api: Served) -> None:
    api.send("a", "b", "c")
    assert [each["body"] for each in api.call("POST", f"{ORDERS}/peek?count=2").json["messages"]] == ["a", "b"]
    assert [each["body"] for each in api.call("POST", f"{ORDERS}/receive").json["messages"]] == ["a"]
    assert [each["body"] for each in api.call("POST", f"{ORDERS}/receive?count=9").json["messages"]] == ["b", "c"]


@pytest.mark.parametrize("call", ["receive", "peek", "lock"])
@pytest.mark.parametrize("timeout", ["0", "0.05"])
def test_no_message_in_time_is_no_content(api: Served, call: str, timeout: str) -> None:
    answer = api.call("POST", f"{ORDERS}/{call}?timeout={timeout}")
    assert (answer.status, answer.body) == (204, b"")


def test_a_peek_after_a_message_waits_for_the_next(api: Served) -> None:
    api.send("a", "b", "c")
    ids = [each["lookup_id"] for each in listed(api)]
    after = f"{ORDERS}/peek?after={ids[0]}"
    assert [each["body"] for each in api.call("POST", f"{after}&count=9").json["messages"]] == ["b", "c"]
    assert api.call("POST", f"{ORDERS}/peek?after={ids[2]}&timeout=0.05").status == 204
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(api.call, "POST", f"{ORDERS}/peek?after={ids[2]}")
        while not api.call("GET", ORDERS).json["waiting"]:
            pass
        api.send("d")
        assert [each["body"] for each in waiting.result().json["messages"]] == ["d"]
    assert api.bodies() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_a_message_is_read_by_an_id(api: Served, name: str) -> None:
    sent = [{"body": str(number), "correlation_id": f"{{{STRANGER}}}\\{number}"} for number in range(1, 4)]
    ids = api.call("POST", f"{ORDERS}/messages", {"messages": sent}).json["ids"]
    wanted = quote(ids[1] if name == "message_id" else str(sent[1]["correlation_id"]))
    query = f"?{name}={wanted}&timeout=0"
    for call, bodies in (("peek", ["1", "2", "3"]), ("receive", ["1", "3"])):
        assert api.call("POST", f"{ORDERS}/{call}{query}").json["messages"][0]["body"] == "2"
        assert api.bodies() == bodies
    assert api.call("POST", f"{ORDERS}/peek{query}").status == 204
    assert api.call("POST", f"{ORDERS}/peek{query}&count=2").status == 400
    assert api.call("POST", f"{ORDERS}/peek{query}&after=0").status == 400
    assert api.call("POST", f"{ORDERS}/receive?{name}=nonsense").status == 400
    both = f"message_id={wanted}&correlation_id={wanted}"
    assert api.call("POST", f"{ORDERS}/peek?{both}").status == 400


def test_who_excludes_other_readers_reads_with_the_handle(api: Served) -> None:
    api.send("a", "b", "c", "d", "e")
    opening = {"queue": "private$/orders", "access": "receive", "share": "deny-receive"}
    own = f"handle={api.call('POST', f'{API}/handles', opening).json['handle']}"
    assert api.call("POST", f"{ORDERS}/receive?timeout=0").status == 409
    assert api.call("POST", f"{ORDERS}/receive?timeout=0&{own}").json["messages"][0]["body"] == "a"
    (peeked,) = api.call("POST", f"{ORDERS}/peek?timeout=0&{own}").json["messages"]
    assert api.call("DELETE", f"{ORDERS}/messages/{peeked['lookup_id']}?{own}").json["body"] == "b"
    (locked,) = api.call("POST", f"{ORDERS}/lock?timeout=0&{own}").json["messages"]
    assert api.call("POST", f"{ORDERS}/settle", {"lookup_ids": [locked["lookup_id"]], "delete": True}).status == 204
    (taken,) = api.call("POST", f"{ORDERS}/peek?timeout=0&after={locked['lookup_id']}&{own}").json["messages"]
    assert (locked["body"], taken["body"]) == ("c", "d")
    wanted = f"message_id={quote(taken['id'])}&timeout=0&{own}"
    assert api.call("POST", f"{ORDERS}/receive?{wanted}").json["messages"][0]["body"] == "d"
    assert api.call("POST", f"{OTHER}/receive?timeout=0&{own}").status == 404, "a handle reads its own queue alone"
    peeking = api.call("POST", f"{API}/handles", {"queue": "private$/other", "access": "peek"}).json["handle"]
    assert api.call("POST", f"{OTHER}/receive?timeout=0&handle={peeking}").status == 403
    assert api.call("DELETE", f"{API}/handles/{own.partition('=')[2]}").status == 204
    assert api.call("POST", f"{ORDERS}/receive?timeout=0&{own}").status == 404
    assert api.call("POST", f"{ORDERS}/receive?timeout=0").json["messages"][0]["body"] == "e"


def test_one_message_by_its_lookup_id(api: Served) -> None:
    api.send("a", "b", "c")
    ids = [each["lookup_id"] for each in listed(api)]
    found = {
        action: api.call("GET", f"{ORDERS}/messages/{ids[1]}?action={action}").json["body"]
        for action in ("current", "next", "previous", "first", "last")
    }
    assert found == {"current": "b", "next": "c", "previous": "a", "first": "a", "last": "c"}
    assert api.call("DELETE", f"{ORDERS}/messages/{ids[1]}").json["body"] == "b"
    assert api.bodies() == ["a", "c"]
    assert api.call("DELETE", f"{ORDERS}/messages/0?action=last").json["body"] == "c"


def test_a_receive_in_two_phases(api: Served) -> None:
    api.send("a", "b", "c")
    locked = api.call("POST", f"{ORDERS}/lock?count=2&timeout=0").json["messages"]
    ids = [each["lookup_id"] for each in locked]
    assert api.bodies() == ["c"]
    assert api.call("POST", f"{ORDERS}/settle", {"lookup_ids": ids[:1], "delete": True}).status == 204
    assert api.call("POST", f"{ORDERS}/settle", {"lookup_ids": ids[1:], "delete": False}).status == 204
    assert api.bodies() == ["b", "c"]


def test_one_wrong_id_strands_no_locked_message(api: Served) -> None:
    api.send("a")
    (locked,) = api.call("POST", f"{ORDERS}/lock?timeout=0").json["messages"]
    wrong = api.call("POST", f"{ORDERS}/settle", {"lookup_ids": [locked["lookup_id"], 5], "delete": True})
    assert wrong.status == 409
    assert api.call("POST", f"{ORDERS}/settle", {"lookup_ids": [locked["lookup_id"]], "delete": False}).status == 204
    assert api.bodies() == ["a"]


@pytest.mark.parametrize(
    ("method", "call"), [("GET", "messages"), ("POST", "receive"), ("POST", "peek"), ("POST", "lock")]
)
def test_records_wherever_messages_are(api: Served, method: str, call: str) -> None:
    api.send("a")
    accept = {"Accept": f"{RECORDS}, application/json"}  # as the Python client asks
    answer = api.call(method, f"{ORDERS}/{call}", headers=accept)
    assert answer.headers["content-type"] == RECORDS
    assert [record.text for record in decode_records(answer.body)] == ["a"]


def test_a_record_of_one_message(api: Served) -> None:
    api.send("a")
    lookup_id = listed(api)[0]["lookup_id"]
    answer = api.call("DELETE", f"{ORDERS}/messages/{lookup_id}", headers={"Accept": RECORDS})
    assert [record.lookup_id for record in decode_records(answer.body)] == [lookup_id]


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", "application/json"),
        ("text/html, */*;q=0.8", "application/json"),
        (f"application/json;q=0.5, {RECORDS}", RECORDS),
        (f"{RECORDS};q=0, application/*", "application/json"),
    ],
)
def test_accept_chooses_the_format(api: Served, accept: str, given: str) -> None:
    answer = api.call("GET", f"{ORDERS}/messages", headers={"Accept": accept})
    assert answer.headers["content-type"] == given


# Rescue


def test_messages_move_by_id_and_by_place(api: Served) -> None:
    api.send("a", "b", "c", "d")
    ids = [each["lookup_id"] for each in listed(api)]
    moved = api.call("POST", f"{ORDERS}/move", {"to": "private$/other", "lookup_ids": [ids[2]]})
    assert moved.json == {"moved": [ids[2]], "locked": 0}
    moved = api.call("POST", f"{ORDERS}/move", {"to": "private$\\other", "after": ids[0], "limit": 1})
    assert moved.json == {"moved": [ids[1]], "locked": 0}
    assert (api.bodies(), api.bodies(OTHER)) == (["a", "d"], ["c", "b"])


def test_packets_leave_and_come_back_byte_for_byte(api: Served) -> None:
    api.send("a", "b", "c", recoverable=True)
    first = api.call("GET", f"{ORDERS}/packets?limit=2")
    rest = api.call("GET", f"{ORDERS}/packets?after={first.headers['postroad-last-lookup-id']}")
    assert first.headers["content-type"] == "application/octet-stream"
    packets = first.body + rest.body
    done = api.call("GET", f"{ORDERS}/packets?after={rest.headers['postroad-last-lookup-id']}")
    assert (done.body, "postroad-last-lookup-id" in done.headers) == (b"", False)
    put = api.call("POST", f"{OTHER}/packets", body=packets)
    assert put.status == 201
    assert put.json["lookup_ids"] == [each["lookup_id"] for each in listed(api, OTHER)]
    assert api.call("GET", f"{OTHER}/packets").body == packets


def test_whoever_passes_over_locked_messages_says_how_many(api: Served) -> None:
    api.send("a", "b", "c")
    api.call("POST", f"{ORDERS}/lock?count=2&timeout=0")
    for path in ("messages", "packets"):
        assert api.call("GET", f"{ORDERS}/{path}").headers["postroad-locked"] == "2"
    moved = api.call("POST", f"{ORDERS}/move", {"to": "private$/other"}).json
    assert (len(moved["moved"]), moved["locked"]) == (1, 2)
    assert api.call("POST", f"{ORDERS}/purge").json == {"purged": 0, "locked": 2}
    assert api.call("POST", f"{ORDERS}/release", {}).json["locked"] == 0
    assert api.call("GET", ORDERS).json["messages"] == 0  # the purge reached those that were released too


# Locks


def test_locks_are_listed_with_their_owner_and_released(api: Served) -> None:
    api.send("a", "b")
    reply = api.call("POST", f"{ORDERS}/lock?count=2&timeout=0", headers={"Postroad-Client": "ann@host (pid 7)"})
    numbers = [each["lookup_id"] for each in reply.json["messages"]]
    (lock,) = api.call("GET", f"{API}/locks?queue=private$/orders").json["locks"]
    assert (lock["owner"], lock["kind"], lock["messages"]) == ("ann@host (pid 7) from 127.0.0.1", "receive", 2)
    assert lock["lookup_ids"] == numbers
    assert api.call("GET", f"{API}/status").json["locks"][0]["owner"] == lock["owner"]
    assert api.call("GET", f"{API}/locks?queue=private$/other").json == {"locks": []}
    assert api.call("GET", f"{API}/locks?queue=private$/none").status == 404
    released = api.call("POST", f"{ORDERS}/release", {"lookup_ids": numbers[1:]})
    assert released.json == {"released": numbers[1:], "locked": 1}
    assert api.call("POST", f"{ORDERS}/release", {"lookup_ids": numbers[1:]}).status == 409
    refused = api.call("POST", f"{ORDERS}/settle", {"lookup_ids": numbers, "delete": True})
    assert (refused.status, refused.json["error"]) == (409, "LeaseEnded")
    lease = reply.headers["postroad-lease"]
    settled = {"lookup_ids": numbers[:1], "delete": True, "leases": [lease]}
    assert api.call("POST", f"{ORDERS}/settle", settled | {"leases": [STRANGER]}).status == 409
    assert api.call("POST", f"{ORDERS}/settle", settled).status == 204
    assert api.bodies() == ["b"]


@pytest.mark.parametrize("said", ["", "\t", "x" * 5000, "caf\xe9"])
def test_an_owner_is_what_can_be_shown(api: Served, said: str) -> None:
    api.send("a")
    api.call("POST", f"{ORDERS}/lock?timeout=0", headers={"Postroad-Client": said})
    (lock,) = api.call("GET", f"{API}/locks").json["locks"]
    assert lock["owner"].endswith("127.0.0.1")
    assert len(lock["owner"]) < 300
    assert lock["owner"].isprintable()


def test_renewals_of_strangers_are_told_apart(api: Served) -> None:
    api.send("a")
    lease = api.call("POST", f"{ORDERS}/lock?timeout=0").headers["postroad-lease"]
    renewed = api.call("POST", f"{API}/leases/renew", {"leases": [lease, STRANGER]})
    assert renewed.json == {"renewed": [lease], "gone": [STRANGER]}
    for wrong in ({}, {"leases": ["x"]}, {"leases": [lease, lease]}, {"lease": lease}):
        assert api.call("POST", f"{API}/leases/renew", wrong).status == 400


# Transactions


def test_an_operator_lists_and_aborts_transactions(api: Served) -> None:
    begun = api.call("POST", f"{API}/transactions").json
    assert begun["lease_s"] == 60
    (told,) = api.call("GET", f"{API}/transactions").json["transactions"]
    assert (told["id"], told["owner"], told["messages"]) == (begun["id"], "127.0.0.1", 0)
    assert api.call("GET", f"{API}/status").json["transactions"][0]["id"] == begun["id"]
    assert api.call("DELETE", f"{API}/transactions/{begun['id']}").status == 204
    assert api.call("GET", f"{API}/transactions").json == {"transactions": []}
    refused = api.call("POST", f"{API}/transactions/{begun['id']}/commit")
    assert (refused.status, refused.json["error"]) == (409, "LeaseEnded")
    assert "by an operator" in refused.json["detail"]
    assert api.call("DELETE", f"{API}/transactions/{STRANGER}").status == 409


def test_a_transaction_spans_queues_and_happens_at_once(api: Served) -> None:
    api.create("private$/in", transactional=True)
    api.create("private$/out", transactional=True)
    source, target = f"{API}/queues/private$/in", f"{API}/queues/private$/out"
    api.call("POST", f"{source}/messages", {"body": "x", "transactional": True})
    for end, left in (("abort", (["x"], [])), ("commit", ([], ["y"]))):
        begun = api.call("POST", f"{API}/transactions")
        identifier = begun.json["id"]
        assert begun.status == 201
        taken = api.call("POST", f"{source}/receive?timeout=0&transaction={identifier}").json["messages"]
        assert [each["body"] for each in taken] == ["x"]
        assert api.call("POST", f"{target}/messages?transaction={identifier}", {"body": "y"}).status == 201
        assert (api.bodies(source), api.bodies(target)) == ([], [])
        assert api.call("POST", f"{API}/transactions/{identifier}/{end}").status == 204
        assert (api.bodies(source), api.bodies(target)) == left


# Handles and cursors


def test_a_cursor_walks_a_queue(api: Served) -> None:
    api.send("a", "b")
    opened = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "receive"})
    assert opened.status == 201
    handle = f"{API}/handles/{opened.json['handle']}"
    made = api.call("POST", f"{handle}/cursors")
    assert made.status == 201
    cursor = f"{handle}/cursors/{made.json['cursor']}"
    assert api.call("POST", f"{cursor}/peek?timeout=0").json["body"] == "a"
    assert api.call("POST", f"{cursor}/peek-next?timeout=0").json["body"] == "b"
    assert api.call("POST", f"{cursor}/receive?timeout=0").json["body"] == "b"
    assert api.call("POST", f"{cursor}/receive?timeout=0").status == 204
    assert api.call("POST", f"{cursor}/peek?timeout=0").status == 204
    assert api.call("DELETE", cursor).status == 204
    assert api.call("DELETE", handle).status == 204
    assert api.bodies() == ["a"]


def test_failed_messages_go_back_to_where_they_failed(api: Served) -> None:
    headers = {"NServiceBus.FailedQ": "other@alpha", "NServiceBus.Retries": "3", "NServiceBus.MessageId": "1"}
    sent = [
        {"body": "failed", "app_tag": 7, "extension_base64": b64encode(write_headers(headers)).decode()},
        {"body": "another"},
    ]
    api.call("POST", f"{ORDERS}/messages", {"messages": sent})
    failed, another = (each["lookup_id"] for each in listed(api))
    answer = api.call("POST", f"{ORDERS}/resend", {"lookup_ids": [failed, another], "failed": True}).json
    first, second = answer["resent"]
    assert (first["to"], first["why"]) == (r"DIRECT=OS:alpha\private$\other", None)
    assert second["id"] is None
    assert "has no header NServiceBus.FailedQ" in second["why"]
    assert [each["body"] for each in listed(api)] == ["another"]
    (found,) = api.call("GET", f"{OTHER}/messages?decode=true").json["messages"]
    assert (found["body"], found["app_tag"], found["id"]) == ("failed", 7, first["id"])
    assert found["headers"] == {"NServiceBus.MessageId": "1"}
