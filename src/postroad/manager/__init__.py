"""A running queue manager: the core of queues/ with a store, an event loop and a clock."""

from postroad.manager.composition import build_embedded, build_manager
from postroad.manager.manager import NAME_STATE, Manager
from postroad.manager.reads import Locked

__all__ = ["NAME_STATE", "Locked", "Manager", "build_embedded", "build_manager"]
