"""Chooses the class of the manager: plain, or tracing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from postroad.config import Configuration
from postroad.manager import Manager
from postroad.runtime.private_files import open_private, refuse_unwritable

NOT_INSTALLED = "needs OpenTelemetry, which is not installed: pip install postroad[otel]"
NO_OTLP = "needs a package that is not installed: pip install opentelemetry-exporter-otlp-proto-http"


def manager_class(config: Configuration, opened: AsyncExitStack | None) -> Callable[..., Manager]:
    """Returns what makes the manager. `opened` closes the exporter; with None this only checks and opens nothing.
    Raises ConfigurationError if `[tracing]` is wrong."""
    settings = config.tracing
    if not settings.enabled:
        return Manager
    if (settings.file is None) == (settings.endpoint is None):
        config.fail("tracing.file", "must be set, or tracing.endpoint instead; not both")
    try:
        from postroad.telemetry.traced_manager import (
            TracedManager,
            Tracing,
            endpoint_exporter,
            stream_exporter,
        )
    except ImportError:
        config.fail("tracing.enabled", NOT_INSTALLED)
    try:
        if settings.file is not None and opened is None:
            refuse_unwritable(settings.file, config.data)
            return Manager
        if settings.file is not None and opened is not None:
            stream = os.fdopen(open_private(settings.file, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8")
            opened.callback(stream.close)
            exporter = stream_exporter(stream)
        else:
            exporter = endpoint_exporter(settings.endpoint or "")
    except OSError as error:
        config.fail("tracing.file", f"{settings.file} cannot be written: {error.strerror}; create its directory")
    except ImportError:
        config.fail("tracing.endpoint", NO_OTLP)
    if opened is None:
        return Manager
    tracing = Tracing(settings.service or config.manager.name, exporter, label_prefix=settings.label_prefix)
    opened.push_async_callback(asyncio.to_thread, tracing.close)
    return partial(TracedManager, tracing)
