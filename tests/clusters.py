"""Real PostgreSQL for tests: a server of their own, and a synchronous replica of it.

`cluster` is one server for the whole session, in which each test takes a schema of its own. `new_cluster` makes more,
which a test may kill, stop and promote. Both skip the test, and say why, where there is no PostgreSQL. The first use
makes a server's directory (3 s) in `build/postgresql`; every server starts from a copy of it (under 1 s).
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from postroad.store.postgresql import PostgresqlStore

_PROGRAMS = ("initdb", "pg_ctl", "pg_basebackup", "postgres")
_OWNER = "postgres"  # initdb refuses root
_CACHE = Path(__file__).parents[1] / "build" / "postgresql"
_START_S = 60
_numbers = count(1)
SYNCHRONOUS = "FIRST 1 (replica)"

# A test's server may lose what it wrote in a power cut: nobody cuts the power.
_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 32MB
fsync = off
full_page_writes = off
max_wal_senders = 4
wal_keep_size = 256MB
hot_standby = on
unix_socket_directories = '{directory}'
logging_collector = off
log_min_messages = fatal
"""
_RULES = """
local all postgres trust
local replication postgres trust
host replication postgres 127.0.0.1/32 trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


def programs() -> Path | None:
    """The directory of PostgreSQL's programs. Debian does not put them on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: -float(each.parent.name))
    on_path = shutil.which("initdb")
    places += [Path(on_path).parent] if on_path else []
    return next((each for each in places if all((each / name).exists() for name in _PROGRAMS)), None)


def unavailable() -> str | None:
    """Why there can be no server. None if there can be one."""
    if find_spec("psycopg") is None:
        return "PostgreSQL's driver is missing: pip install 'postroad[postgresql]'"
    if programs() is None:
        return "PostgreSQL's server is missing: apt-get install postgresql"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(_OWNER)
        except KeyError:
            return f"PostgreSQL does not run as root, and there is no user {_OWNER}"
    return None


