"""`postroad simulate`: runs a network of queue managers from a file in virtual time, with its faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import AsJson
from postroad.cli.output import ExitCode, print_json, print_line, print_table
from postroad.reports.info import counted

if TYPE_CHECKING:
    from postroad.simulation.verdict import FlowReport, Report


def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The network, its workload and its faults, in TOML.")],
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Another seed than the file's, for other chances.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Print every event first. One seed gives one log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a network of queue managers in virtual time, and report what arrived, how fast, and what is stuck.

    Exit code 1 if a promise was broken, a queue still has messages, or a manager is down at the end.
    """
    from dataclasses import replace

    from postroad.simulation.scenario import load_scenario
    from postroad.simulation.verdict import report
    from postroad.simulation.world import World

    scenario = load_scenario(file)
    if seed is not None:
        scenario = replace(scenario, seed=seed)
    world = World(scenario, log=log)
    world.run()
    for line in world.stage.log.lines:
        print_line(line)
    found = report(world)
    if as_json:
        print_json(found.json())
    else:
        _print(found)
    if not found.good:
        raise typer.Exit(ExitCode.FAILED)


def _print(found: Report) -> None:
    settled = "and never came to rest" if found.settled_s is None else f"still after {found.settled_s:.0f} s"
    print_line(f"seed {found.seed}: {found.duration_s:.0f} s of virtual time, {found.events} events, {settled}")
    print_line("")
    _print_flows(found.flows)
    _print_deaths(found.flows)
    for name in found.down:
        print_line(f"! {name} is not running")
    for queue in found.stuck:
        print_line(f"! {queue.manager}: {counted(queue.messages, 'message')} in {queue.queue}: {queue.why}")
    for sentence in found.faults:
        print_line(f"! {sentence}")
    print_line(f"lost {found.lost}, duplicated {found.duplicated}, reordered {found.reordered}")


def _print_flows(flows: tuple[FlowReport, ...]) -> None:
    columns = (
        "from",
        "to",
        "kind",
        "sent",
        "arrived",
        "received",
        "waiting",
        "dead",
        "gone",
        "p50 ms",
        "p99 ms",
        "max",
    )
    print_table(
        columns,
        [
            (
                flow.source,
                flow.to,
                flow.kind,
                flow.sent,
                flow.arrived,
                flow.received,
                flow.waiting,
                sum(flow.dead_letters.values()),
                sum(flow.gone.values()),
                *(_times(flow)),
            )
            for flow in flows
        ],
        numbers=columns[3:],
    )
    print_line("")


def _times(flow: FlowReport) -> tuple[object, object, object]:
    latency = flow.latency
    return (None, None, None) if latency is None else (latency.p50_ms, latency.p99_ms, latency.max_ms)


def _print_deaths(flows: tuple[FlowReport, ...]) -> None:
    rows = [
        (flow.source, flow.to, what, reason, number)
        for flow in flows
        for what, reasons in (("dead letter", flow.dead_letters), ("gone", flow.gone))
        for reason, number in reasons.items()
    ]
    if rows:
        print_table(("from", "to", "became", "reason", "messages"), rows, numbers=("messages",))
        print_line("")
