"""Checks a backup without a manager. It loads little: `postroad backup` reads each file back."""

from __future__ import annotations

from pathlib import Path

from postroad.store.backup import BackupReader, Contents


def check_backup(file: Path, name: str | None = None) -> Contents:
    """Reads the whole backup. Raises StorageError if it is not complete and sound, OSError if it cannot be read.
    `name` is the file's name in errors."""
    with file.open("rb") as stream:
        return BackupReader(stream, name or str(file)).check()
