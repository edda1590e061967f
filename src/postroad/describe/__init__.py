"""Packets as users see them: JSON-ready values, and words for flags and codes.

This package reads what `wire` decodes. Commands print the results, and the HTTP API serves them.
"""

from postroad.describe.packets import (
    message_json,
    ordering_json,
    packet_json,
    packet_kind,
    sections_json,
)
from postroad.describe.sections import Field, Section, describe_headers, describe_ping, rfc3339, rfc3339_ns

__all__ = [
    "Field",
    "Section",
    "describe_headers",
    "describe_ping",
    "message_json",
    "ordering_json",
    "packet_json",
    "packet_kind",
    "rfc3339",
    "rfc3339_ns",
    "sections_json",
]
