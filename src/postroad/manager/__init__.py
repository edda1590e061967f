"""A running queue manager: the core of queues/ with a store, an event loop and a clock."""

from postroad.manager.manager import Locked, Manager

__all__ = ["Locked", "Manager"]
