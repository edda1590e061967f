"""`postroad pipeline`: reads queues into tables on Spark, writes a report, compares routes, and replays dead
letters."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from postroad.cli.context import DEFAULT_API, AsJson, Context, is_given, read_token
from postroad.cli.output import ExitCode, fail, print_json, print_line, print_table, size_text
from postroad.reports.info import counted
from postroad.runtime.private_files import write_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postroad.directory.snapshot import Directory
    from postroad.spark.pipeline.alerts import Threshold
    from postroad.spark.pipeline.lake import Lake
    from postroad.spark.pipeline.run import Progress
    from postroad.spark.pipeline.service_levels import ServiceLevel
    from postroad.spark.pipeline.sources import Source

app = typer.Typer(
    help="Process messages with Spark: tables, a report, dead letters sent again; and routes of a changed enterprise."
)

DEFAULT_LAKE = "lake"
FOLLOW_S = 0.5  # between two questions of --follow whether something is new
LOOK_S = 60.0  # --follow records how full the queues are, even if nothing changes
SMALL = 100_000  # QUICK pays up to this many new packets
SMALL_LAKE = 1_000_000  # and up to this many packets in the tables, whose ids a run reads
LARGE_LAKE = 3_000_000  # QUICK_JAVA pays up to this many packets
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # otherwise Spark looks for the caller of each step of a plan
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Some work that Spark and Java do to be fast on millions of rows takes half of the time of a run with few messages.
# In a large lake, even a single day has enough messages for it to pay.
QUICK_JAVA = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=128m"]
FEW_TASKS = {"spark.sql.shuffle.partitions": "4"}
QUICK = FEW_TASKS | {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def _tokens(context: typer.Context, given: list[str] | None) -> list[str]:
    """The tokens after the command, or else the one before it or of the environment."""
    before = os.environ.get("POSTROAD_TOKEN") if context.obj is None else context.obj["token"]
    return given or ([before] if before is not None else [])


def _keys(apis: list[str], tokens: list[str]) -> list[tuple[str, str | None]]:
    """Each manager with its token."""
    if len(tokens) < 2:
        return [(api, read_token(tokens[0] if tokens else None)) for api in apis]
    if len(tokens) != len(apis):
        fail(f"--token: must be given once, or once for each of {len(apis)} --api, got {len(tokens)}", ExitCode.USAGE)
    return list(zip(apis, tokens, strict=True))


def _apis(context: typer.Context, given: list[str] | None) -> list[str]:
    """The APIs after the command, or else the one before it, or else those of the environment."""
    if not is_given(context, "apis") and is_given(cast(typer.Context, context.find_root()), "api"):
        return [context.obj["api"]]
    return given or [DEFAULT_API]


Apis = Annotated[
    list[str] | None,
    typer.Option(
        "--api",
        metavar="URL",
        envvar="POSTROAD_API",
        callback=_apis,
        help=f"The address of a queue manager's HTTP API; repeat it for more managers. {DEFAULT_API} if absent.",
    ),
]
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        callback=_tokens,
        help="The token of every API, or one for each --api, in their order. [env var: POSTROAD_TOKEN, or "
        "POSTROAD_TOKEN_FILE for a file]",
    ),
]
LakePath = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="POSTROAD_LAKE",
        help="Where the tables are: a local path, or an address that Spark can write, as in s3a://bucket/lake.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark's master: local[4], spark://host:7077 ... This machine if absent."
    ),
]
Down = Annotated[list[str] | None, typer.Option("--down", metavar="A-B", help="Remove the links between these sites.")]
Cost = Annotated[
    list[str] | None,
    typer.Option(
        "--cost", metavar="A-B=N", help="Give the links between these sites the cost N, or N times their cost as xN."
    ),
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")]
EnterpriseFile = Annotated[
    Path | None,
    typer.Option(
        "--enterprise", metavar="FILE", help="The directory's file: with it managers have sites, and links traffic."
    ),
]
ServiceLevels = Annotated[
    list[str] | None,
    typer.Option(
        "--sla",
        metavar="QUEUE=TIME",
        help=r"A service level for the report: private$\orders=30s is received within 30 s; repeat it for more.",
    ),
]


Alerts = Annotated[
    list[str] | None,
    typer.Option(
        "--alert",
        metavar="FIGURE>N",
        help="End with exit code 4 if a figure of the report is greater, as in 'dead>10'; repeat it for more.",
    ),
]
AlertFile = Annotated[
    Path | None,
    typer.Option("--alert-file", metavar="FILE", help="Write the alerts there as JSON, also if none is raised."),
]
Webhook = Annotated[
    str | None,
    typer.Option("--alert-webhook", metavar="URL", help="Post alerts there as JSON, once when they begin and end."),
]


@app.command()
def run(
    apis: Apis = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="PATTERN", help=r"Only queues such as private$\* or ;deadletter; all if absent."
        ),
    ] = None,
    consume: Annotated[
        list[str] | None,
        typer.Option(
            "--consume",
            metavar="PATTERN",
            help="Queues whose messages to remove once they are in the tables, such as '*;journal'.",
        ),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    form: Annotated[
        str | None, typer.Option("--format", metavar="F", help="parquet, delta or iceberg, for a new directory.")
    ] = None,
    enterprise: EnterpriseFile = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report as well, as one HTML page.")
    ] = None,
    sla: ServiceLevels = None,
    alert: Alerts = None,
    alert_file: AlertFile = None,
    alert_webhook: Webhook = None,
    every: Annotated[
        float | None, typer.Option("--every", metavar="S", min=1, help="Keep running, once every S seconds.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running, and take messages into the tables as they come.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
    tokens: Tokens = None,
) -> None:
    """Read the new messages of the queues into the tables. Messages stay in their queues unless --consume removes them.

    A run that was killed is finished by the next one; no packet is in the tables twice. Spark starts when there is
    something new.
    """
    if follow and every is not None:
        fail("--follow: must not be given together with --every", ExitCode.USAGE)
    _require_spark()
    from postroad.spark.pipeline.lake import Lake, check_format, kept_packets
    from postroad.spark.pipeline.lake_files import scheme_of
    from postroad.spark.pipeline.run import run as run_pipeline
    from postroad.spark.pipeline.sources import sources, unmatched

    keys = _keys(apis or [], tokens or [])
    check_format(form)
    settings = _settings(conf)
    directory = _directory(enterprise)
    levels = _levels(sla)
    wanted = _alerting(alert, alert_file, alert_webhook)
    if wanted.thresholds and report is None:
        fail("--alert: needs --report", ExitCode.USAGE)

    def find() -> list[Source]:
        return [each for api, key in keys for each in sources(api, key, queues or (), consume or ())]

    @cache
    def start() -> SparkSession:
        if remote:
            return _session("pipeline run", master, settings)
        kept = kept_packets(opened)
        # messages that were read stay in their queues, so do not count them again
        unread = sum(each.messages for each in found) - (0 if consume else kept)
        quick = quick_settings(kept, lasting=follow or every is not None) if unread < SMALL else None
        return _session("pipeline run", master, settings, quick)

    def open_lake() -> Lake:
        return Lake(start, lake, form, on_cluster=not (master or "local").startswith("local"))

    remote = scheme_of(lake) not in (None, "file")
    if remote:  # a wrong address is refused before any manager is asked
        opened = open_lake()
    found = find()
    for pattern in unmatched(found, queues or ()):
        fail(f"--queue: no queue matches {pattern}; `postroad queue list` shows what there is", ExitCode.FAILED)
    if not remote:  # a directory that cannot be written fails before Spark starts
        opened = open_lake()
    raised = False
    while True:
        started = time.monotonic()
        with _bar("tables") as progress:
            outcome = run_pipeline(opened, found, directory, progress)
        took_s = round(time.monotonic() - started, 1)
        if as_json:
            counts = {"batch": outcome.batch, "packets": outcome.packets, "removed": outcome.removed}
            print_json(counts | {"queues": outcome.sources, "seconds": took_s})
        else:
            new = counted(outcome.packets, "new packet")
            print_line(f"batch {outcome.batch}: {new} from {counted(outcome.sources, 'queue')} in {took_s} s")
        if report is not None and outcome.batch:
            raised = _write_report(opened, report, levels, wanted, as_json)
        if follow:
            found = _changed(found, find, started + LOOK_S)
            continue
        if every is None:
            raise typer.Exit(ExitCode.ALERT if raised else ExitCode.DONE)
        time.sleep(max(0.0, every - (time.monotonic() - started)))
        found = find()


def _changed(seen: list[Source], find: Callable[[], list[Source]], until: float) -> list[Source]:
    """Waits until the queues have changed, or until it is time for a look at them."""
    while True:
        time.sleep(FOLLOW_S)
        found = find()
        if [each.depth for each in found] != [each.depth for each in seen] or time.monotonic() > until:
            return found


@app.command()
def status(lake: LakePath = DEFAULT_LAKE, conf: Conf = None, as_json: AsJson = False) -> None:
    """Show the tables: up to which batch, in how many pieces, how large. Spark starts only if the lake is not local."""
    _require_spark()
    from postroad.spark.pipeline.lake import TABLES

    opened = _open_lake(lake, conf=conf)
    rows: list[dict[str, Any]] = []
    for name in TABLES:
        table = opened.table(name)
        last = table.last()
        files = table.files()
        size = sum(file.size for file in files)
        batch = None if last is None else last.facts.get("batch", last.batch)
        rows.append({"table": name, "batch": batch, "parts": table.parts(), "files": len(files), "bytes": size})
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_line(f"{opened.path}, {opened.form}")
    cells = [(row["table"], row["batch"], row["parts"], row["files"], size_text(row["bytes"])) for row in rows]
    print_table(
        ("table", "up to batch", "parts", "files", "size"), cells, numbers=("up to batch", "parts", "files", "size")
    )


@app.command()
def report(
    lake: LakePath = DEFAULT_LAKE,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page.")] = Path(
        "report.html"
    ),
    sla: ServiceLevels = None,
    alert: Alerts = None,
    alert_file: AlertFile = None,
    alert_webhook: Webhook = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page that says what to do, and what was delivered, how fast, by which route and what was lost.

    It needs the tables that `run` has made, and no Java if they are local. With --json the headline figures are printed
    as well.
    """
    _require_spark()
    wanted = _alerting(alert, alert_file, alert_webhook)
    if _write_report(_open_lake(lake, conf=conf), output, _levels(sla), wanted, as_json):
        raise typer.Exit(ExitCode.ALERT)


