"""Sockets and HTTP servers with limits, and the spelling of hosts and ports. No protocol of ours is known here."""
