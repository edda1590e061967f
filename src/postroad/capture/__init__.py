"""Bytes of files to packets: captures, hex text and raw packets, read once from front to back in bounded memory.

Uses `wire` to recognise packets. `describe` shows them.
"""

from postroad.capture.files import STANDARD_PORTS, CaptureFile, FileKind
from postroad.capture.internet import Ports
from postroad.capture.items import DamagedPacket, DecodedPacket, Item, Origin, Skipped

__all__ = ["STANDARD_PORTS", "CaptureFile", "FileKind", "Ports"]
__all__ += ["DamagedPacket", "DecodedPacket", "Item", "Origin", "Skipped"]
