"""The file with a manager's private keys: for its owner only, replaced as a whole, on disk before anybody relies on it.

What the keys are for is known elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from postroad.errors import InvalidArgument, StorageError
from postroad.runtime.private_files import open_private
from postroad.security.keys import KeyRing

KEY_FILE: Final = "keys.pem"  # in the data directory
_NEW: Final = ".new"
_TITLE: Final = "The private keys of a queue manager. Keep them secret."
_MADE: Final = "made: "
_MAX_BYTES: Final = 1 << 20
_REMEDY: Final = (
    "restore it from a backup; or move it away, and the next start makes new keys, but nobody can then decrypt "
    "messages for the old ones"
)


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """`made_at_s` is when the newest keys were made; None if the file does not say."""

    ring: KeyRing
    made_at_s: int | None


def load_keys(file: Path) -> StoredKeys | None:
    """None if there is no file. Raises StorageError if it cannot be read, or is not what `write_keys` wrote."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{file}: the private keys cannot be read: {error.strerror}; {_REMEDY}") from None
    try:
        text = data.decode("ascii")
        return StoredKeys(KeyRing.from_pem(text), _made_at(text))
    except (UnicodeDecodeError, InvalidArgument) as fault:
        what = fault if isinstance(fault, InvalidArgument) else "it must be ASCII text"
        raise StorageError(f"{file}: the private keys are damaged: {what}; {_REMEDY}") from None


def write_keys(file: Path, keys: StoredKeys) -> None:
    """After a crash the file has the old keys or the new ones. Raises StorageError."""
    made = "" if keys.made_at_s is None else f"{_MADE}{datetime.fromtimestamp(keys.made_at_s, UTC).isoformat()}\n"
    data = f"{_TITLE}\n{made}{keys.ring.to_pem()}".encode("ascii")
    new = file.with_name(file.name + _NEW)
    try:
        with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        _sync_directory(file.parent)
    except OSError as error:
        raise StorageError(f"{file}: the private keys cannot be written: {error.strerror}") from None


def _made_at(text: str) -> int | None:
    for line in text.splitlines()[:2]:
        if line.startswith(_MADE):
            try:
                return int(datetime.fromisoformat(line.removeprefix(_MADE)).timestamp())
            except ValueError:
                return None
    return None


def _sync_directory(directory: Path) -> None:
    """The new name is durable too. Windows cannot open a directory, and needs none of this."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
