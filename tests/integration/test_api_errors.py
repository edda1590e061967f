"""Every error of the HTTP API: its status, its HRESULT, and a sentence that names the fault."""

from __future__ import annotations

import inspect
import json
import re
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import postroad.errors
from postroad.api import json_values
from postroad.api.json_values import MAX_BATCH_MESSAGES, MAX_JSON_BYTES
from postroad.api.messages import MAX_BATCH_BYTES
from postroad.api.problems import MAX_DETAIL, STATUSES, status_of
from postroad.errors import MessageTooLarge, PostroadError
from postroad.message import ACK_WORDS
from postroad.wire.constants import MAX_PACKET_SIZE
from tests.served import API, ORDERS, FailingStore, Reply, Served, served

EXACT = f"{API}/queues/private$/exact"
UNKNOWN = "0f0e0d0c-0b0a-0908-0706-050403020100"


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        running.create("private$/exact", transactional=True)
        yield running


def check(answer: Reply, status: int, hresult: str, code: str, *words: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json
    assert (answer.status, told["status"], told["hresult"], told["code"]) == (status, status, hresult, code)
    assert issubclass(getattr(postroad.errors, told["error"]), PostroadError)
    assert told["title"]
    for word in words:
        assert word in told["detail"]


@pytest.mark.parametrize(
    ("method", "path", "value", "status", "hresult", "code", "word"),
    [
        ("GET", "/queues/private$/none", None, 404, "0xC00E0003", "QUEUE_NOT_FOUND", "private$\\none"),
        ("POST", "/queues", {"path": "private$/orders"}, 409, "0xC00E0005", "QUEUE_EXISTS", "orders"),
        ("POST", "/queues", {"path": "private$/a,b"}, 400, "0xC00E0014", "ILLEGAL_QUEUE_PATHNAME", "character"),
        ("GET", "/queues/DIREKT=OS:a%5Cb", None, 400, "0xC00E001E", "ILLEGAL_FORMATNAME", "DIRECT="),
        ("GET", f"/queues/MACHINE={UNKNOWN}", None, 404, "0xC00E0003", "QUEUE_NOT_FOUND", "MACHINE="),
        ("POST", "/queues", {}, 400, "0xC00E0006", "INVALID_PARAMETER", "path"),
        ("POST", "/queues", {"path": "private$/x", "jurnal": True}, 400, "0xC00E0006", "INVALID_PARAMETER", "journal?"),
        (
            "POST",
            "/queues",
            {"path": 5},
            400,
            "0xC00E0006",
            "INVALID_PARAMETER",
            "path: must be a",
        ),
        ("POST", "/queues", [], 400, "0xC00E0006", "INVALID_PARAMETER", "object"),
        ("PATCH", "/queues/private$/orders", {"transactional": True}, 400, "0xC00E0006", "INVALID_PARAMETER", "trans"),
        ("PATCH", "/queues/private$/orders", {"label": "x" * 125}, 400, "0xC00E0006", "INVALID_PARAMETER", "124"),
        ("DELETE", "/queues/;deadletter", None, 403, "0xC00E0025", "ACCESS_DENIED", "deadletter"),
        ("POST", "/queues/private$/orders/pause", None, 400, "0xC00E0020", "UNSUPPORTED_FORMATNAME_OPERATION", "outg"),
        ("POST", "/queues/;journal/messages", {}, 400, "0xC00E0020", "UNSUPPORTED_FORMATNAME_OPERATION", "journal"),
        ("POST", "/queues/private$/exact/messages", {}, 409, "0xC00E0050", "TRANSACTION_USAGE", "transactional"),
        (
            "POST",
            f"/queues/private$/exact/messages?transaction={UNKNOWN}",
            {},
            409,
            "0xC00E0051",
            "TRANSACTION_SEQUENCE",
            UNKNOWN,
        ),
        ("POST", f"/transactions/{UNKNOWN}/commit", None, 409, "0xC00E0051", "TRANSACTION_SEQUENCE", UNKNOWN),
        ("POST", "/transactions/x/abort", None, 400, "0xC00E0006", "INVALID_PARAMETER", "id"),
        ("GET", "/queues/private$/orders/messages/5", None, 404, "0xC00E0088", "MESSAGE_NOT_FOUND", "5"),
        ("GET", "/queues/private$/orders/messages/x", None, 400, "0xC00E0006", "INVALID_PARAMETER", "lookup_id"),
        ("DELETE", "/handles/77", None, 404, "0xC00E0007", "INVALID_HANDLE", "77"),
        ("DELETE", "/handles/x", None, 404, "0xC00E0007", "INVALID_HANDLE", "x"),
        ("GET", "/queues/private$/orders/messages?limt=1", None, 400, "0xC00E0006", "INVALID_PARAMETER", "limit"),
        ("GET", "/queues/private$/orders/messages?limit=0", None, 400, "0xC00E0006", "INVALID_PARAMETER", "limit"),
        ("POST", "/queues/private$/orders/receive?timeout=-1", None, 400, "0xC00E0006", "INVALID_PARAMETER", "timeout"),
        ("POST", "/queues/private$/orders/receive?timeout=nan", None, 400, "0xC00E0006", "INVALID_PARAMETER", "timeo"),
        ("POST", "/queues/private$/orders/peek?count=1&count=2", None, 400, "0xC00E0006", "INVALID_PARAMETER", "twice"),
        ("GET", "/nothing", None, 404, "0xC00E0001", "ERROR", "/api/v1/nothing"),
        ("PUT", "/queues", None, 405, "0xC00E0001", "ERROR", "PUT"),
        ("POST", "/queues/orders/messages", None, 405, "0xC00E0001", "ERROR", "write private$/orders/messages"),
        ("PUT", "/queues/private$/orders", None, 405, "0xC00E0001", "ERROR", "PATCH"),
    ],
)
def test_a_refused_call(
    api: Served, method: str, path: str, value: object, status: int, hresult: str, code: str, word: str
) -> None:
    check(api.call(method, f"{API}{path}", value), status, hresult, code, word)


def test_the_manager_itself_is_no_queue(api: Served) -> None:
    own = f"{API}/queues/MACHINE={api.manager.identifier}"
    check(api.call("GET", f"{own}/messages"), 404, "0xC00E0003", "QUEUE_NOT_FOUND")
    assert 400 <= api.call("POST", f"{own}/messages", {}).status < 500


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"labell": "x"}, "labell: there is no such property; did you mean label?"),
        ({"priority": 8}, "priority: must be between 0 and 7, got 8"),
        ({"priority": True}, "priority: must be a whole number, got true"),
        ({"priority": 3.0}, "priority: must be a whole number, got the number 3.0"),
        ({"body": 5}, "body: must be text, got the number 5"),
        ({"body": "x", "body_base64": "eA=="}, "two forms"),
        ({"body_base64": "x!"}, "body_base64"),
        (
            {"ack": ["sometimes"]},
            "nack-receive, full, got 'sometimes'",
        ),
        ({"ack": 256}, "ack: must be between 0 and 255, got 256"),
        ({"connector_type": "x"}, "connector_type"),
        ({"transactional": "yes"}, "transactional"),
        ({"messages": {}}, "messages: must be a list, got an object"),
        ({"messages": [{}, 5]}, "messages[1]"),
        ({"messages": [{"label": None}]}, "messages[0].label"),
        ({"messages": [], "label": "x"}, "label"),
        ({"messages": [{}] * (MAX_BATCH_MESSAGES + 1)}, str(MAX_BATCH_MESSAGES)),
    ],
)
def test_a_message_at_fault_is_named(api: Served, message: object, word: str) -> None:
    check(api.call("POST", f"{ORDERS}/messages", message), 400, "0xC00E0006", "INVALID_PARAMETER", word)
    assert api.bodies() == []


