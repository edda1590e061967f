"""The store in PostgreSQL beside a replica: what counts as durable, and what a promotion keeps."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from uuid import uuid4

from postroad.store import Batch, Record
from postroad.store.postgresql import PostgresqlStore, first_generation
from postroad.store.postgresql_connection import Connector, Place, is_synchronous, prepare_tables
from tests.clusters import Cluster, Clusters, new_schema

PATIENCE_S = 60


def put(number: int) -> Batch:
    return Batch({(1, number): Record(1, number, 5, 0, 0, b"%d" % number)})


def open_store(primary: Cluster) -> PostgresqlStore:
    """A store whose URL names both servers."""
    assert primary.replica is not None
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{primary.replica.port}"
    connector = Connector(Place(f"postgresql://postgres@{hosts}/postgres", new_schema()))
    instance = uuid4()
    with connector.connect("lease") as connection:
        assert is_synchronous(connection)
        prepare_tables(connector, connection, first_generation)
        connection.execute("UPDATE lease SET epoch = 1, free = false, instance = %s, holder = 'x:1'", (instance,))
    return PostgresqlStore(connector, 1, instance, lambda holder: None)


def test_a_wait_for_the_replica_that_somebody_ends_confirms_nothing(new_cluster: Clusters) -> None:
    primary = new_cluster(replica=True)
    assert primary.replica is not None
    store = open_store(primary)
    store.commit([put(1)])
    primary.replica.pause()
    try:
        with ThreadPoolExecutor() as pool:
            commit = pool.submit(store.commit, [put(2)])
            ended = 0
            until = time.monotonic() + PATIENCE_S
            while ended < 3:  # the next try waits too
                assert time.monotonic() < until
                found = primary.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                )
                ended += len(found)
                time.sleep(0.05)
            assert not wait({commit}, timeout=0).done
            primary.replica.resume()
            commit.result(PATIENCE_S)
    finally:
        primary.replica.resume()
    assert [each.lookup_id for each in store.scan(1)] == [1, 2]
    store.close()


def test_a_promoted_replica_has_every_commit_and_takes_the_next_ones(new_cluster: Clusters) -> None:
    primary = new_cluster(replica=True)
    assert primary.replica is not None
    store = open_store(primary)
    for number in range(20):
        store.commit([put(number)])
    primary.stop("immediate")
    with ThreadPoolExecutor() as pool:
        commit = pool.submit(store.commit, [put(20)])
        primary.replica.promote()
        commit.result(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while store.trouble is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
    store.tidy()
    assert [each.lookup_id for each in store.scan(1)] == list(range(21))
    store.close()
