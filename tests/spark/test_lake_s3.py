"""A lake on S3, by a real server and Hadoop's own connector: `make test-s3` fetches both. And a lake on a disk that the
workers of a cluster do not share, which must be refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

import postroad as client
from postroad.spark.pipeline.lake_files import LEASE_S
from tests.commands import POSTROAD, Outcome
from tests.spark.cluster import HOST, PATIENCE_S, cluster, environment
from tests.spark.test_cluster import Manager, send

KIT = Path(os.environ.get("POSTROAD_S3_KIT", "build/s3")).absolute()
needs_kit = pytest.mark.skipif(not (KIT / "jars").is_dir(), reason="`make test-s3` fetches what it needs")
LAKE = "s3a://lakes/one"
MESSAGES = 1000
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Times as plain numbers, because the connector is older than Spark's Hadoop, whose defaults have units.
CONNECTOR = {
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "access.key": "key",
    "secret.key": "secret",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "connection.establish.timeout": "30000",
    "connection.timeout": "200000",
    "threads.keepalivetime": "60",
    "multipart.purge.age": "86400",
}


@contextmanager
def s3(log: Path) -> Iterator[dict[str, str]]:
    """Spark's settings for a new server with one empty bucket."""
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    address = f"http://{HOST}:{port}"
    variables = {**os.environ, "PYTHONPATH": str(KIT / "site")}
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], env=variables, stdout=file, stderr=file
        )
    try:
        create(f"{address}/lakes")
        settings = {f"spark.hadoop.fs.s3a.{key}": value for key, value in CONNECTOR.items()}
        settings["spark.hadoop.fs.s3a.endpoint"] = address
        yield settings | {"spark.jars": ",".join(str(jar) for jar in (KIT / "jars").iterdir())}
    finally:
        server.kill()
        server.wait()


def create(bucket: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(Request(bucket, method="PUT")):
                return
        except URLError:
            assert time.monotonic() < end
            time.sleep(0.1)


class Pipeline:
    """Runs `postroad pipeline` with settings of Spark, in its own directory."""

    def __init__(self, directory: Path, api: str, settings: dict[str, str], *options: str) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self._api = api
        settings = {"spark.driver.extraJavaOptions": FAST, "spark.sql.shuffle.partitions": "2", **settings}
        self._conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        self._options = options

    def start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        full = [*POSTROAD, "pipeline", command, *self._options, *self._conf, *options, "--json"]
        variables = environment() | {"POSTROAD_API": self._api}
        return subprocess.Popen(
            full,
            cwd=self.directory,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def __call__(self, command: str, *options: str) -> Outcome:
        process = self.start(command, *options)
        try:
            output, errors = process.communicate(timeout=10 * PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return Outcome(process.returncode, output, errors.decode())


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    running = Manager(tmp_path)
    send(running.api, 0, MESSAGES)
    yield running
    running.stop()


def reported(done: Outcome) -> tuple[int, int]:
    """The new packets of a run, and the messages in its report."""
    assert done.code == 0, done.errors
    ran, report = done.objects
    return ran["packets"], report["messages"]


@needs_kit
@pytest.mark.timeout(1800)
def test_a_lake_on_s3_survives_a_kill_and_leaves_no_local_directory(manager: Manager, tmp_path: Path) -> None:
    with s3(tmp_path / "s3.log") as settings:
        pipeline = Pipeline(tmp_path / "here", manager.api, settings)
        killed = pipeline.start("run", "--lake", LAKE)
        while "part=" not in (tmp_path / "s3.log").read_text() and killed.poll() is None:
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        time.sleep(LEASE_S)  # its lease has not ended before
        done = pipeline("run", "--lake", LAKE)
        assert done.code == 0, done.errors
        send(manager.api, MESSAGES, 1000)
        assert reported(pipeline("run", "--lake", LAKE, "--report", "report.html")) == (1000, MESSAGES + 1000)
    assert {path.name for path in pipeline.directory.iterdir()} == {"report.html"}


@needs_kit
@pytest.mark.timeout(1800)
def test_workers_that_share_no_disk_write_one_lake_on_s3(manager: Manager, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with s3(tmp_path / "s3.log") as settings, cluster(tmp_path, workers=3, hidden=here) as master:
        pipeline = Pipeline(here, manager.api, settings | on_cluster())
        done = pipeline("run", "--lake", LAKE, "--master", master, "--report", "report.html")
        assert reported(done) == (MESSAGES, MESSAGES)
    assert {path.name for path in here.iterdir()} == {"report.html"}


@pytest.mark.timeout(1800)
def test_a_local_lake_that_the_workers_do_not_see_is_refused(manager: Manager, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with cluster(tmp_path, workers=1, hidden=here) as master:
        pipeline = Pipeline(here, manager.api, on_cluster())
        refused = pipeline("run", "--lake", str(here / "lake"), "--master", master)
    assert refused.code == 1
    assert f"{here}/lake is not on every worker of {master}" in refused.errors
    assert not list((here / "lake").glob("bronze/**/*.parquet"))
    with client.connect(manager.api) as connected:
        assert connected.queue(r"private$\orders").info().messages == MESSAGES


def on_cluster() -> dict[str, str]:
    return {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": FAST,
    }