@app.command()
def compact(lake: LakePath = DEFAULT_LAKE, master: Master = None, conf: Conf = None, as_json: AsJson = False) -> None:
    """Join the small files of each day in every table. `run` does so by itself once a day has many."""
    _require_spark()
    from postroad.spark.pipeline.run import compact as compact_tables

    done = compact_tables(_open_lake(lake, master=master, conf=conf, start="pipeline compact"))
    if as_json:
        print_json({"compacted": done})
    else:
        print_line(f"compacted: {', '.join(done)}" if done else "nothing to compact")


@app.command()
def retain(
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="Keep messages sent in the last N days.")],
    lake: LakePath = DEFAULT_LAKE,
    enterprise: EnterpriseFile = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Remove older messages from every table. Give the same --enterprise as with `run`."""
    _require_spark()
    from postroad.spark.pipeline.run import retain as retain_days

    directory = _directory(enterprise)
    first = retain_days(_open_lake(lake, master=master, conf=conf, start="pipeline retain"), days, directory)
    if as_json:
        print_json({"first_day": first})
    else:
        print_line(f"messages sent since {first} stay")


@app.command("what-if")
def what_if(
    enterprise: Annotated[Path, typer.Argument(metavar="ENTERPRISE", help="The directory's file as it is.")],
    changed: Annotated[
        Path | None, typer.Argument(metavar="CHANGED", help="The file as it would be; else use --down and --cost.")
    ] = None,
    down: Down = None,
    cost: Cost = None,
    lake: Annotated[
        str | None, typer.Option("--lake", metavar="DIR", help="Tables with the traffic; all pairs of sites if absent.")
    ] = None,
    day: Annotated[
        str | None, typer.Option("--day", metavar="DAY", help="Only the traffic of this day, as in 2026-05-17.")
    ] = None,
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Also simulate a day of the lake, and report how deep queues get.")
    ] = False,
    read_rate: Annotated[
        float,
        typer.Option("--read-rate", metavar="N", min=0.001, help="Messages a second that a queue's reader takes."),
    ] = 1000.0,
    outage: Annotated[
        list[str] | None,
        typer.Option("--outage", metavar="NAME=HH:MM+N", help="What if this manager were down for N minutes (UTC)."),
    ] = None,
    most: Annotated[
        int,
        typer.Option(
            "--simulate", metavar="N", min=100, help="Simulate at most N messages; each then stands for several."
        ),
    ] = 20_000,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Compare routes and the load of links in a changed enterprise, and simulate a day's traffic in it.

    Spark starts only for a lake that is not local.
    """
    _require_spark()
    from postroad.cli.pipeline_routes import (
        changed_by,
        day_capacity,
        parse_outage,
        show_capacity,
        show_comparison,
    )
    from postroad.directory.file import load_enterprise, read_directory
    from postroad.simulation.capacity import CapacityPlan
    from postroad.spark.pipeline.routes import Demand, compare
    from postroad.spark.pipeline.traffic import busiest_day, by_pair

    if changed is not None and (down or cost):
        fail("CHANGED: must not be given together with --down or --cost", ExitCode.USAGE)
    if lake is None and (capacity or day):
        fail("--lake: is needed for --capacity and --day", ExitCode.USAGE)
    if (down or cost) and capacity:
        fail("--capacity: needs a file CHANGED instead of --down and --cost", ExitCode.USAGE)
    outages = tuple(parse_outage(each) for each in outage or [])
    if outages and not capacity:
        fail("--outage: needs --capacity", ExitCode.USAGE)
    before = read_directory(load_enterprise(enterprise))
    there = load_enterprise(changed or enterprise)
    after = changed_by(before, down or [], cost or []) if changed is None else read_directory(there)
    opened = None if lake is None else _open_lake(lake, conf=conf)
    if after is not None:
        demand = Demand.of_all_sites(before) if opened is None else Demand.of_traffic(by_pair(opened, day))
        show_comparison(compare(before, after, demand), as_json=as_json)
    elif not capacity:
        fail("say what changes: a file CHANGED, --down, --cost, or --capacity", ExitCode.USAGE)
    if capacity:
        assert opened is not None
        chosen = day or busiest_day(opened)
        plan = CapacityPlan(read_rate=read_rate, outages=outages, most_messages=most)
        show_capacity(day_capacity(there, opened, chosen, plan), chosen, as_json=as_json)


