"""Who sent a message and what they may do: security identifiers and access rights."""

from postroad.security.descriptors import Sid

__all__ = ["Sid"]
