"""Bytes of files to packets: captures, hex text and raw packets, read once from front to back in bounded memory.

Uses `wire` to recognise packets. `describe` shows them.
"""

from postroad.describe.capture.files import STANDARD_PORTS, CaptureFile, FileKind
from postroad.describe.capture.items import (
    DamagedPacket,
    DecodedPacket,
    Item,
    Origin,
    Skipped,
)
from postroad.describe.capture.pcap import Ports

__all__ = ["STANDARD_PORTS", "CaptureFile", "FileKind", "Ports"]
__all__ += ["DamagedPacket", "DecodedPacket", "Item", "Origin", "Skipped"]
