"""OpenTelemetry: one message between two managers is one trace. Where tracing is off, messages stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import postroad
from tests.commands import PATIENCE_S, ServerProcess, serving

HOSTS = {"alpha": "127.0.0.61", "beta": "127.0.0.62"}
PORT = 11861
CONFIGURATION = r"""
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = {port}
http = false
ping = false
rpc = false
api = 0
[peers]
"127.0.0.61" = {{ binary = {port} }}
"127.0.0.62" = {{ binary = {port} }}
[[queue]]
path = 'private$\orders'
[tracing]
enabled = {enabled}
label_prefix = true
file = "{name}.jsonl"
"""


def configured(directory: Path, name: str, enabled: str = "true") -> Path:
    file = directory / f"{name}.toml"
    file.write_text(CONFIGURATION.format(name=name, host=HOSTS[name], port=PORT, enabled=enabled))
    return file


def spans_of(directory: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text().splitlines()]


def test_a_message_between_two_managers_is_one_trace(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    own = postroad.Message("with an extension", label="own", extension=b"mine", recoverable=True)
    servers = [ServerProcess(configured(tmp_path, name)) for name in HOSTS]
    try:
        with postroad.connect(servers[0].api) as alpha, postroad.connect(servers[1].api) as beta:
            ids = alpha.send(rf"DIRECT=TCP:{HOSTS['beta']}\private$\orders", ["first", own])
            received = [beta.queue(r"private$\orders").receive(timeout=PATIENCE_S) for _ in ids]
        for server in servers:
            server.end()
    finally:
        for server in servers:
            server.close()
    first, second = sorted(received, key=lambda message: ids.index(message.id))
    assert first.extension.startswith(b"traceparent: 00-")
    assert second.extension == b"mine"
    assert second.label.startswith("[00-")
    assert second.label.endswith("] own")
    sent, arrived = spans_of(tmp_path, "alpha"), spans_of(tmp_path, "beta")
    for message_id in ids:
        (root,) = [each for each in sent if each["attributes"]["messaging.message.id"] == message_id]
        journey = [each for each in arrived if each["attributes"]["messaging.message.id"] == message_id]
        assert (root["name"], root["parent_id"]) == ("send", None)
        assert [each["name"] for each in journey] == ["transfer", "receive"]
        for each in journey:
            assert each["context"]["trace_id"] == root["context"]["trace_id"]
            assert each["parent_id"] == root["context"]["span_id"]
            assert each["start_time"] <= each["end_time"]
    assert {each["resource"]["attributes"]["service.name"] for each in sent} == {"alpha"}


def test_messages_stay_as_they_are_where_it_is_off(tmp_path: Path) -> None:
    with serving(configured(tmp_path, "alpha", "false")) as server, postroad.connect(server.api) as alpha:
        alpha.queue(r"private$\orders").send("text")
        assert alpha.queue(r"private$\orders").receive(0).extension == b""
    assert not (tmp_path / "alpha.jsonl").exists()
