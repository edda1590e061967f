"""The standard ports of the protocols."""

from __future__ import annotations

from typing import Final

BINARY: Final = 1801  # TCP, [MS-MQQB] 2.1.1
PING: Final = 3527  # UDP, [MS-MQQB] 2.1.2
RPC_HANDSHAKE: Final = 2103  # qmcomm, [MS-MQMP] 3.1.4.24
RPC_READ: Final = 2105  # qm2qm, [MS-MQQP] 3.1.4.8
ENDPOINT_MAPPER: Final = 135
HTTP: Final = 80
HTTPS: Final = 443
API: Final = 8180  # our own HTTP API
CONSOLE: Final = 8181  # the web console
