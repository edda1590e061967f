"""What `postroad pipeline routes` prints: all next hops in short, what a change would move, and what links carry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroad.cli.output import count_text, print_json, print_line, print_table, size_text
from postroad.runtime.private_files import make_private_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postroad.directory.snapshot import Directory
    from postroad.spark.pipeline.lake import Lake

MOST_ROWS = 20


def changed_by(directory: Directory, down: Sequence[str], costs: Sequence[str]) -> Directory | None:
    """The directory after what the options would change; None where they change nothing."""
    from postroad.directory.what_if import changed, parse_cost, parse_down

    changes = [parse_down(each, directory) for each in down] + [parse_cost(each, directory) for each in costs]
    return changed(directory, changes) if changes else None


def show_routes(
    spark: SparkSession,
    directory: Directory,
    changed: Directory | None,
    lake: Lake | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    from postroad.spark.pipeline.routes import first_links, moved, routes

    after = changed or directory
    found = routes(spark, after)
    if output is not None:
        make_private_directory(output)
        found.write.mode("overwrite").parquet(str(output / "routes"))
        first_links(spark, after).write.mode("overwrite").parquet(str(output / "links"))
        found = spark.read.parquet(str(output / "routes"))
    totals: dict[str, Any] = _totals(found, directory)
    if changed is not None:
        differing = moved(spark, directory, after).persist()
        totals |= _moved(differing)
    if as_json:
        print_json(totals)
    else:
        _print_totals(totals, output)
    if changed is not None:
        _print_moved(differing, as_json)
    if lake is not None:
        _print_loads(spark, directory, changed, lake, as_json)


def _totals(found: DataFrame, directory: Directory) -> dict[str, Any]:
    from pyspark.sql import functions as f

    sites = len(directory.sites)
    own = found.where(f.col("from_site").isin([site.name for site in directory.sites]))
    row = own.agg(f.count("*"), f.avg("cost"), f.max("cost")).collect()[0]
    pairs = sites * (sites - 1)
    return {
        "sites": sites,
        "links": len(directory.links),
        "routes": row[0],
        "unreachable": pairs - row[0],
        "mean_cost": None if row[1] is None else round(row[1], 1),
        "greatest_cost": row[2],
    }


def _moved(differing: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as f

    gone = f.sum(f.col("cost_after").isNull().cast("bigint"))
    row = differing.agg(
        f.count("*"), f.sum((~f.col("next_before").eqNullSafe(f.col("next_after"))).cast("bigint")), gone
    )
    all_of_them, rerouted, cut_off = row.collect()[0]
    return {"changed": all_of_them, "rerouted": (rerouted or 0) - (cut_off or 0), "cut_off": cut_off or 0}


def _print_totals(totals: dict[str, Any], output: Path | None) -> None:
    print_line(
        f"{count_text(totals['sites'], 'site')}, {count_text(totals['links'], 'link')}: "
        f"{count_text(totals['routes'], 'route')}, {totals['unreachable']} pairs of sites without one; "
        f"cost {totals['mean_cost']} on average, {totals['greatest_cost']} at most"
    )
    if output is not None:
        print_line(f"all of them are in {output / 'routes'}, the gates of each link in {output / 'links'}")
    if "changed" in totals:
        print_line(
            f"the change moves {totals['changed']} of them: {totals['rerouted']} to another next site, "
            f"{totals['cut_off']} have no route any more"
        )


def _print_moved(differing: DataFrame, as_json: bool) -> None:
    from pyspark.sql import functions as f

    most = differing.orderBy(
        (f.col("cost_after") - f.col("cost_before")).desc_nulls_first(), "from_site", "to_site"
    ).limit(MOST_ROWS)
    rows = most.collect()
    if as_json:
        for row in rows:
            print_json(row.asDict())
        return
    print_table(
        ("from", "to", "next now", "cost now", "next then", "cost then"),
        [
            (row.from_site, row.to_site, row.next_before, row.cost_before, row.next_after, row.cost_after)
            for row in rows
        ],
        numbers=("cost now", "cost then"),
    )


def _print_loads(spark: SparkSession, before: Directory, after: Directory | None, lake: Lake, as_json: bool) -> None:
    from postroad.spark.pipeline.lake import TRAFFIC
    from postroad.spark.pipeline.routes import link_loads, unserved
    from postroad.spark.pipeline.traffic import demand

    wanted = demand(lake.read(TRAFFIC)).persist()
    now = {(row.site_a, row.site_b): row for row in link_loads(spark, before, wanted).collect()}
    then = now if after is None else {(r.site_a, r.site_b): r for r in link_loads(spark, after, wanted).collect()}
    links = sorted(now.keys() | then.keys(), key=lambda link: -abs(_messages(then, link) - _messages(now, link)))
    lost = [] if after is None else unserved(spark, after, wanted).collect()
    if as_json:
        for link in links:
            print_json(
                {"link": list(link), "messages_now": _messages(now, link), "messages_then": _messages(then, link)}
            )
        for row in lost:
            print_json({"from": row.from_site, "to": row.to_site, "messages_without_a_way": row.messages})
        return
    print_line("traffic of the tables, by link")
    rows = [
        (
            " - ".join(link),
            _messages(now, link),
            _messages(then, link),
            size_text(then[link].bytes if link in then else 0),
        )
        for link in links[:MOST_ROWS]
    ]
    print_table(("link", "messages now", "then", "size then"), rows, numbers=("messages now", "then", "size then"))
    for row in lost:
        print_line(f"! {count_text(row.messages, 'message')} from {row.from_site} to {row.to_site} would have no way")


def _messages(loads: dict[tuple[str, str], Any], link: tuple[str, str]) -> int:
    return loads[link].messages if link in loads else 0
