"""Sockets and HTTP servers with limits, and how hosts and ports are written. No protocol of ours is known here."""
