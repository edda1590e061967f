"""Files and directories for their owner only: created private, and made private if they were not.

What they contain is the business of other modules. Windows has no such modes, so nothing is done there.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = 0o077

log = logging.getLogger(__name__)


def open_private(path: Path, flags: int) -> int:
    """Opens a file, creates it if necessary, makes it private, and returns its descriptor. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if os.name != "nt" and stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS:
            os.fchmod(descriptor, FILE_MODE)
    except PermissionError as error:  # the owner is another user who lets us use it
        _warn(path, FILE_MODE, error)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_unwritable(path: Path, made: Path | None = None) -> None:
    """Raises the OSError that `open_private` would raise later, and creates nothing. `made` is a directory that will
    exist by then."""
    if path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)))
    elif path.parent != made or made.exists():
        os.stat(path.parent / ".")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_private(path: Path, text: str) -> None:
    """Writes a file for its owner only, replacing an existing one. Raises OSError."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as stream:
        stream.write(text)


def make_private_directory(path: Path) -> None:
    """Makes a directory for its owner only, and its parents. An existing directory keeps its group's rights, which
    somebody may have granted on purpose, but loses those of all others. Raises OSError."""
    if not path.parent.exists():
        make_private_directory(path.parent)
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        mode = path.stat().st_mode
        if os.name != "nt" and stat.S_ISDIR(mode) and mode & stat.S_IRWXO and not mode & stat.S_ISVTX:
            try:
                path.chmod(stat.S_IMODE(mode) & ~stat.S_IRWXO)
            except PermissionError as error:
                _warn(path, DIRECTORY_MODE, error)


def tighten(path: Path) -> None:
    """Removes the rights of others on an existing file or directory. Warns if that fails.

    A directory with the sticky bit, such as /tmp, is shared on purpose and stays as it is. So does anything that is
    neither a file nor a directory: a link may lead to a system device.
    """
    if os.name == "nt":
        return
    try:
        mode = path.stat().st_mode
        ours = stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)
        if mode & _OTHERS and ours:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
            log.info("removed the rights of other users", extra={"path": path, "mode": f"{stat.S_IMODE(mode):04o}"})
    except FileNotFoundError:
        pass
    except OSError as error:
        _warn(path, DIRECTORY_MODE if path.is_dir() else FILE_MODE, error)


def others_can_read(path: Path) -> bool:
    try:
        return os.name != "nt" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def _warn(path: Path, mode: int, error: OSError) -> None:
    log.warning(
        "other users can use this file",
        extra={
            "path": path,
            "reason": error.strerror,
            "do": f"change its owner to the user that runs Postroad, and its mode to {mode:04o}",
        },
    )
