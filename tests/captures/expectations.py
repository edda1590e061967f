"""What `postroad decode --json` says of a capture, and what the .toml beside it expects. README.md has the format."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.cli.decode import OTHER_PORTS, JsonPrinter, Shown, described
from postroad.cli.other_packets import OtherPackets
from postroad.describe.capture import STANDARD_PORTS, CaptureFile, OtherPacket, Ports
from postroad.server.definitions import write_row

FAULT = "fault"
_PORTS = Ports(STANDARD_PORTS.sessions | OTHER_PORTS, STANDARD_PORTS.pings)
# What a draft says of a message. An expectation may name any key of `postroad decode --json`.
_TOLD = ("class_name", "label", "delivery", "destination_queue", "body", "body_type", "hops", "encrypted")


@dataclass(frozen=True, slots=True)
class Expectation:
    about: str
    packets: dict[str, int]
    values: list[dict[str, Any]]

    def faults(self, found: list[dict[str, Any]]) -> list[str]:
        """What differs, in words."""
        kinds = count(found)
        faults = [
            f"{kind}: {kinds[kind]} found, {self.packets.get(kind, 0)} expected"
            for kind in sorted({*kinds, *self.packets})
            if kinds[kind] != self.packets.get(kind, 0)
        ]
        numbered = {each["number"]: each for each in found if "number" in each}
        for wanted in self.values:
            packet = numbered.get(wanted["number"])
            if packet is None:
                faults.append(f"packet {wanted['number']} is missing")
                continue
            for key, value in wanted.items():
                if (there := at(packet, key)) != value:
                    faults.append(f"packet {wanted['number']}: {key} is {there!r}, expected {value!r}")
        return faults


def at(packet: Any, path: str) -> Any:
    """The value at a path of keys with dots. None if there is none."""
    for key in path.split("."):
        packet = packet.get(key) if isinstance(packet, dict) else None
    return packet


def decoded(capture: Path) -> list[dict[str, Any]]:
    """The objects that `postroad decode --json` prints."""
    others = OtherPackets()
    with capture.open("rb") as stream:
        items: list[Shown] = [
            described(others, item) if isinstance(item, OtherPacket) else item
            for item in CaptureFile(stream, _PORTS).items()
        ]
    printer = JsonPrinter(stream)  # type: ignore[arg-type]  # nothing is written
    return [json.loads(json.dumps(printer.described(item))) for item in items]


def count(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(each.get("packet", FAULT) for each in found)


def draft(capture: Path) -> str:
    """A .toml that the capture meets: how many packets there are of each kind, and the main facts of messages."""
    found = decoded(capture)
    lines = ['about = ""', "", "[packets]", write_row(dict(count(found)))]
    for each in found:
        if each.get("packet") == "UserMessage":
            told = {key: each[key] for key in _TOLD if each.get(key) not in (None, "", 0, False, "normal")}
            if len(told.get("body", "")) > 200:
                del told["body"]
            lines += ["", "[[packet]]", write_row({"number": each["number"], "packet": each["packet"], **told})]
    return "\n".join(lines) + "\n"
