"""What people ought to hear of a carrier's work. Who logs or counts it says so when the carrier is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from postroad.security.refusals import Refused
from postroad.wire.view import MessageView


def _ignore(*arguments: object) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWatcher:
    """Each is called with facts alone: nothing depends on what it does."""

    refused: Callable[[MessageView, Refused], None] = _ignore  # a message from another manager, and why
    suspicious: Callable[[str, Mapping[str, object]], None] = _ignore  # what strangers do: an event and its facts
    reachable: Callable[[str, str | None], None] = _ignore  # a host changed: why it is out of reach, or None
