"""A Spark cluster of real processes on this machine: one master and its workers, from the pyspark package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from postroad.spark.java import archive_options, cache_directory, java_home, spark_home

PATIENCE_S = 120
HOST = "127.0.30.1"
_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(*, carried: bool = False) -> dict[str, str]:
    """What `postroad.spark.session` would set, for processes that it does not start; on request with the Java runtime
    that comes with the package, as if the machine had none."""
    cache = cache_directory()
    home = java_home(cache, {"PATH": ""}) if carried else java_home(cache)
    found = {
        **os.environ,
        "SPARK_HOME": str(spark_home(cache, Path(pyspark.__file__).parent)),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_JAVA_OPTS": _FAST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return found if home is None else {**found, "JAVA_HOME": str(home)}


class Daemon:
    """One of the cluster's processes, with its log."""

    def __init__(self, log: Path, kind: str, *arguments: str, hidden: Path | None = None) -> None:
        variables = environment()
        options = archive_options(cache_directory(), variables, Path(pyspark.__file__).parent)
        if "SharedArchiveFile" in options:  # executors inherit it too; killed daemons write no class archive
            variables["JAVA_TOOL_OPTIONS"] = options
        program = Path(variables["SPARK_HOME"], "bin", "spark-class")
        command = [str(program), f"org.apache.spark.deploy.{kind}", "--host", HOST, "--webui-port", "0", *arguments]
        if hidden is not None:  # a directory that the process sees as an empty one
            mount = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(hidden), *command]
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, env=variables, stdout=file, stderr=file, start_new_session=True)

    def wait_for(self, pattern: str) -> str:
        """The part in brackets of the line that matches."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self._process.poll() is None:
            found = re.search(pattern, self._log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(self._log.read_text(errors="replace"))

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)


@contextmanager
def cluster(directory: Path, workers: int, hidden: Path | None = None) -> Iterator[str]:
    """Starts a cluster and gives the address of its master. Each worker has one core, and does not share `hidden`."""
    daemons = [Daemon(directory / "master.log", "master.Master", "--port", "0")]
    try:
        master = daemons[0].wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            place = ["--work-dir", str(directory / f"worker-{number}"), "--cores", "1", "--memory", "512m"]
            log = directory / f"worker-{number}.log"
            daemons.append(Daemon(log, "worker.Worker", *place, master, hidden=hidden))
        for worker in daemons[1:]:
            worker.wait_for(r"(Successfully registered with master)")
        yield master
    finally:
        for daemon in reversed(daemons):
            daemon.stop()
