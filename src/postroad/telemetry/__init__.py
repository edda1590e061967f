"""OpenTelemetry traces of messages (`pip install postroad[otel]`): how a message carries its trace's context.

An application that traces its own work calls `with_context` before it sends, and `context_of` after it receives. The
queue manager's part is in telemetry/traced_manager.py.
"""

from postroad.telemetry.trace_context import context_of, with_context

__all__ = ["context_of", "with_context"]
