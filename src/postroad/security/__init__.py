"""Who sent a message and what they may do: security identifiers and access rights."""

from postroad.security.sid import Sid

__all__ = ["Sid"]