def test_properties_of_a_json_message_do_not_stand_in_the_url(api: Served) -> None:
    check(api.call("POST", f"{ORDERS}/messages?label=x", {}), 400, "0xC00E0006", "INVALID_PARAMETER", "label")


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b'{"priority": NaN}', b"\xff\xfe\xff", b""])
def test_what_is_not_json_is_refused(api: Served, body: bytes) -> None:
    answer = api.call("POST", f"{ORDERS}/messages", body=body, headers={"Content-Type": "application/json"})
    check(answer, 400, "0xC00E0006", "INVALID_PARAMETER", "body")


@pytest.mark.parametrize("order", [{"lookup_ids": [1, 1], "delete": True}, {"lookup_ids": [1]}, {"delete": True}])
def test_a_settlement_at_fault(api: Served, order: object) -> None:
    check(api.call("POST", f"{ORDERS}/settle", order), 400, "0xC00E0006", "INVALID_PARAMETER")


def test_a_move_says_which_messages_in_one_way(api: Served) -> None:
    order = {"to": "private$/exact", "lookup_ids": [1], "limit": 5}
    check(api.call("POST", f"{ORDERS}/move", order), 400, "0xC00E0006", "INVALID_PARAMETER", "lookup_ids")


@pytest.mark.parametrize("cut", [-1, 3])
def test_a_packet_at_fault_has_its_place(api: Served, cut: int) -> None:
    api.send("a", "b")
    packets = api.call("GET", f"{ORDERS}/packets").body
    bad = packets[:cut] if cut < 0 else packets + b"\0" * 16
    check(api.call("POST", f"{ORDERS}/packets", body=bad), 400, "0xC00E0001", "ERROR", "at byte")
    assert api.bodies() == ["a", "b"]