@app.command()
def replay(
    context: Context,
    where: Annotated[
        str,
        typer.Option(
            "--where", metavar="SQL", help="The dead letters to send again, in Spark SQL, such as label like 'order%'."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE", help="Where to send them; their original destination if absent."),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Send dead letters again, each exactly once; the original goes once its message is sent.

    The next replay in the same directory first finishes one that was interrupted. The next run and the report know what
    was sent again.
    """
    _require_spark()
    from postroad.names import parse_name
    from postroad.spark.pipeline.lake import plans_of
    from postroad.spark.pipeline.replay import replay as send_again

    if to is not None:
        parse_name(to)
    # settings for few messages, because the manager does most of the work
    spark = _session("pipeline replay", master, _settings(conf), quick_settings())
    with _bar("messages") as progress:
        done = send_again(
            spark,
            context.api,
            where,
            to=to,
            plans=plans_of(lake, spark),
            token=context.only_token(),
            dry_run=dry_run,
            progress=progress,
        )
    if context.as_json:
        print_json({"selected": done.selected, "sent": done.sent, "removed": done.removed, "dry_run": dry_run})
    elif dry_run:
        print_table(("queue", "lookup id", "reason", "label", "would go to"), done.planned)
        print_line(f"{counted(done.selected, 'dead letter')} would be sent again")
    else:
        print_line(f"{counted(done.sent, 'message')} sent again, {counted(done.removed, 'dead letter')} removed")


def _require_spark() -> None:
    """Fails with one sentence if pyspark or a package that it needs is not installed."""
    from importlib.util import find_spec

    from postroad.spark.session import require_pyspark

    require_pyspark()
    for package in ("altair", "vl_convert"):
        if find_spec(package) is None:
            fail(f"{package} is not installed; run pip install 'postroad[spark]'", ExitCode.FAILED)


def _directory(file: Path | None) -> Directory | None:
    if file is None:
        return None
    from postroad.directory.file import load_enterprise, read_directory

    return read_directory(load_enterprise(file))


def _settings(conf: list[str] | None) -> dict[str, str]:
    settings = {}
    for each in conf or []:
        key, equals, value = each.partition("=")
        if not equals:
            fail(f"--conf: {each!r} must be KEY=VALUE", ExitCode.USAGE)
        settings[key] = value
    return settings


def _levels(given: list[str] | None) -> list[ServiceLevel]:
    from postroad.spark.pipeline.service_levels import service_level

    return [service_level(each) for each in given or []]


def _session(
    name: str,
    master: str | None,
    given: dict[str, str],
    quick: dict[str, str] | None = None,
) -> SparkSession:
    from postroad.spark.session import JAVA_OPTIONS, session

    ours = quick if quick and (master is None or master.startswith("local")) else {}
    options = [*_quiet_java_options(), ours.get(JAVA_OPTIONS, ""), given.get(JAVA_OPTIONS, "")]
    settings = SETTINGS | ours | given | {JAVA_OPTIONS: " ".join(filter(None, options))}
    return session(f"postroad {name}", master, settings=settings)


def quick_settings(kept: int = 0, *, lasting: bool = False) -> dict[str, str]:
    """Spark's settings for few new messages in a lake with `kept` packets. A session that lasts can compile better."""
    from postroad.spark.session import JAVA_OPTIONS

    java = {JAVA_OPTIONS: " ".join(QUICK_JAVA)} if kept < LARGE_LAKE and not lasting else {}
    return (QUICK if kept < SMALL_LAKE else FEW_TASKS) | java


def _quiet_java_options() -> list[str]:
    """Java options that silence Spark's start, which a setting of the session would come too late for."""
    from importlib.resources import files

    if not os.environ.keys() & {"SPARK_CONF_DIR", "SPARK_HOME"}:
        file = files("postroad.spark.pipeline").joinpath("conf", "log4j2.properties")
        return [f"-Dlog4j2.configurationFile={quote(str(file))}"]
    return []


def _open_lake(
    path: str, *, master: str | None = None, conf: list[str] | None = None, start: str | None = None
) -> Lake:
    """The lake. It has a session if its address needs one, or if `start` makes one."""
    from postroad.spark.pipeline.lake_files import scheme_of

    _check_local(path)
    if start is None and scheme_of(path) in (None, "file"):
        return _existing(path, None)
    return _existing(path, _session(start or "pipeline", master, _settings(conf), quick_settings()))


def _check_local(path: str) -> None:
    """Refuses a local directory without tables, before Spark starts."""
    from postroad.spark.pipeline.lake_files import scheme_of

    if scheme_of(path) in (None, "file"):
        _existing(path, None)


def _existing(path: str, spark: SparkSession | None) -> Lake:
    from postroad.spark.pipeline.lake import Lake, has_tables

    if not has_tables(path, spark):
        fail(f"{path} has no tables: `postroad pipeline run --lake {quote(path)}` creates them", ExitCode.FAILED)
    return Lake(spark, path)


@dataclass(frozen=True, slots=True)
class _Alerting:
    """Which alerts somebody wants, and where they go."""

    thresholds: list[Threshold]
    file: Path | None
    webhook: str | None


def _alerting(given: list[str] | None, file: Path | None, webhook: str | None) -> _Alerting:
    from postroad.spark.pipeline.alerts import check_webhook, threshold

    if (file or webhook) and not given:
        fail("--alert-file, --alert-webhook: need --alert", ExitCode.USAGE)
    if webhook is not None:
        check_webhook(webhook)
    return _Alerting([threshold(each) for each in given or []], file, webhook)


def _write_report(lake: Lake, output: Path, levels: list[ServiceLevel], wanted: _Alerting, as_json: bool) -> bool:
    """Writes the report, and sends the alerts. Returns whether one is raised."""
    from datetime import UTC, datetime

    from postroad.spark.pipeline.advice import advice
    from postroad.spark.pipeline.alerts import Reported, changes, keep_report, post
    from postroad.spark.pipeline.facts import gather
    from postroad.spark.pipeline.report import render, summary

    facts = gather(lake, levels)
    todo = advice(facts)
    now = Reported.of(facts, todo, wanted.thresholds)
    _write(output, render(facts, datetime.now(UTC)))
    if wanted.file is not None:
        _write(wanted.file, json.dumps(now.json()))
    new = changes(now, facts.before or Reported(now.as_of, {}))
    if wanted.webhook is not None and any(new.values()):
        post(wanted.webhook, {"lake": lake.path} | new | now.json())
    keep_report(lake, now)
    if as_json:
        told = {"to_do": [each.json() for each in todo], "report": str(output), "alerts": sorted(now.alerts)}
        print_json(facts.json() | told)
        return bool(now.alerts)
    print_line(summary(facts))
    if todo:
        first = todo[0]
        print_line(f"to do: {counted(len(todo), 'finding')}; first {first.where}: {first.messages:,}. {first.what}")
    print_line(f"the report is in {output}")
    for each in sorted(now.alerts):
        print_line(f"! alert: {each}")
    return bool(now.alerts)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_private(file, text)
    except OSError as fault:
        fail(f"{file} cannot be written: {fault.strerror}", ExitCode.FAILED)


@contextmanager
def _bar(unit: str) -> Iterator[Progress]:
    """A progress bar, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("starting", total=None)
        yield lambda what, done, steps: bars.update(task, description=what, completed=done, total=steps)