class Cluster:
    """One server. `url` and `schema` are what a store needs."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.replica: Cluster | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def connect(self) -> Any:
        """A connection in autocommit mode."""
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def execute(self, query: str) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Returns once it answers."""
        assert self.process is None
        log = (self.directory / "server.log").open("ab")
        command = [str(_bin("postgres")), "-D", str(self.directory), "-p", str(self.port)]
        with log:
            self.process = subprocess.Popen(
                _as_owner(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait("SELECT 1")

    def stop(self, how: str = "fast") -> None:
        """`fast` ends its connections, `immediate` is a crash."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self._postmaster(), signal.SIGCONT)
            os.kill(self._postmaster(), signal.SIGQUIT if how == "immediate" else signal.SIGINT)
        self.process.wait(_START_S)
        self.process = None

    def restart(self, how: str = "fast") -> None:
        self.stop(how)
        self.start()

    def pause(self) -> None:
        """Stops every process of the server. Its connections stay."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def add_replica(self, port: int) -> Cluster:
        """A replica that runs, and for which this server waits before it confirms a commit."""
        directory = self.directory.with_name(f"{self.directory.name}-replica")
        command = [str(_bin("pg_basebackup")), "-D", str(directory), "-R", "-X", "stream", "-c", "fast", "-d"]
        _run([*command, f"{self.url}?application_name=replica"])
        replica = Cluster(directory, port)
        replica.start()
        self.replica = replica
        self.wait_for_replica()
        return replica

    def wait_for_replica(self) -> None:
        """Waits until the replica follows, and from then on for it at each commit."""
        until = time.monotonic() + _START_S
        while not self.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"):
            assert time.monotonic() < until, self.log
            time.sleep(0.05)
        self.synchronize(SYNCHRONOUS)

    def synchronize(self, names: str) -> None:
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.execute("SELECT pg_reload_conf()")
        self._wait(f"SELECT 1 / (current_setting('synchronous_standby_names') = '{names}')::int")

    def promote(self) -> None:
        """Makes a replica the one that writes. It waits for no other."""
        _run([str(_bin("pg_ctl")), "promote", "-w", "-D", str(self.directory)])
        self.synchronize("")

    @property
    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")[-4000:]

    def _postmaster(self) -> int:
        return int((self.directory / "postmaster.pid").read_text().splitlines()[0])

    def _signal_all(self, number: int) -> None:
        postmaster = self._postmaster()
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                if parent == postmaster:
                    os.kill(int(status.parent.name), number)
        os.kill(postmaster, number)

    def _wait(self, query: str) -> None:
        import psycopg

        until = time.monotonic() + _START_S
        while True:
            try:
                self.execute(query)
                return
            except psycopg.Error:
                assert time.monotonic() < until, self.log
                time.sleep(0.05)


def new_schema() -> str:
    """A name that no other test has."""
    return f"m_{uuid4().hex[:12]}"


def _bin(name: str) -> Path:
    found = programs()
    assert found is not None
    return found / name


def _as_owner(command: list[str]) -> list[str]:
    if os.geteuid():
        return command
    owner = pwd.getpwnam(_OWNER)
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", *command]


def _run(command: list[str]) -> None:
    done = subprocess.run(_as_owner(command), capture_output=True, text=True, cwd="/", timeout=_START_S)
    assert done.returncode == 0, done.stdout + done.stderr


def _made() -> Path:
    """A server's directory as initdb makes it, once for all tests."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    made = _CACHE / "made"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "done").exists():
            shutil.rmtree(made, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="postroad-pg-", dir="/tmp") as scratch:
                if not os.geteuid():
                    os.chown(scratch, *_owner_ids())
                directory = Path(scratch) / "data"
                command = [str(_bin("initdb")), "-D", str(directory), "-U", "postgres", "--auth=trust", "-N"]
                _run([*command, "--encoding=UTF8", "--locale=C"])
                shutil.copytree(directory, made)
            (made / "done").touch()
    return made


def _owner_ids() -> tuple[int, int]:
    owner = pwd.getpwnam(_OWNER)
    return owner.pw_uid, owner.pw_gid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Clusters:
    """Makes servers, and ends them all at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened = ExitStack()

    def __call__(self, *, replica: bool = False) -> Cluster:
        directory = self._directory / f"server-{next(_numbers)}"
        shutil.copytree(_made(), directory)
        (directory / "done").unlink()
        with (directory / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(directory=self._directory))
        (directory / "pg_hba.conf").write_text(_RULES)
        directory.chmod(0o700)
        if not os.geteuid():
            for path in (self._directory, directory, *directory.rglob("*")):
                os.chown(path, *_owner_ids())
        made = Cluster(directory, free_port())
        self._opened.callback(made.stop, "immediate")
        made.start()
        if replica:
            self._opened.callback(made.add_replica(free_port()).stop, "immediate")
        return made

    def close(self) -> None:
        self._opened.close()


@contextmanager
def _clusters() -> Iterator[Clusters]:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    # Not in pytest's own directory: the server's user could not enter it, and a socket's path has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="postroad-pg-", dir="/tmp"))
    clusters = Clusters(directory)
    try:
        yield clusters
    finally:
        clusters.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with _clusters() as clusters:
        yield clusters()


@pytest.fixture
def new_cluster() -> Iterator[Clusters]:
    with _clusters() as clusters:
        yield clusters


@contextmanager
def postgresql_store(cluster: Cluster, schema: str, **settings: Any) -> Iterator[PostgresqlStore]:
    """A store in this schema, which this process has just taken over."""
    store = open_postgresql_store(cluster, schema, **settings)
    try:
        yield store
    finally:
        store.close()


def open_postgresql_store(cluster: Cluster, schema: str, **settings: Any) -> PostgresqlStore:
    from postroad.store.postgresql import PostgresqlStore, first_generation
    from postroad.store.postgresql_connection import Connector, Place, prepare_tables

    connector = Connector(Place(cluster.url, schema))
    instance = uuid4()
    with connector.connect("lease") as connection:
        prepare_tables(connector, connection, first_generation)
        taken = connection.execute(
            "UPDATE lease SET fence = fence + 1, epoch = epoch + 1, free = false, instance = %s, holder = 'test:1' "
            "RETURNING epoch",
            (instance,),
        ).fetchone()
    assert taken is not None
    settings.setdefault("lost", lambda holder: None)
    return PostgresqlStore(connector, taken[0], instance, **settings)