def test_a_message_that_somebody_else_took_is_gone(api: Served) -> None:
    api.send("a", recoverable=True)
    opened = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "peek"}).json["handle"]
    cursor = api.call("POST", f"{API}/handles/{opened}/cursors").json["cursor"]
    path = f"{API}/handles/{opened}/cursors/{cursor}"
    assert api.call("POST", f"{path}/peek?timeout=0").status == 200
    api.call("POST", f"{ORDERS}/receive?timeout=0")
    check(api.call("POST", f"{path}/peek?timeout=0"), 410, "0xC00E001D", "MESSAGE_ALREADY_RECEIVED")


def test_a_queue_that_was_deleted_while_open_is_gone(api: Served) -> None:
    opened = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "peek"}).json["handle"]
    api.call("DELETE", ORDERS)
    check(api.call("POST", f"{API}/handles/{opened}/cursors"), 410, "0xC00E004B", "QUEUE_NOT_AVAILABLE")


def test_a_handle_does_what_it_was_opened_for(api: Served) -> None:
    api.send("a")
    opened = api.call("POST", f"{API}/handles", {"queue": "private$/orders", "access": "peek"}).json["handle"]
    cursor = api.call("POST", f"{API}/handles/{opened}/cursors").json["cursor"]
    path = f"{API}/handles/{opened}/cursors/{cursor}"
    check(api.call("POST", f"{path}/peek-next?timeout=0"), 409, "0xC00E001C", "ILLEGAL_CURSOR_ACTION")
    check(api.call("POST", f"{path}/receive?timeout=0"), 403, "0xC00E0025", "ACCESS_DENIED")


def test_an_exclusive_handle_keeps_others_out(api: Served) -> None:
    opening = {"queue": "private$/orders", "access": "receive", "share": "deny-receive"}
    handle = api.call("POST", f"{API}/handles", opening).json["handle"]
    check(api.call("POST", f"{ORDERS}/receive?timeout=0"), 409, "0xC00E0009", "SHARING_VIOLATION")
    assert api.call("DELETE", f"{API}/handles/{handle}").status == 204
    assert api.call("POST", f"{ORDERS}/receive?timeout=0").status == 204


def test_a_full_queue_says_how_full(api: Served) -> None:
    api.create("private$/small", quota_kb=1)
    answer = api.call("POST", f"{API}/queues/private$/small/messages", {"body": "x" * 2000})
    check(answer, 507, "0xC00E0027", "INSUFFICIENT_RESOURCES", "quota_kb of private$\\small")
    assert (answer.json["error"], answer.json["limit_bytes"]) == ("QuotaExceeded", 1024)
    assert {"current_bytes", "setting"} <= set(answer.json)


def test_too_large_is_413(api: Served) -> None:
    too_large = ("0xC00E0027", "INSUFFICIENT_RESOURCES")
    check(api.call("POST", f"{ORDERS}/messages", {"body": "x" * MAX_PACKET_SIZE}), 413, *too_large, "4 MiB")
    check(api.call("POST", f"{ORDERS}/messages", body=b"x" * MAX_PACKET_SIZE), 413, *too_large, "4 MiB")
    for path, limit in (("messages", MAX_PACKET_SIZE), ("packets", MAX_BATCH_BYTES), ("settle", 1 << 20)):
        declared = {"Content-Length": str(limit + 1)}
        check(api.call("POST", f"{ORDERS}/{path}", headers=declared), 413, *too_large, str(limit))


