"""Where queue managers are: their sites by GUID, name and address, and public queues by GUID, as DataFrames.

The data comes from the managers that the pipeline reads, and from the directory if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline.frames import local

IDS = "id string"
LOCATIONS = "key string, name string, site string"
QUEUES = "format_name string, queue string"


@dataclass(frozen=True, slots=True)
class KnownManager:
    """A manager that the pipeline reads. `address` is the host of its `api`."""

    id: str
    name: str
    address: str | None = None
    api: str | None = None


def locations(spark: SparkSession, managers: Iterable[KnownManager], directory: Directory | None) -> DataFrame:
    """Manager and site for each key that a format name can contain: a GUID, a name or an address, in lower case."""
    rows: dict[str, tuple[str, str, str | None]] = {}

    def add(key: str | None, name: str, site: str | None) -> None:
        if key:
            rows.setdefault(key.lower(), (key.lower(), name, site))

    if directory is not None:
        names = {}
        for manager in directory.managers:
            sites = directory.site_collection(manager)
            site = sites[0].name if sites else None
            names[manager.identifier] = (manager.computer_name, site)
            for key in (str(manager.identifier), manager.computer_name, manager.address):
                add(key, manager.computer_name, site)
        for queue in directory.queues:
            if queue.queue_manager_identifier in names:
                add(str(queue.identifier), *names[queue.queue_manager_identifier])
    for known in managers:
        site = next((rows[key][2] for key in (known.id.lower(), known.name.lower()) if key in rows), None)
        add(known.id, known.name, site)
        add(known.name, known.name, site)
    return local(spark, rows.values(), LOCATIONS)


def queue_names(spark: SparkSession, names: Mapping[str, str]) -> DataFrame:
    r"""The names that people use for queues, such as `rome: private$\orders`, by format name."""
    return local(spark, [(name.lower(), called) for name, called in names.items()], QUEUES)


def message_ids(spark: SparkSession, ids: Iterable[str]) -> DataFrame:
    return local(spark, [(each,) for each in ids], IDS)


def destination_key(queue: Column) -> Column:
    """The part of a format name that identifies its manager: a GUID, a name or an address."""
    guid = f.regexp_extract(queue, r"^(?:PRIVATE|PUBLIC|MACHINE|CONNECTOR)=([0-9A-Fa-f-]{36})", 1)
    host = f.regexp_extract(queue, r"^DIRECT=(?:TCP|OS|SPX):([^\\]+)\\", 1)
    web = f.regexp_extract(queue, r"^DIRECT=HTTPS?://([^/:\\]+)", 1)
    return f.lower(f.coalesce(*(f.nullif(each, f.lit("")) for each in (guid, host, web))))
