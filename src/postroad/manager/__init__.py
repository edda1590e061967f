"""A running queue manager: the core of queues/ with a store, an event loop and a clock."""

from postroad.manager.manager import Manager
from postroad.manager.reads import Locked

__all__ = ["Locked", "Manager"]
