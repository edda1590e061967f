"""Reads the configuration again while the manager runs: applies what can change, and names what needs a restart.

A faulty configuration changes nothing. TAKEN lists each setting that can change; all others need a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from postroad.config import Configuration, load_configuration
from postroad.errors import PostroadError
from postroad.queues.owners import Held
from postroad.validation.fields import shown_key

log = logging.getLogger(__name__)

# Sections whose settings all take effect at once, and single settings of other sections.
TAKEN_SECTIONS = frozenset({"queues", "users", "relay", "leases", "log", "certificates"})
TAKEN_SETTINGS = frozenset(
    {"manager.quota_kb", "manager.keep_journal_days", "manager.strict_names"}
    | {
        "limits.connections_per_address",
        "limits.unfinished_input_mb",
        "limits.outgoing_queues",
        "api.token",
        "api.token_file",
        "api.require_channel_binding",
        "security.sender_ids",
    }
    | {f"limits.{each.setting}" for each in Held}
)
# Settings that can name another file, if they named one before. The contents of files count at every reload.
TAKEN_FILES = frozenset(
    {"api.tls_certificate", "api.tls_key", "api.client_ca"}
    | {"rpc.keytab", "api.keytab"}
    | {"amqp.certificate", "amqp.key", "amqp.client_ca"}
    | {"srmp.tls_certificate", "srmp.tls_key", "srmp.ca_certificates"}
)
_SECRETS = (".password_file", ".token_file")  # compared by what the files hold
_KEYS = {"queues": "queue", "users": "user", "certificates": "certificate"}  # their names in the file
_DERIVED = frozenset({"file", "data"})


def read_again(running: Configuration) -> tuple[Configuration, list[str], list[str]] | None:
    """The configuration from now on, the settings that changed, and the settings that need a restart. None if there is
    no file or it has a fault; the log then says so."""
    if running.file is None:
        log.warning("configuration not read again", extra={"reason": "the manager was started without a file"})
        return None
    try:
        new = load_configuration(running.file)
    except PostroadError as fault:
        refuse(fault)
        return None
    before, after = _settings(running), _settings(new)
    changed = [key for key in after if after[key] != before.get(key)]
    taken = [key for key in changed if _is_taken(key, before, after)]
    waiting = [key for key in changed if key not in taken]
    return _merged(running, new, taken), [_shown(each) for each in taken], [_shown(each) for each in waiting]


def changed_files(running: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    """The settings whose files have changed, by their digests. Leaves out password and token files, whose content is a
    setting itself."""
    return [key for key in new if new[key] != running.get(key, new[key]) and not key.endswith(_SECRETS)]


def refuse(fault: Exception) -> None:
    log.error("configuration not taken; the manager goes on with the one it has", extra={"reason": fault})


def report(taken: list[str], waiting: list[str], files: Iterable[str]) -> None:
    """Logs a reload. `files` are the settings that name the other files it has read."""
    read = {"files": ", ".join(sorted(files))} if files else {}
    if not taken and not waiting:
        log.info("configuration read again: nothing has changed", extra=read)
        return
    log.info("configuration read again", extra={"taken": ", ".join(taken) or "nothing"} | read)
    if waiting:
        log.warning("settings need a restart of the manager", extra={"settings": ", ".join(waiting)})


def _settings(config: Configuration) -> dict[str, Any]:
    """Every setting by its key. A list of tables is one setting."""
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


def _is_taken(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if key in TAKEN_FILES:
        return before[key] is not None and after[key] is not None
    return key.partition(".")[0] in TAKEN_SECTIONS or key in TAKEN_SETTINGS


def _merged(running: Configuration, new: Configuration, taken: list[str]) -> Configuration:
    """The running configuration with the new values of what can change."""
    sections: dict[str, Any] = {name: getattr(new, name) for name in TAKEN_SECTIONS}
    for key in TAKEN_SETTINGS | TAKEN_FILES.intersection(taken):
        section, _, name = key.partition(".")
        value = getattr(getattr(new, section), name)
        sections[section] = replace(sections.get(section, getattr(running, section)), **{name: value})
    return replace(running, **sections)


def _shown(key: str) -> str:
    section, dot, name = key.partition(".")
    return _KEYS.get(section, section) + dot + (shown_key(name) if name else "")
