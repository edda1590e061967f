"""The context of a trace inside a message, and the spans of a manager, in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from postroad.config import TracingSettings, default_configuration
from postroad.describe.received import ReceivedMessage
from postroad.errors import ConfigurationError, QueueNotFound
from postroad.manager import Manager, build_manager
from postroad.message import Message, Signature
from postroad.server.tracing import manager_class
from postroad.store import MemoryStore
from postroad.telemetry.trace_context import Carried, carried_by, carrying
from postroad.wire.constants import MAX_LABEL_UNITS

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
OTHER = f"00-{'c' * 32}-{'d' * 16}-00"


def test_the_extension_carries_the_context() -> None:
    message = carrying(Message("x", label="l"), Carried(PARENT, 1234), label_prefix=True)
    assert message.extension == f"traceparent: {PARENT}\nsent-ms: 1234\n".encode()
    assert message.label == "l"
    assert carried_by(message.extension, message.label) == Carried(PARENT, 1234)
    again = carrying(message, Carried(OTHER), label_prefix=True)
    assert carried_by(again.extension, "") == Carried(OTHER)


def test_an_extension_of_the_application_stays_and_the_label_carries_the_context() -> None:
    message = Message("x", label="l", extension=b"mine")
    assert carrying(message, Carried(PARENT), label_prefix=False) is message
    with_label = carrying(message, Carried(PARENT), label_prefix=True)
    assert (with_label.extension, with_label.label) == (b"mine", f"[{PARENT}] l")
    assert carried_by(with_label.extension, with_label.label) == Carried(PARENT)
    assert carrying(with_label, Carried(OTHER), label_prefix=True).label == f"[{OTHER}] l"
    long = Message("x", label="l" * (MAX_LABEL_UNITS - 1), extension=b"mine")
    assert carrying(long, Carried(PARENT), label_prefix=True) is long


def test_a_signed_message_is_not_changed() -> None:
    signed = Message("x", signature=Signature(b"s", b"c"))
    assert carrying(signed, Carried(PARENT), label_prefix=True) is signed


@pytest.mark.parametrize("extension", [b"", b"mine", b"traceparent: 00-1", f"traceparent: {PARENT}\nmore".encode()])
def test_other_extensions_carry_nothing(extension: bytes) -> None:
    assert carried_by(extension, "label") is None


def test_a_manager_without_tracing_is_a_plain_one() -> None:
    assert manager_class(default_configuration(), AsyncExitStack()) is Manager
    program = "import sys, postroad.server.server; sys.exit(any('opentelemetry' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("where", [{}, {"file": Path("spans.jsonl"), "endpoint": "http://127.0.0.1:4318/v1/traces"}])
def test_spans_go_to_one_place(where: dict[str, Path]) -> None:
    settings = TracingSettings(enabled=True, **where)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"tracing\.file: must be set, or tracing\.endpoint instead; not both"):
        manager_class(replace(default_configuration(), tracing=settings), AsyncExitStack())


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    settings = TracingSettings(enabled=True, file=tmp_path / "nowhere" / "spans.jsonl")
    with pytest.raises(ConfigurationError, match=r"tracing\.file: .* cannot be written: No such file or directory"):
        manager_class(replace(default_configuration(), tracing=settings), AsyncExitStack())


def test_the_spans_of_a_manager() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from postroad.telemetry import context_of, with_context
    from postroad.telemetry.traced_manager import TracedManager, Tracing

    exporter = InMemorySpanExporter()
    tracing = Tracing("service", exporter)
    received: list[ReceivedMessage] = []

    async def main() -> None:
        manager = build_manager(default_configuration("alpha"), MemoryStore(), make=partial(TracedManager, tracing))
        await manager.start()
        await manager.create_queue(r"private$\orders")
        await manager.create_queue(r"private$\exact", transactional=True)
        with tracing.tracer.start_as_current_span("work"):
            await manager.send(r"private$\orders", [with_context(Message("mine"))])
        await manager.send_transactional(r"private$\exact", [Message("exact")])
        received.extend(await manager.reads.receive(r"private$\orders", 1, 5))
        with pytest.raises(QueueNotFound):
            await manager.send(r"private$\nowhere", [Message("lost")])
        await manager.purge_queue(r"private$\exact")
        await manager.stop()

    asyncio.run(main())
    tracing.provider.force_flush()
    spans = exporter.get_finished_spans()
    tracing.close()
    by_name = {name: [span for span in spans if span.name == name] for name in ("work", "send", "receive", "transfer")}
    (work,) = by_name["work"]
    mine, exact, lost = by_name["send"]
    got, purged = by_name["receive"]
    assert not by_name["transfer"]  # nothing went to another manager
    assert mine.parent is not None
    assert got.parent is not None
    assert got.attributes is not None
    assert mine.attributes is not None
    assert mine.parent.span_id == work.context.span_id
    assert got.context.trace_id == mine.context.trace_id == work.context.trace_id
    assert got.parent.span_id == mine.context.span_id
    assert got.attributes["messaging.message.id"] == received[0].id == mine.attributes["messaging.message.id"]
    assert (purged.context.trace_id, purged.status.is_ok) == (exact.context.trace_id, False)
    assert (lost.status.is_ok, exact.parent) == (False, None)
    context = context_of(received[0])
    assert context is not None
    with tracing.tracer.start_as_current_span("after", context=context) as span:
        assert span.get_span_context().trace_id in (work.context.trace_id, 0)
