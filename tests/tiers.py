"""Divides the tests: the files of one table are marked `slow` and left to `make test-all`; the tests of another table
are marked `long` and left to `make torture-pipeline`. Also orders the work of parallel workers: the longest files
first, and all files with the Spark session in one worker.

A test file is slow if it takes more than ten seconds of processor time and a faster file tests the same promise in
short. Of the tests with processes, `make test` keeps serving, sending and receiving in `acceptance/test_serve.py`,
three managers and kill -9 in `acceptance/test_network.py`, and one manager killed under load in
`integration/test_kill.py`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent

SLOW = {
    "acceptance/test_kerberos.py": "a domain controller and many commands; integration has the tokens; 60 s",
    "spark": "starts a Java runtime; minutes",
    "console": "a browser; minutes",
    "integration/test_mapper_by_default.py": "servers on 135, one beside a domain controller; 15 s",
    "integration/test_management.py": "two servers, and waits for them; unit/remote_read has its stubs; 40 s",
    "integration/test_abandoned.py": "waits until leases end; 25 s",
    "acceptance/test_domain_access.py": "a domain controller and two managers; half a minute",
    "integration/test_domain_accounts.py": "two domain controllers; half a minute",
    "integration/test_ldap_connection.py": "five domain controllers; half a minute",
    "integration/test_ldap_hostile.py": "waits for answers that never come; 15 s",
    "integration/test_ldap_watch.py": "a domain controller for each test; two minutes",
    "integration/test_publisher.py": "two domain controllers; half a minute",
    "integration/test_publishing.py": "three domain controllers; half a minute",
    "integration/test_join.py": "six domain controllers and a server for each test; a minute",
    "acceptance/test_publish.py": "a domain controller, and a process a command; a minute",
    "integration/test_simulation.py": "seeds of the simulated network; a minute",
    "integration/test_simulation_soap.py": "seeds of the simulated network, by SOAP; two minutes",
    "acceptance/test_failover.py": "PostgreSQL and two processes for each case; 40 s",
    "integration/test_store_copy.py": "PostgreSQL, and a thousand messages for each case; 15 s",
    "integration/test_store_postgresql_cuts.py": "a connection that is cut, again and again; 15 s",
    "integration/test_store_postgresql.py": "servers of PostgreSQL with replicas; 10 s",
    "integration/test_store_postgresql_model.py": "a server of PostgreSQL and random histories; 15 s",
    "integration/test_simulation_failover.py": "seeds of the simulated network, with failovers; half a minute",
    "integration/test_store_crash.py": "a disk that fails at every single write; a minute",
    "acceptance/test_any_names.py": "every door of two servers; unit/test_names_properties.py has the names; 25 s",
    "acceptance/test_backup.py": "a server for each case; unit/test_store_backup.py has the file's own tests; 70 s",
    "acceptance/test_bench_peers.py": "every process of the benchmark beside other brokers; a minute",
    "acceptance/test_command_line.py": "a process for each command; 20 s",
    "acceptance/test_commands.py": "a process for each command; 90 s",
    "acceptance/test_decode.py": "a process for each packet; the decoder's own tests are in unit; 18 s",
    "acceptance/test_demo.py": "the whole demonstration with its Spark report; two minutes",
    "acceptance/test_directory_commands.py": "a domain controller for each test, and a process a command; a minute",
    "acceptance/test_docs_commands.py": "every command of the documentation; 20 s",
    "acceptance/test_doors.py": "a server for each way to log in; 35 s",
    "acceptance/test_dotnet_client.py": "compiles and runs C# programs on two runtimes; `make test-dotnet`; 20 s",
    "acceptance/test_dotnet_samples.py": "compiles and runs C# programs on two runtimes; 15 s",
    "acceptance/test_every_door.py": "a server for each attack on each listener, and slow peers; two minutes",
    "acceptance/test_hostile_strangers.py": "attacks every listener at once; 40 s",
    "acceptance/test_keys.py": "a server for each case; integration/test_encrypted_sending.py rotates keys daily; 21 s",
    "acceptance/test_limits.py": "fills every limit of a server; 12 s",
    "acceptance/test_lock_commands.py": "waits until leases end; 25 s",
    "acceptance/test_message_security.py": "four servers, a process for each command; 45 s",
    "acceptance/test_moved_manager.py": "two servers for each case; unit/binary has the rule; 25 s",
    "acceptance/test_multicast.py": "four servers for each case, and lost packets; a minute",
    "acceptance/test_multicast_libpgm.py": "processes in network namespaces, and lost packets; half a minute",
    "acceptance/test_multicast_segment.py": "four servers in network namespaces for each case; two minutes",
    "acceptance/test_ping.py": "a process for each ping; 12 s",
    "acceptance/test_promises.py": "many servers, killed under load; 12 s",
    "acceptance/test_remote.py": "a process for each command; integration/test_remote_read.py is quicker; 25 s",
    "acceptance/test_remote_exposed.py": "a server for each way to expose remote read; 25 s",
    "acceptance/test_replies.py": "eight servers; unit/queues/test_answers.py has the names of all cases; 13 s",
    "acceptance/test_signed_commands.py": "a process a command; integration/test_signed_sends.py signs daily; 28 s",
    "acceptance/test_simulate.py": "a process for each simulation; 12 s",
    "acceptance/test_soap.py": "two servers for each case; a minute",
    "acceptance/test_strangers.py": "waits for what must not happen; 12 s",
    "acceptance/test_stuck.py": "waits until messages are stuck; 20 s",
    "acceptance/test_windows_kit.py": "two servers, and messages that expire; unit/test_kit_check.py is quick; 12 s",
    "packaging": "checkers of other projects, builds of packages, and servers; a minute",
}

LONG = {
    "spark/test_connect.py::test_a_client_of_a_server": "a server of its own; 60 s",
    "spark/test_connect.py::test_a_declarative_pipeline": "a server of its own; 90 s",
    "spark/test_incremental_gold.py::test_pieces_and_kills_make_the_same_tables_as_one_rebuild": "many runs; 110 s",
    "spark/test_remote_killed.py::test_the_server_and_the_driver_are_killed_once": "sessions of Spark that die; 70 s",
}

# The longest work, which starts first. In the order of names, some of these files would run at the end, beside workers
# with nothing left to do. The first entry stands for all files that share the Spark session.
LONGEST = (
    "spark/test_incremental_gold.py",
    "integration/test_simulation_soap.py",
    "acceptance/test_demo.py",
    "spark/test_cluster.py",
    "acceptance/test_commands.py",
)

# Files that import Spark. They are not collected without it, and `make test` does not install it.
SPARK = (
    "spark",
    "unit/spark/test_digests.py",
    "unit/spark/test_queues.py",
    "unit/test_lake_files.py",
    "unit/test_spark_anomalies.py",
    "unit/test_spark_bodies.py",
)
HAS_SPARK = find_spec("pyspark") is not None


def pytest_report_header() -> str | None:
    return None if HAS_SPARK else f"Spark is not installed, so these are left out: {', '.join(SPARK)}; run make install"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if not HAS_SPARK and collection_path in [TESTS / name for name in SPARK] else None


def is_slow(path: Path) -> bool:
    name = path.relative_to(TESTS)
    return any(str(each) in SLOW for each in (name, *name.parents))


def order(path: Path) -> int:
    """The position of a file among those that start first. All others follow in the order of their names."""
    name = str(path.relative_to(TESTS)) if TESTS in path.parents else ""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order(item.path))
    for item in items:
        if TESTS in item.path.parents and is_slow(item.path):
            item.add_marker(pytest.mark.slow)
            if f"{item.path.relative_to(TESTS)}::{item.name.partition('[')[0]}" in LONG:
                item.add_marker(pytest.mark.long)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives each file to one worker, and all files that use the Spark session to the same worker.

    Each worker that runs one of those starts a Java runtime. Its start and its first pipeline run cost more than two
    later runs.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(super()._split_scope(nodeid))


def scope(file: str) -> str:
    """The unit of work for a worker, from a file's path relative to the root of the project."""
    path = TESTS.parent / file
    if path.parent == TESTS / "spark" and "spark: SparkSession" in path.read_text(encoding="utf-8"):
        return "the Spark session"
    return file


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be disabled
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
