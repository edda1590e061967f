"""The HTTP API: the door for the console, the commands and the client, and for curl.

Importing it needs the server's libraries; the client's share of the formats is `postroad.received`.
"""

from postroad.api.app import Settings, build_app
from postroad.api.server import ApiServer, TlsFiles

__all__ = ["ApiServer", "Settings", "TlsFiles", "build_app"]
