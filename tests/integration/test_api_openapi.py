"""The OpenAPI description says what is served, and the server itself answers every request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from postroad.api import build_app
from postroad.api.app import OPERATIONS
from postroad.api.calls import Operation
from postroad.api.formats import ARROW, RECORDS, SUPPORTED
from postroad.api.openapi import path_names
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.store import MemoryStore, open_store
from tests.served import API, ORDERS, Served, served

UNDESCRIBED = {"/", "/docs", "/metrics", "/healthz", "/readyz", f"{API}/openapi.json"}


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server on a real store, for many requests."""
    with served(open_store(tmp_path_factory.mktemp("store"))) as running:
        running.create()
        running.create("private$/exact", transactional=True)
        yield running


def resolve(document: Any, schema: Any) -> Any:
    while "$ref" in schema:
        *_, name = schema["$ref"].split("/")
        schema = document["components"]["schemas"][name]
    return schema


TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def conform(document: Any, schema: Any, value: Any) -> None:
    """The part of JSON Schema that describes our answers. An unknown keyword fails."""
    schema = resolve(document, schema)
    known = {"type", "properties", "required", "items", "enum", "format", "contentEncoding", "pattern"}
    assert set(schema) <= known
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, TYPES[kind]) for kind in kinds)
    if isinstance(value, bool):
        assert "boolean" in kinds
    if "enum" in schema:
        assert value in schema["enum"]
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"])
        for name, each in value.items():
            conform(document, schema["properties"][name], each)
    if isinstance(value, list):
        for each in value:
            conform(document, schema["items"], each)


def test_every_route_is_described_and_nothing_else(api: Served) -> None:
    document = api.call("GET", f"{API}/openapi.json").json
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    routes = build_app(build_manager(default_configuration("alpha"), MemoryStore())).routes
    served_routes = {
        (route.template, method) for route in routes if route.template not in UNDESCRIBED for method in route.endpoints
    }
    assert described == served_routes


def test_the_document_is_whole(api: Served) -> None:
    document = api.call("GET", f"{API}/openapi.json").json
    assert document["openapi"].startswith("3.1")
    identifiers = []
    for path, item in document["paths"].items():
        for operation in item.values():
            identifiers.append(operation["operationId"])
            in_path = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
            assert in_path == path_names(path)
            names = [(each["in"], each["name"]) for each in operation["parameters"]]
            assert len(names) == len(set(names))
            assert any(status.startswith("2") for status in operation["responses"])
    assert len(identifiers) == len(set(identifiers))
    references = [part.split('"')[0] for part in json.dumps(document).split('"$ref": "')[1:]]
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_answers_are_as_described(api: Served) -> None:
    document = api.call("GET", f"{API}/openapi.json").json
    api.send(
        "text",
        "more",
        recoverable=True,
        admin_queue="private$/orders",
        correlation_id="{" + "0" * 8 + "-0000-0000-0000-" + "0" * 11 + "1}\\2",
    )
    api.call("POST", f"{ORDERS}/messages", body=b"\x00\xff")
    api.call("POST", f"{API}/queues/DIRECT=OS:beta%5Cq/messages", {"body": "away"})
    asked = [
        ("get", "/manager", f"{API}/manager"),
        ("get", "/status", f"{API}/status"),
        ("get", "/queues", f"{API}/queues"),
        ("get", "/queues/{queue}", ORDERS),
        ("get", "/queues/{queue}/messages", f"{ORDERS}/messages"),
        ("post", "/queues/{queue}/receive", f"{ORDERS}/receive"),
        ("post", "/queues/{queue}/purge", f"{ORDERS}/purge"),
        ("post", "/transactions", f"{API}/transactions"),
        ("get", "/queues/{queue}", f"{API}/queues/private$/none"),
    ]
    for method, path, url in asked:
        answer = api.call(method.upper(), url)
        described = document["paths"][API + path][method]["responses"][str(answer.status)]["content"]
        conform(document, described[answer.headers["content-type"]]["schema"], answer.json)


# Fuzzing

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
LOCAL_NAMES = ["private$\\orders", "private$\\exact", ";deadletter", "private$\\orders;journal", "private$/orders", "x"]
OTHER_NAMES = ["private$\\order_queue$", "DIRECT=OS:beta\\q", "DIRECT=HTTP://beta/msmq/q", "MULTICAST=234.1.1.1:8001"]
names = st.sampled_from([*LOCAL_NAMES, *OTHER_NAMES]) | st.text(max_size=30)
numbers = st.sampled_from(["0", "1", "-1", str(2**63 - 1), str(2**64), "9" * 30, "1e3", "nan", ""])
small = st.sampled_from(["0", "0.001", "-1", "nan", "x"])


def known_keys(operation: Operation) -> list[str]:
    keys = ["path", "label", "priority", "body", "body_base64", "messages", "transactional", "lookup_ids", "delete"]
    keys += ["to", "after", "limit", "queue", "access", "share", "ack", "trace", "admin_queue", "correlation_id"]
    return [*keys, "class", "connector_type", "quota_kb", "privacy", "time_to_be_received", *path_names(operation.path)]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    operation = draw(st.sampled_from(OPERATIONS))
    path = operation.path
    for name in path_names(path):
        value = draw(names if name == "queue" else numbers | st.text(min_size=1, max_size=10))
        path = path.replace(f"{{{name}}}", quote(value.encode("utf-8", "replace"), safe="") or "-")
    query = {}
    for parameter in draw(st.lists(st.sampled_from(operation.parameters), max_size=3)) if operation.parameters else []:
        query[parameter.name] = draw(numbers | st.text(max_size=10))
    if any(parameter.name == "timeout" for parameter in operation.parameters):
        query["timeout"] = draw(small)  # always: without one the read would wait
    headers = {}
    body = None
    if operation.body is not None or draw(st.booleans()):
        keyed = st.dictionaries(st.sampled_from(known_keys(operation)) | st.text(max_size=5), json_values, max_size=4)
        body = draw(st.binary(max_size=40) | (keyed | json_values).map(lambda value: json.dumps(value).encode()))
        headers["Content-Type"] = draw(st.sampled_from(["application/json", "text/plain", "x", ""]))
    headers["Accept"] = draw(st.sampled_from([*SUPPORTED, "*/*", "text/html", ";;q=,", ""]))
    text = urlencode({name: value.encode("utf-8", "replace") for name, value in query.items()})
    return operation.method, f"{API}{path}{'?' if text else ''}{text}", body, headers


def internal(query: str, accept: str) -> tuple[str, str, None, dict[str, str]]:
    """A request for messages that nobody may see. Its refusal must come before an answer has begun."""
    return "GET", f"{API}/queues/private$%5Corder_queue$/messages?{query}", None, {"Accept": accept}


@given(request=requests())
@example(request=internal("from=0", "application/json"))
@example(request=internal("from=0&hold=x", RECORDS))
@example(request=internal("priority=3&limit=1", ARROW))
@example(request=internal("after=0", "*/*"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_is_a_fault_of_the_server(
    durable: Served, request: tuple[str, str, bytes | None, dict[str, str]]
) -> None:
    method, path, body, headers = request
    answer = durable.call(method, path, body=body, headers=headers)
    assert answer.status < 500 or answer.json["error"] == "QuotaExceeded"
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["detail"]
    assert durable.call("GET", f"{API}/status").status == 200
