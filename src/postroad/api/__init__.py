"""The HTTP API, which the console, the commands, the client and curl call.

Importing it needs the server's libraries. The formats that the client shares are in `postroad.describe.received`.
"""

from postroad.api.app import Settings, build_app
from postroad.api.server import ApiServer, TlsFiles

__all__ = ["ApiServer", "Settings", "TlsFiles", "build_app"]
