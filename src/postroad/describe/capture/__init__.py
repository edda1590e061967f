"""Finds packets in files of captures, hex text or raw packets, reading once from front to back in bounded memory.

It uses `wire` to recognise packets. `describe` shows them.
"""

from postroad.describe.capture.files import STANDARD_PORTS, CaptureFile, FileKind
from postroad.describe.capture.items import (
    DamagedPacket,
    DecodedPacket,
    Item,
    Kind,
    Origin,
    OtherPacket,
    Skipped,
)
from postroad.describe.capture.pcap import Ports

__all__ = ["STANDARD_PORTS", "CaptureFile", "FileKind", "Ports"]
__all__ += ["DamagedPacket", "DecodedPacket", "Item", "Kind", "Origin", "OtherPacket", "Skipped"]
