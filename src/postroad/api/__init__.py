"""The HTTP API that the console, the commands and the client call.

Importing it needs the server's libraries. Formats shared with the client are in `postroad.describe.received`.
"""

from postroad.api.app import Settings, build_app
from postroad.api.server import ApiServer, TlsFiles

__all__ = ["ApiServer", "Settings", "TlsFiles", "build_app"]
