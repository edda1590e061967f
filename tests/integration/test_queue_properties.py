"""Every interface follows the table of queue properties. A property that one of them lacks fails here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroad
from postroad.cli.commands import load
from postroad.config import ConfiguredQueue, load_configuration
from postroad.errors import InvalidArgument, UnsupportedFormatNameOperation
from postroad.queues.properties import QueueProperties
from postroad.reports.info import QueueInfo
from postroad.validation.queue_properties import (
    CHANGEABLE,
    QUEUE_PROPERTIES,
    QueueAttributes,
    QueuePrivacy,
    QueueProperty,
)
from tests.served import API, ORDERS, Served, served

DOCS = Path(__file__).parents[2] / "docs" / "reference"
# For each property a value other than its default, and an invalid one.
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "transactional": (True, "yes"),
    "label": ("orders", "x" * 125),
    "journal": (True, 1),
    "quota_kb": (10, -1),
    "journal_quota_kb": (20, 1 << 32),
    "authenticate": (True, "no"),
    "privacy": ("body", "full"),
    "abort_limit": (3, 0),
    "base_priority": (-7, 32768),
    "multicast_address": ("234.1.1.1:8001", "10.0.0.1:8001"),
}
GOOD = {name: good for name, (good, _) in EXAMPLES.items()}
# A transactional queue cannot listen to a multicast address.
TOGETHER = [
    {name: good for name, good in GOOD.items() if name != out} for out in ("multicast_address", "transactional")
]


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        yield running


def toml(values: dict[str, Any]) -> str:
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    return f"[manager]\nname = \"alpha\"\n[[queue]]\npath = '.\\orders'\n{lines}"


def option(each: QueueProperty) -> str:
    return f"--{each.name.replace('_', '-')}"


def test_each_property_has_an_example() -> None:
    assert list(EXAMPLES) == list(QUEUE_PROPERTIES)
    for name, each in QUEUE_PROPERTIES.items():
        assert each.help
        assert each.kind(GOOD[name]) != each.default


def test_type_checkers_know_the_properties() -> None:
    assert list(QueueAttributes.__annotations__) == list(QUEUE_PROPERTIES)


def test_the_file_sets_each_property(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text(toml(GOOD), encoding="utf-8")
    (queue,) = load_configuration(file).queues
    assert {name: getattr(queue, name) for name in GOOD} == GOOD
    file.write_text(toml({}), encoding="utf-8")
    (plain,) = load_configuration(file).queues
    assert {name: getattr(plain, name) for name in GOOD} == {n: each.default for n, each in QUEUE_PROPERTIES.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_surface_refuses_what_does_not_fit_by_its_name(api: Served, tmp_path: Path, name: str) -> None:
    bad = EXAMPLES[name][1]
    file = tmp_path / "alpha.toml"
    file.write_text(toml({name: bad}), encoding="utf-8")
    with pytest.raises(postroad.PostroadError, match=rf"queue\[1\]\.{name}: must "):
        load_configuration(file)
    answer = api.call("POST", f"{API}/queues", {"path": r".\orders", name: bad})
    assert (answer.status, answer.json["code"]) == (400, "INVALID_PARAMETER")
    assert answer.json["detail"].startswith(f"{name}: must ")
    with (
        postroad.open(tmp_path / "data") as manager,
        pytest.raises(InvalidArgument, match=f"^{name}: must "),
    ):
        manager.create_queue(r".\orders", **{name: bad})


def test_the_api_sets_changes_and_shows_each_property(api: Served) -> None:
    for path, given in zip((r".\orders", r".\news"), TOGETHER, strict=True):
        heard = {name: value for name, value in given.items() if name != "multicast_address"}
        made = api.call("POST", f"{API}/queues", {"path": path, **heard})
        assert {name: made.json[name] for name in heard} == heard
    api.create(r".\plain")
    changes = {name: GOOD[name] for name in CHANGEABLE if name != "multicast_address"}
    changed = api.call("PATCH", f"{API}/queues/.%5Cplain", changes)
    assert {name: changed.json[name] for name in changes} == changes
    for name in QUEUE_PROPERTIES.keys() - CHANGEABLE.keys():
        assert api.call("PATCH", f"{API}/queues/.%5Corders", {name: GOOD[name]}).status == 400


def test_where_multicast_is_off_nothing_is_sent_or_listened_to(api: Served) -> None:
    off = "multicast is off here: set `enabled = true` in [multicast]"
    address = {"multicast_address": GOOD["multicast_address"]}
    made = api.call("POST", f"{API}/queues", {"path": r".\news", **address})
    assert (made.status, made.json["detail"].startswith(f"multicast_address: {off}")) == (400, True)
    api.create(r".\plain")
    changed = api.call("PATCH", f"{API}/queues/.%5Cplain", address)
    assert (changed.status, changed.json["detail"].startswith(f"multicast_address: {off}")) == (400, True)
    assert api.call("PATCH", f"{API}/queues/.%5Cplain", {"multicast_address": None}).status == 200
    group = f"MULTICAST={GOOD['multicast_address']}"
    with postroad.connect(api.server.url) as remote, postroad.open(":memory:") as embedded:
        for manager in (remote, embedded):
            with pytest.raises(
                UnsupportedFormatNameOperation, match=r"cannot send to MULTICAST=.*: multicast is off here"
            ):
                manager.send(group, "x")
            assert [each.path for each in manager.queues() if each.type == "outgoing"] == []


def test_openapi_describes_each_property(api: Served) -> None:
    schemas = api.call("GET", f"{API}/openapi.json").json["components"]["schemas"]
    assert list(schemas["NewQueue"]["properties"]) == ["path", "public", *QUEUE_PROPERTIES]
    assert list(schemas["QueueChanges"]["properties"]) == list(CHANGEABLE)
    assert schemas["Queue"]["properties"].keys() >= QUEUE_PROPERTIES.keys()
    for name, each in QUEUE_PROPERTIES.items():
        described = schemas["NewQueue"]["properties"][name]
        assert described == json.loads(json.dumps(each.json_kind.schema)) | {"description": each.help}


def test_the_verbs_set_each_property_and_the_store_keeps_it(tmp_path: Path) -> None:
    with postroad.open(tmp_path) as manager:
        for number, given in enumerate(TOGETHER):
            manager.create_queue(rf".\orders{number}", **given)
    with postroad.open(tmp_path) as manager:
        for number, given in enumerate(TOGETHER):
            info = manager.queue(rf".\orders{number}").info()
            assert {name: getattr(info, name) for name in given} == given


def test_a_store_of_the_first_version_is_read() -> None:
    stored = (
        b'{"queue_type":"private","path":"private$\\\\orders","identifier":"a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf",'
        b'"private_queue_number":9,"transactional":true,"label":"a\\nb","journaling":true,"quota_kb":10,'
        b'"journal_quota_kb":null,"authenticate":false,"privacy":"body","type_id":'
        b'"00000000-0000-0000-0000-000000000000","base_priority":0,"abort_limit":3,"multicast_address":null,'
        b'"create_time":1,"modify_time":2,"owner":null}'
    )
    properties = QueueProperties.decode(stored, "orders")
    assert (properties.journal, properties.journal_quota_kb, properties.label) == (True, 1048576, "a\nb")
    assert properties.privacy is QueuePrivacy.BODY
    assert json.loads(properties.encode()).items() >= (json.loads(stored) | {"journal_quota_kb": 1048576}).items()


@pytest.mark.parametrize(("command", "table"), [("create", QUEUE_PROPERTIES), ("set", CHANGEABLE)])
def test_the_commands_have_an_option_for_each_property(command: str, table: dict[str, QueueProperty]) -> None:
    options = {name for each in load("queue").build(command).params for name in each.opts}  # type: ignore[union-attr]
    assert {option(each) for each in table.values()} <= options
    assert not {option(each) for name, each in QUEUE_PROPERTIES.items() if name not in table} & options


def test_the_word_none_is_no_limit_for_a_command() -> None:
    assert QUEUE_PROPERTIES["quota_kb"].from_text("none") == 0xFFFFFFFF
    assert QUEUE_PROPERTIES["journal_quota_kb"].from_text("None") == 0xFFFFFFFF
    assert QUEUE_PROPERTIES["abort_limit"].from_text("none") is None


def test_dataclasses_have_each_property() -> None:
    for kind in (ConfiguredQueue, QueueInfo, QueueProperties):
        assert kind.__dataclass_fields__.keys() >= QUEUE_PROPERTIES.keys()


def row(each: QueueProperty) -> str:
    no_value = "none" if each.name == "multicast_address" else "no limit"
    default = no_value if each.default is None else f"`{json.dumps(each.default)}`"
    return f"| `{each.name}` | {each.help} | {default} |"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_reference_has_each_property(name: str) -> None:
    each = QUEUE_PROPERTIES[name]
    assert row(each) in (DOCS / "configuration.md").read_text(encoding="utf-8").splitlines()
    assert f"`{name}`" in (DOCS / "http-api.md").read_text(encoding="utf-8")
    assert f"`{option(each)}" in (DOCS / "commands.md").read_text(encoding="utf-8")


def test_a_private_queue_has_no_base_priority_on_any_surface(api: Served, tmp_path: Path) -> None:
    refused = "base_priority: must be 0, because only a public queue has a base priority"
    file = tmp_path / "alpha.toml"
    file.write_text(toml({"base_priority": 5}).replace(r".\orders", r"private$\orders"), encoding="utf-8")
    with pytest.raises(postroad.PostroadError, match=rf"queue\[1\]\.{refused}"):
        load_configuration(file)
    answer = api.call("POST", f"{API}/queues", {"path": "private$/orders", "base_priority": 5})
    assert (answer.status, answer.json["detail"]) == (400, refused)
    api.create("private$/orders")
    for given, status in ((5, 400), (0, 200)):
        assert api.call("PATCH", ORDERS, {"base_priority": given}).status == status
    with postroad.open(tmp_path / "data") as manager, pytest.raises(InvalidArgument, match=refused):
        manager.create_queue(r"private$\orders", base_priority=-1)
