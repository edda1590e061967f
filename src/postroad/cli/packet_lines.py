"""Packets as JSON lines: one object for each packet, damaged packet or place without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from postroad.capture import DamagedPacket, DecodedPacket, Item, Origin
from postroad.describe import describe_headers, packet_json, rfc3339_ns, sections_json
from postroad.wire import MessageView

if TYPE_CHECKING:
    from postroad.describe.verification import Verifier


class JsonPrinter:
    """An object has `packet` (its kind) or `error`, never both; packets, damaged ones too, are numbered from 1."""

    def __init__(self, output: TextIO, verifier: Verifier | None = None) -> None:
        self._output = output
        self._verifier = verifier
        self._number = 0

    def print(self, item: Item) -> None:
        self._output.write(json.dumps(self.described(item)) + "\n")

    def described(self, item: Item) -> dict[str, object]:
        place = origin_json(item.origin)
        if isinstance(item, DecodedPacket):
            self._number += 1
            described = {"number": self._number, "size": len(item.data), **place}
            described |= packet_json(item.data, item.packet)
            if self._verifier is not None and isinstance(item.packet, MessageView):
                verdict = self._verifier.check(item.packet)
                described["verified"] = None if isinstance(verdict, str) else verdict
            return described
        if isinstance(item, DamagedPacket):
            self._number += 1
            return {
                "number": self._number,
                "error": item.fault.fault,
                "size": len(item.data),
                **place,
                "offset": item.origin.offset + (item.fault.offset or 0),
                "packet_offset": item.origin.offset,
                "headers": sections_json(describe_headers(item.data, item.fault)),
            }
        return {"error": item.reason, "size": item.size, **place}


def origin_json(origin: Origin) -> dict[str, object]:
    """Where it was found: what is not known has no key."""
    place = {
        "offset": origin.offset,
        "line": origin.line,
        "frame": origin.frame,
        "time": None if origin.time_ns is None else rfc3339_ns(origin.time_ns),
        "from": origin.source,
        "to": origin.destination,
    }
    return {key: value for key, value in place.items() if value is not None}
