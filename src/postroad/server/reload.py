"""Reads the configuration again while the manager runs: takes what can change, and names what needs a restart.

A configuration with a fault changes nothing. Each setting that can change is in TAKEN; all others need a restart.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import Any

from postroad.config import Configuration, load_configuration
from postroad.errors import PostroadError
from postroad.fields.tables import shown_key

log = logging.getLogger(__name__)

# Sections whose settings all count at once, and single settings of other sections.
TAKEN_SECTIONS = frozenset({"queues", "users", "relay", "leases", "log"})
TAKEN_SETTINGS = frozenset(
    {"manager.quota_kb", "manager.keep_journal_days", "limits.connections_per_address"}
    | {"limits.unfinished_input_mb", "limits.outgoing_queues", "api.token", "api.token_file", "security.sender_ids"}
)
_KEYS = {"queues": "queue", "users": "user", "certificates": "certificate"}  # in the file
_DERIVED = frozenset({"file", "data"})


def read_again(running: Configuration) -> tuple[Configuration, list[str], list[str]] | None:
    """The configuration to run with from now on, the settings that changed in it, and those that need a restart. None
    if there is nothing to read or it has a fault: the log says so."""
    if running.file is None:
        log.warning("configuration not read again", extra={"reason": "the manager was started without a file"})
        return None
    try:
        new = load_configuration(running.file)
    except PostroadError as fault:
        refuse(fault)
        return None
    changed = [key for key in _settings(new) if _settings(new)[key] != _settings(running).get(key)]
    taken = [key for key in changed if _is_taken(key)]
    waiting = [key for key in changed if not _is_taken(key)]
    return _merged(running, new), [_shown(each) for each in taken], [_shown(each) for each in waiting]


def refuse(fault: Exception) -> None:
    log.error("configuration not taken; the manager goes on with the one it has", extra={"reason": fault})


def report(taken: list[str], waiting: list[str]) -> None:
    if not taken and not waiting:
        log.info("configuration read again: nothing has changed")
        return
    log.info("configuration read again", extra={"taken": ", ".join(taken) or "nothing"})
    if waiting:
        log.warning("settings need a restart of the manager", extra={"settings": ", ".join(waiting)})


def _settings(config: Configuration) -> dict[str, Any]:
    """Every setting by its key; a list of tables is one."""
    found: dict[str, Any] = {}
    for section in fields(config):
        value = getattr(config, section.name)
        if section.name in _DERIVED:
            continue
        if isinstance(value, tuple):
            found[section.name] = value
        else:
            found |= {f"{section.name}.{each.name}": getattr(value, each.name) for each in fields(value)}
    return found


def _is_taken(key: str) -> bool:
    return key.partition(".")[0] in TAKEN_SECTIONS or key in TAKEN_SETTINGS


def _merged(running: Configuration, new: Configuration) -> Configuration:
    """The running configuration with what can change."""
    sections: dict[str, Any] = {name: getattr(new, name) for name in TAKEN_SECTIONS}
    for key in TAKEN_SETTINGS:
        section, _, name = key.partition(".")
        value = getattr(getattr(new, section), name)
        sections[section] = replace(sections.get(section, getattr(running, section)), **{name: value})
    return replace(running, **sections)


def _shown(key: str) -> str:
    section, dot, name = key.partition(".")
    return _KEYS.get(section, section) + dot + (shown_key(name) if name else "")
