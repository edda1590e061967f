"""What tshark says about a capture with the dissector of packaging/wireshark, and what `postroad decode` says, in a
form to compare."""

from __future__ import annotations

import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from postroad.describe import packet_json
from postroad.describe.capture import CaptureFile, DecodedPacket
from postroad.describe.sections import direct_format_name
from postroad.wire import MessageView
from postroad.wire.octets import whole_text

DISSECTOR = Path(__file__).parents[1] / "packaging" / "wireshark" / "postroad.lua"
PATIENCE_S = 120
_PROTOCOLS = ("mqqb", "mqping")
_TROUBLE = ("_ws.malformed", "_ws.lua.error", "mqqb.fault", "mqqb.middle", "mqping.fault")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BITS = {"flag_names": "flags.", "operating_system_names": "operating_system."}


def unavailable() -> str | None:
    """Why tshark cannot be asked. None if it can."""
    if shutil.which("tshark") is None:
        return "needs tshark (Debian: apt-get install tshark)"
    listed = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout
    return None if "with Lua" in listed else "needs a tshark with Lua"


def _tshark(capture: Path, *options: str) -> str:
    command = ["tshark", "-n", "-X", f"lua_script:{DISSECTOR}", "-r", str(capture), *options]
    run = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    errors = run.stderr.decode(errors="replace")
    assert run.returncode == 0, errors
    assert "Lua" not in errors, errors
    return run.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Dissected:
    """One packet of Message Queuing in tshark's words: the values of each field by its filter."""

    frame: int
    fields: Mapping[str, list[ElementTree.Element]]

    def numbers(self, name: str) -> list[int]:
        return [int(each.attrib["show"], 0) for each in self.fields.get(name, [])]

    def texts(self, name: str) -> list[str]:
        return [each.attrib["show"] for each in self.fields.get(name, [])]

    def octets(self, name: str) -> list[bytes]:
        return [bytes.fromhex(each.attrib["value"]) for each in self.fields.get(name, [])]


def dissected(capture: Path, *options: str) -> list[Dissected]:
    """Every packet that tshark finds, in the order of the capture."""
    text = _tshark(capture, "-Y", "mqqb or mqping", "-T", "pdml", *options)
    text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)  # tshark writes any character of a text
    return [each for packet in ElementTree.fromstring(text) for each in _of_frame(packet)]


def _of_frame(packet: ElementTree.Element) -> Iterator[Dissected]:
    number = packet.find("./proto[@name='geninfo']/field[@name='num']")
    assert number is not None
    for protocol in packet.findall("proto"):
        if protocol.attrib["name"] in _PROTOCOLS:
            fields: dict[str, list[ElementTree.Element]] = {}
            for each in protocol.iter("field"):
                fields.setdefault(each.attrib["name"].partition(".")[2], []).append(each)
            yield Dissected(int(number.attrib["show"]), fields)


def troubles(capture: Path, *options: str) -> list[str]:
    """The frames that tshark calls malformed, or in which the dissector found a fault."""
    return _tshark(capture, "-Y", " or ".join(_TROUBLE), *options).splitlines()


def decoded(capture: Path) -> list[DecodedPacket]:
    """The packets that `postroad decode` finds, without those of HTTP and RPC."""
    with capture.open("rb") as stream:
        return [each for each in CaptureFile(stream).items() if isinstance(each, DecodedPacket)]


def differences(found: Dissected, packet: DecodedPacket) -> list[str]:
    """Where tshark's values differ from those of `postroad decode --json`."""
    described = packet_json(packet.data, packet.packet)
    wanted: dict[str, Any] = dict(described["headers"])  # type: ignore[call-overload]
    if "ordering" in described:
        wanted["ordering"] = described["ordering"]
    first = packet.origin.frame or 0  # tshark shows a packet in the frame with its last byte
    faults = [] if found.frame >= first else [f"frame {found.frame}, but the packet starts in {first}"]
    for header, fields in wanted.items():
        for name, value in fields.items():
            if (fault := _difference(found, header, name, value)) is not None:
                faults.append(f"{header}.{name}: {fault}")
    extra = {name.partition(".")[0] for name in found.fields} - {*wanted, ""}
    if extra:
        faults.append(f"tshark alone has {sorted(extra)}")
    if isinstance(packet.packet, MessageView):
        for name, data in (("body", packet.packet.body), ("extension", packet.packet.extension)):
            shown = b"".join(found.octets(f"message_properties_header.{name}"))
            if not shown.startswith(data) or (name == "extension" and shown != data):  # a body has room behind it
                faults.append(f"{name}: {shown.hex()}, not {data.hex()}")
    return faults


def _difference(found: Dissected, header: str, name: str, value: Any) -> str | None:
    field = f"{header}.{name}"
    shown: Any
    if name in _BITS:
        start = f"{header}.{_BITS[name]}"
        bits = [found.fields[each][0] for each in found.fields if each.startswith(start)]
        shown, value = sum("= True" in re.sub(r"= .*: ", "= ", each.attrib["showname"]) for each in bits), len(value)
    elif name.endswith("_base64"):
        shown, value = b"".join(found.octets(field.removesuffix("_base64"))), b64decode(value)
    elif isinstance(value, dict):
        faults = [_difference(found, header, f"{name}.{word}", each) for word, each in value.items() if word != "kind"]
        return next((fault for fault in faults if fault is not None), None)
    elif header == "soap_header" and name == "reserved":
        shown = [number for part in ("header", "body") for number in found.numbers(f"{header}.{part}_reserved")]
    elif isinstance(value, list):
        value = [_plain(text) for text in value]
        shown = [_plain(_format_name(text.replace("\\\\", "\\"))) for text in found.texts(field)]
        if len(shown) == len(value):
            shown = [text[: len(wanted)] for text, wanted in zip(shown, value, strict=True)]
    elif name == "correlation_id":
        shown = next(iter(found.texts(f"{field}.text")), None)
    elif name == "sender_id" and value is not None and not value.startswith("S-") and "-" not in value:
        return None  # bytes that are not a SID are shown as bytes alone
    elif isinstance(value, int):
        numbers = found.numbers(field)
        shown, value = (numbers[0] if numbers else None), int(value)
    elif header in ("soap_header", "message_properties_header") or name.endswith("direct_name"):
        octets = b"".join(found.octets(field))  # with the terminator; `show` escapes what is not printable
        shown = whole_text(octets.decode("utf-16-le", "surrogatepass"))[:-1] if octets else None
        value = value or None if name == "label" else value
        shown = shown or None if name == "label" else shown
        if shown and shown.isprintable() and shown.isascii() and "\\" not in shown:
            shown = found.texts(field)[0]
    else:
        texts = found.texts(field)
        shown = texts[0] if texts else None
    return None if shown == value else f"{shown!r}, not {value!r}"


def _plain(text: str) -> str:
    """The text up to the first character that tshark escapes."""
    return re.split(r"[^ -\[\]-~]", text.replace("\\\\", "/").replace("\\", "/"), maxsplit=1)[0]


def _format_name(text: str) -> str:
    return direct_format_name(text.removeprefix("DIRECT=")) if text.startswith("DIRECT=") else text
