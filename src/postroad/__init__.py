"""Postroad: an open queue manager that speaks Microsoft Message Queuing's own protocols."""

from postroad.version import __version__

__all__ = ["__version__"]