@pytest.mark.parametrize("value", [b"[],", b'"",', b"{},", b'"\\\\",', b'"[\\"",'])
@pytest.mark.parametrize("path", ["messages", "messages?separate=true", "submissions/job/0/0"])
def test_json_with_more_values_than_any_request_has_is_not_read(api: Served, path: str, value: bytes) -> None:
    values = value * (20_000_000 // len(value)) + b"0"
    for body in (b'{"messages":[' + values + b"]}", b'{"body":"x","ack":[' + values + b"]}"):
        answer = api.call("POST", f"{ORDERS}/{path}", body=body, headers={"Content-Type": "application/json"})
        check(answer, 413, "0xC00E0027", "INSUFFICIENT_RESOURCES", "values")
    declared = {"Content-Length": str(MAX_JSON_BYTES + 1), "Content-Type": "application/json"}
    answer = api.call("POST", f"{ORDERS}/{path}", headers=declared)
    check(answer, 413, "0xC00E0027", "INSUFFICIENT_RESOURCES", "send less at once")
    assert api.bodies() == []


def test_large_json_that_somebody_could_mean_is_read(api: Served) -> None:
    body = "\0" * (MAX_PACKET_SIZE - 1000)  # six characters each
    many = [{"body": '[{"a": 1, "b": [2, 3]}, "\\\\"]' * 40, "label": str(each)} for each in range(5000)]
    for sent in ({"body": body}, {"messages": many}):
        assert api.call("POST", f"{ORDERS}/messages", sent).status == 201
    in_utf_16 = json.dumps({"body": "x" * (1 << 20)}).encode("utf-16")
    answer = api.call("POST", f"{ORDERS}/messages", body=in_utf_16, headers={"Content-Type": "application/json"})
    check(answer, 400, "0xC00E0006", "INVALID_PARAMETER", "UTF-8")


def test_the_largest_number_of_messages_may_have_every_property() -> None:
    full = {
        **dict.fromkeys(json_values.MESSAGE_PROPERTIES, ""),
        "ack": list(ACK_WORDS),
        json_values.TRANSACTIONAL: True,
    }
    data = json.dumps({"messages": [full] * json_values.MAX_BATCH_MESSAGES}).encode()
    assert list(json_values.check_structure(data))


@given(
    value=st.recursive(
        st.text(alphabet='"\\[]{},:a\n\u20ac', max_size=12) | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='"\\,[', max_size=4), inner),
        max_leaves=30,
    ),
    step=st.integers(1, 9),
)
def test_values_are_counted_however_the_text_is_cut(value: object, step: int) -> None:
    """The contents of strings do not count, wherever a step ends."""
    data = json.dumps(value).encode()
    expected = len(re.findall(rb"[,[{]", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "SMALL_JSON", 0)
        patch.setattr(json_values, "_STEP", step)
        patch.setattr(json_values, "MAX_VALUES", expected)
        for _ in json_values.check_structure(data):
            pass
        patch.setattr(json_values, "MAX_VALUES", expected - 1)
        with pytest.raises(MessageTooLarge):
            list(json_values.check_structure(data))


@pytest.mark.parametrize("properties", [{}, {"body": "x"}])
def test_a_very_long_name_of_a_property_costs_nothing(api: Served, properties: dict[str, object]) -> None:
    """It is compared with no known name, and is not sent back."""
    name = "a" * (MAX_BATCH_BYTES // 16)
    tracemalloc.start()
    try:
        answer = api.call("POST", f"{ORDERS}/messages", {**properties, name: 1})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status == 400
    assert answer.json["detail"].startswith("aaa")
    assert "no such property" in answer.json["detail"]
    assert len(answer.json["detail"]) <= MAX_DETAIL + 5
    assert peak < 16 * len(name)


def test_a_number_of_thousands_of_digits_is_not_read(api: Served) -> None:
    body = b'{"messages": [{"app_tag": ' + b"7" * 4000 + b"}]}"
    answer = api.call("POST", f"{ORDERS}/messages", body=body, headers={"Content-Type": "application/json"})
    check(answer, 400, "0xC00E0006", "INVALID_PARAMETER", "at most 40 digits, got 4000")


def test_a_format_that_we_do_not_have(api: Served) -> None:
    answer = api.call("GET", f"{ORDERS}/messages", headers={"Accept": "text/html"})
    check(answer, 406, "0xC00E0006", "INVALID_PARAMETER", "application/json")


def test_a_store_that_cannot_write_is_503() -> None:
    store = FailingStore()
    with served(store) as api:
        api.create()
        store.full = True
        answer = api.call("POST", f"{ORDERS}/messages", {"body": "x", "recoverable": True})
        check(answer, 503, "0xE00E0001", "STORAGE", "the disk is full")
        store.full = False
        assert api.bodies() == []


def test_the_table_knows_every_error_by_itself_or_by_its_base() -> None:
    kinds = [
        each for _, each in inspect.getmembers(postroad.errors, inspect.isclass) if issubclass(each, PostroadError)
    ]
    assert set(STATUSES) <= set(kinds)
    told_by_base = {each.__name__ for each in kinds if each not in STATUSES and status_of(each) != 400}
    clients_own = {"CannotSign", "ManagerUnavailable", "MessagesGone", "PipelineError"}  # no server raises them
    clients_own |= {"SparkUnavailable", "UnreadableBody"}
    clients_own |= {"LdapError", "WrongIdentity"}  # the first is answered as a DirectoryError, the second ends a start
    clients_own |= {"LeaseLost"}  # it ends the process, which then answers nobody
    clients_own |= {
        "AuthenticationFailed",
        "BindRefused",
        "InterfaceNotOffered",
        "RemoteCancelled",
        "RpcFault",
        "RpcUnavailable",
    }  # and these are of RPC
    assert told_by_base <= clients_own
