"""What every gold table must say about generated traffic, computed message by message in plain Python, from the
documentation of the tables. Nothing here uses the code of the pipeline. Times are milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from postroad.wire.constants import MessageClass
from tests.spark.edges import DAY_MS, HOUR_MS, LINKS, NAMES, SITES, Found, Letter, Said, Traffic, called, why

Row = dict[str, Any]
Key = tuple[Any, ...]
MINUTE_MS = 60_000
BINS_S = (1, 2, 5, 10, 30, 60, 300, 3600, 86_400)
PERIODS_MS = tuple(minutes * MINUTE_MS for minutes in (7 * 1440, 1440, 360, 60, 10, 1))
EVENTS = ("sent_at", "reached_at", "received_at", "dead_at")


def delivery(traffic: Traffic) -> list[Row]:
    letters: dict[str, list[Found]] = defaultdict(list)
    said: dict[str, list[tuple[Found, Said]]] = defaultdict(list)
    reports: dict[Key, set[Key]] = defaultdict(set)
    for each in traffic.found:
        if isinstance(each.of, Letter):
            letters[each.of.id].append(each)
        elif isinstance(each.of, Said) and each.of.kind is MessageClass.REPORT:
            about = each.of.about
            reports[str(about.source)[:4], about.number, about.to.lower()].add(
                (each.of.hops, each.of.at_s, NAMES[each.of.by])
            )
        elif isinstance(each.of, Said):
            said[each.of.about.id].append((each, each.of))
    late = _out_of_order(traffic)
    floors = {(each.manager, rf"private$\{each.queue}"): each.floor for each in traffic.looks}
    return [
        _fate(traffic, letters[name], said[name], reports, floors) | {"out_of_order": name in late}
        for name in {*letters, *said}
        if letters[name] or said[name]
    ]


def _fate(traffic: Traffic, copies: list[Found], said: list[tuple[Found, Said]], reports: Any, floors: Any) -> Row:
    any_of = copies[0].of if copies else said[0][1].about
    assert isinstance(any_of, Letter)
    letter = any_of
    known = bool(copies)

    def first(*roles: str) -> int | None:
        return min((each.at_ms for each in copies if each.role in roles), default=None)

    def told(*kinds: MessageClass) -> int | None:
        return min((1000 * each.at_s for _, each in said if each.kind in kinds), default=None)

    queued, journal, left = first("queued"), first("received"), first("sent")
    sent = sent_until = None
    if known:
        sent = letter.sent_s * 1000
        home = [each.at_ms for each in copies if each.manager == letter.source and each.at_ms >= sent]
        sent_until = min([sent + 1000, *home])
    reach_ack, receive_ack = told(MessageClass.ACK_REACH_QUEUE), told(MessageClass.ACK_RECEIVE)
    reached = (queued, queued) if queued is not None else (reach_ack, None if reach_ack is None else reach_ack + 1000)
    received: tuple[int | None, int | None] = (None, None)
    received_at = None
    if journal is not None:
        received_at, received = journal, (journal, journal)
    elif receive_ack is not None:
        received_at, received = receive_ack, (receive_ack, receive_ack + 1000)
    elif known and letter.delivery == "transactional" and left is not None:
        begin = reached[0] if reached[0] is not None else sent
        assert begin is not None
        received_at, received = left, (min(begin, left), left)
    letter_of_death = min(
        ((each.at_ms, each.reason, NAMES[each.manager]) for each in copies if each.role == "dead"), default=None
    )
    refusal = min(
        ((1000 * each.at_s, why(each.kind)) for _, each in said if each.kind.name.startswith("NACK")), default=None
    )
    dead_at = letter_of_death[0] if letter_of_death else refusal[0] if refusal else None
    reason = None
    if received_at is None and dead_at is not None:
        reason = why(letter_of_death[1]) if letter_of_death else refusal[1] if refusal else None
    outgoing = first("outgoing")
    if received_at is not None:
        state = "received"
    elif dead_at is not None:
        state = "dead"
    elif reached[0] is not None:
        state = "reached"
    elif outgoing is not None and left is None:
        state = "outgoing"
    else:
        state = "sent" if known else "mentioned"
    there = min(
        ((e.at_ms, NAMES[e.manager], e.queue) for e in copies if e.role in ("received", "queued")), default=None
    )
    destination = there[1] if there else NAMES[letter.manager]
    if there:
        queue = f"{there[1]}: {there[2].removesuffix(';journal')}"
    else:
        queue = {name.lower(): name_of for name, name_of in traffic.queues.items()}.get(letter.to.lower(), letter.to)
    still = [
        each.arrival >= floors[each.manager, each.queue]
        for each in copies
        if each.role == "queued" and (each.manager, each.queue) in floors
    ]
    asked = [word for word in ("reach", "receive") if known and word in letter.asked.split(",")]
    if known and letter.delivery == "transactional" and "receive" not in asked:
        asked.append("receive")
    days = [each for each in (sent, received_at, reached[0], dead_at) if each is not None]
    seen = min(each.at_ms for each in (*copies, *(place for place, _ in said)))
    steps = sorted(reports.get((str(letter.source)[:4], letter.number, letter.to.lower()), ()))
    return {
        "id": letter.id,
        "label": letter.label,
        "message_type": letter.message_type if known else None,
        "delivery": letter.delivery if known else None,
        "priority": letter.priority if known else None,
        "size": len(letter.packet) if known else None,
        "sent_at": sent,
        "sent_until": sent_until,
        "source": NAMES[letter.source],
        "source_site": SITES[NAMES[letter.source]],
        "destination": destination,
        "destination_site": SITES[destination],
        "destination_queue": letter.to,
        "queue": queue,
        "state": state,
        "left_at": left,
        "reached_at": reached[0],
        "received_at": received_at,
        "dead_at": dead_at,
        "reason": reason,
        "reach_s": _span(sent, reached[1]),
        "receive_s": _span(sent, received[1]),
        "reach_least_s": _span(sent_until, reached[0]),
        "receive_least_s": _span(sent_until, received[0]),
        "hops": 0 if known else None,
        "way": list(dict.fromkeys(name for _, _, name in steps)),
        "duplicates": _duplicates(copies),
        "contradicted": received_at is not None and dead_at is not None,
        "asked": ",".join(asked),
        "unexplained": state == "sent" and bool(asked),
        "in_queue": any(still) if still else None,
        "correlation_id": letter.correlation if known else None,
        "response_queue": letter.reply_to if known else None,
        "sender_id": None,
        "dead_in": letter_of_death[2] if letter_of_death else None,
        "replayed": letter.id in traffic.again,
        "day": (days[0] if days else seen) // DAY_MS,
    }


def _span(since: int | None, until: int | None) -> float | None:
    return None if since is None or until is None else max(0, until - since) / 1000


def _duplicates(copies: list[Found]) -> int:
    """A message that was moved has one copy in each of two queues. It is the same one at the next run."""
    places = Counter(
        (e.manager, e.queue, e.role, e.batch if e.role == "queued" else 0)
        for e in copies
        if e.role in ("queued", "received")
    )
    return max(places.values(), default=1) - 1


def _out_of_order(traffic: Traffic) -> set[str]:
    rows: dict[Key, list[Found]] = defaultdict(list)
    for each in traffic.found:
        if isinstance(each.of, Letter) and each.of.sequence and each.role in ("queued", "received"):
            rows[each.manager, each.queue, each.of.source, each.of.sequence[0]].append(each)
    found = set()
    for some in rows.values():
        most = 0
        for each in sorted(some, key=lambda one: one.arrival):
            assert isinstance(each.of, Letter)
            assert each.of.sequence
            if each.of.sequence[1] < most:
                found.add(each.of.id)
            most = max(most, each.of.sequence[1])
    return found


# Summaries, from the rows of gold/delivery above


def grouped(rows: Iterable[Row], *names: str) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(_hashable(row[name]) for name in names)].append(row)
    return found


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def values(rows: Iterable[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def states(rows: list[Row]) -> list[Row]:
    ends = ("day", "source", "destination", "source_site", "destination_site", "queue", "delivery", "state", "reason")
    found = []
    for key, some in grouped(rows, *ends).items():
        row = dict(zip(ends, key, strict=True)) | {"messages": len(some), "bytes": sum(values(some, "size"))}
        row |= {
            name: sum(map(int, values(some, name)))
            for name in ("duplicates", "out_of_order", "contradicted", "unexplained")
        }
        row |= {"most_hops": max(values(some, "hops"), default=None), "a_way": max(each["way"] for each in some)}
        for name in EVENTS:
            row |= {
                f"first_{name}": min(values(some, name), default=None),
                f"last_{name}": max(values(some, name), default=None),
            }
        row |= {
            "in_queue": sum(e["in_queue"] is True for e in some),
            "left_queue": sum(e["in_queue"] is False for e in some),
        }
        for name in ("reach", "receive"):
            counts = [0] * (len(BINS_S) + 1)
            for took in values(some, f"{name}_s"):
                counts[sum(took > edge for edge in BINS_S)] += 1
            row[f"{name}_spread"] = counts
        found.append(row)
    return found


def _route(row: Row) -> str:
    return f"{row['source']} -> {row['destination']}"


GROUPS: dict[str, Callable[[Row], Any]] = {
    "all": lambda row: "all",
    "queue": lambda row: row["queue"],
    "route": _route,
    "type": lambda row: row["message_type"],
}


def latency(rows: list[Row]) -> dict[Key, Row]:
    """The times of both bounds by group, sorted."""
    found: dict[Key, Row] = {}
    for by, value in (
        GROUPS | {"priority": lambda row: None if row["priority"] is None else str(row["priority"])}
    ).items():
        for until in ("reach", "receive"):
            for row in rows:
                if row[f"{until}_s"] is not None and value(row) is not None:
                    into = found.setdefault((by, value(row), until), {"most": [], "least": []})
                    into["most"].append(row[f"{until}_s"])
                    into["least"].append(row[f"{until}_least_s"])
    return found


def traffic_rows(rows: list[Row]) -> list[Row]:
    for row in rows:
        moments = (row["sent_at"], row["received_at"], row["reached_at"], row["dead_at"])
        at = next((each for each in moments if each is not None), None)
        row["minute"] = None if at is None else at // MINUTE_MS * MINUTE_MS
    ends = (
        "day",
        "minute",
        "source",
        "destination",
        "source_site",
        "destination_site",
        "queue",
        "delivery",
        "priority",
    )
    return [
        dict(zip(ends, key, strict=True)) | {"messages": len(some), "bytes": sum(values(some, "size"))}
        for key, some in grouped(rows, *ends).items()
    ]


def links(rows: list[Row]) -> list[Row]:
    """Each message takes the cheapest way, which is over France unless it begins or ends there."""
    ways = {
        ("italy", "uk"): [("france", "uk"), ("france", "italy")],
        ("france", "uk"): [("france", "uk")],
        ("france", "italy"): [("france", "italy")],
    }
    assert LINKS["uk", "france"] + LINKS["france", "italy"] < LINKS["uk", "italy"]
    found: dict[Key, Counter[str]] = defaultdict(Counter)
    for row in traffic_rows(rows):
        pair = tuple(sorted((row["source_site"], row["destination_site"])))
        for one, other in ways.get(pair, ()):
            found[row["day"], row["minute"], one, other] += Counter(messages=row["messages"], bytes=row["bytes"])
    names = ("day", "minute", "site_a", "site_b")
    return [
        dict(zip(names, key, strict=True)) | {"messages": sums["messages"], "bytes": sums["bytes"]}
        for key, sums in found.items()
    ]


def dead_letters(rows: list[Row]) -> list[Row]:
    dead = [row | {"minute": row["dead_at"] // MINUTE_MS * MINUTE_MS} for row in rows if row["state"] == "dead"]
    ends = ("day", "minute", "reason", "source", "queue", "dead_in")
    return [
        dict(zip(ends, key, strict=True))
        | {"messages": len(some), "replayed": sum(each["replayed"] for each in some)}
        | {"first_at": min(values(some, "dead_at")), "last_at": max(values(some, "dead_at"))}
        for key, some in grouped(dead, *ends).items()
    ]


def oldest(rows: list[Row]) -> list[Row]:
    kept = ("id", "label", "delivery", "sent_at", "left_at", "source", "destination", "queue", "way", "asked")
    some = sorted((row for row in rows if row["unexplained"]), key=lambda row: (row["day"], row["sent_at"], row["id"]))
    return [{name: row[name] for name in kept} for row in some[:100]]


def undecodable(traffic: Traffic) -> list[Row]:
    some = [each for each in traffic.found if each.of is None]
    if not some:
        return []
    times = [each.at_ms for each in some]
    first = min(each.arrival for each in some)
    place = {"manager": NAMES[some[0].manager], "queue": some[0].queue, "packets": len(some), "lookup_id": first}
    return [place | {"first_at": min(times), "last_at": max(times), "head": some[0].packet.hex()}]


def backlog(traffic: Traffic) -> list[Row]:
    by_hour: dict[Key, list[Any]] = defaultdict(list)
    for each in traffic.looks:
        by_hour[each.manager, each.queue, each.at_ms // HOUR_MS * HOUR_MS].append(each)
    found = []
    for (manager, queue, hour), looks in by_hour.items():
        first, last = min(looks, key=lambda each: each.number), max(looks, key=lambda each: each.number)
        row = {
            "manager": NAMES[manager],
            "queue": rf"private$\{queue}",
            "called": called(manager, queue),
            "role": "queued",
            "hour": hour,
        }
        row |= {"first_looked_at": first.at_ms, "looked_at": last.at_ms, "first_messages": first.messages}
        row |= {"first_oldest_at": first.oldest_ms, "messages": last.messages, "bytes": 100 * last.messages}
        row |= {
            "readers": last.readers,
            "oldest_at": last.oldest_ms,
            "stuck": False,
            "why": None,
            "departed": last.departed,
        }
        found.append(row | {"most": max(each.messages for each in looks), "looks": len(looks)})
    return found


def trend(rows: list[Row]) -> list[Row]:
    moments = [row[name] for row in rows for name in EVENTS if row[name] is not None]
    length = next((each for each in PERIODS_MS if max(moments) - min(moments) >= 2 * each), None)
    if length is None:
        return []
    end = max(moments)  # a period has its last moment and not its first
    found = []
    for by, value in GROUPS.items():
        for of in {value(row) for row in rows} - {None}:
            some = [row for row in rows if value(row) == of]
            made = [
                _period(some, name, end - length * back, length) | {"by": by, "value": of}
                for back, name in enumerate(("now", "before"))
            ]
            some_in = [any(row[name] is not None and row[name] > end - 2 * length for name in EVENTS) for row in some]
            found += made if any(some_in) else []
    return found


def _period(rows: list[Row], name: str, end: int, length: int) -> Row:
    def inside(row: Row, event: str) -> bool:
        return row[event] is not None and end - length < row[event] <= end

    row: Row = {
        "period": name,
        "since": end - length,
        "until": end,
        "sent": sum(inside(each, "sent_at") for each in rows),
    }
    row |= {"received": sum(inside(each, "received_at") for each in rows)}
    row |= {"died": sum(inside(each, "dead_at") and each["state"] == "dead" for each in rows)}
    for until in ("reach", "receive"):
        for bound in ("s", "least_s"):
            took = values(
                (each for each in rows if inside(each, f"{until}ed_at" if until == "reach" else "received_at")),
                f"{until}_{bound}",
            )
            row |= {f"{until}_p{share}_{bound}": percentile(took, share) for share in (50, 90)}
    return row


def percentile(some: Sequence[float], share: float) -> float | None:
    return float(np.percentile(some, share)) if len(some) else None


def exchanges(rows: list[Row]) -> list[Row]:
    kept = (
        "day",
        "id",
        "correlation_id",
        "label",
        "source",
        "destination",
        "queue",
        "response_queue",
        "sent_at",
        "sent_until",
        "state",
        "in_queue",
    )
    return [{name: row[name] for name in kept} for row in rows if row["correlation_id"] or row["response_queue"]]


def conversations(rows: list[Row], journals: Sequence[str]) -> list[Row]:
    kept = ("id", "label", "source", "destination", "queue", "response_queue", "sent_at", "state")
    answers = grouped((row for row in rows if row["correlation_id"]), "correlation_id")
    watched = {each.lower() for each in journals}
    found = []
    for row in rows:
        if not row["response_queue"]:
            continue
        its = answers.get((row["id"],), [])
        first = min(
            (each for each in its if each["sent_at"] is not None),
            key=lambda each: (each["sent_at"], each["id"]),
            default=None,
        )
        is_open = not its and row["state"] != "dead"
        waits = row["response_queue"].lower() in watched or row["in_queue"] is True or row["state"] == "outgoing"
        more = {"answers": len(its), "unanswered": is_open and waits, "unknown": is_open and not waits}
        more |= dict.fromkeys(("answered_at", "answer_id", "answered_by", "response_s", "response_least_s"))
        if first is not None:
            more |= {"answered_at": first["sent_at"], "answer_id": first["id"], "answered_by": first["source"]}
            more |= {"response_s": _span(row["sent_at"], first["sent_until"])}
            more |= {"response_least_s": _span(row["sent_until"], first["sent_at"])}
        found.append({name: row[name] for name in kept} | more)
    return found


def pairs(requests: list[Row]) -> list[Row]:
    found = []
    for (source, queue), some in grouped(requests, "source", "queue").items():
        waiting = [row for row in some if row["unanswered"]]
        first = min(waiting, key=lambda row: (row["sent_at"], row["id"]), default=None)
        row = {"source": source, "queue": queue, "messages": len(some), "answered": sum(e["answers"] > 0 for e in some)}
        row |= {"unanswered": len(waiting), "unknown": sum(each["unknown"] for each in some)}
        row |= {"died": sum(e["answers"] == 0 and e["state"] == "dead" for e in some)}
        row |= {"oldest_unanswered_at": first and first["sent_at"], "oldest_unanswered": first and first["id"]}
        row |= {"answered_by": max(values(some, "answered_by"), default=None)}
        for bound in ("s", "least_s"):
            took = values(some, f"response_{bound}")
            row |= {f"response_p{share}_{bound}": percentile(took, share) for share in (50, 90, 99)}
            row |= {f"response_max_{bound}": max(took, default=None)}
        found.append(row)
    return found


def chains(rows: list[Row]) -> list[Row]:
    """Each message is followed upwards, one by one, until the message before is not known, or was met already."""
    by_id = {row["id"]: row for row in rows}
    followers: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for row in rows:
        met, here = [row["id"]], row
        while here["correlation_id"] in by_id and here["correlation_id"] not in met:
            here = by_id[here["correlation_id"]]
            met.append(here["id"])
        in_circle = here["correlation_id"] in met and here["correlation_id"] != here["id"]
        if len(met) > 1 and not in_circle:
            followers[here["id"]].append((len(met) - 1, row))
    found = []
    for name, some in followers.items():
        first = by_id[name]
        last = max(values((row for _, row in some), "sent_at"))
        row = {key: first[key] for key in ("id", "label", "source", "sent_at")}
        row |= {"followers": len(some), "steps": max(steps for steps, _ in some), "last_at": last}
        until = max(values((each for _, each in some), "sent_until"))
        found.append(
            row | {"seconds": _span(first["sent_at"], until), "least_seconds": _span(first["sent_until"], last)}
        )
    return sorted(found, key=lambda row: (-row["steps"], -row["followers"], row["id"]))[:100]


def counts(rows: list[Row], *, by_day: bool = True) -> list[Row]:
    """By day, for gold/counts; else for gold/top."""
    kinds: dict[str, Callable[[Row], str]] = {
        "label": lambda row: re.sub(r"\d+", "#", row["label"] or "")[:120],
        "sender": lambda row: row["sender_id"] or row["source"],
        "type": lambda row: row["message_type"] or "",
    }
    found = []
    for kind, value in kinds.items():
        some = [row | {"kind": kind, "value": value(row)} for row in rows]
        names = ("day", "kind", "value") if by_day else ("kind", "value")
        for key, its in grouped(some, *names).items():
            row = dict(zip(names, key, strict=True)) | {"messages": len(its), "bytes": sum(values(its, "size"))}
            found.append(
                row
                | {
                    name: sum(e["state"] == of for e in its)
                    for name, of in (("received", "received"), ("died", "dead"))
                }
            )
    return found


def hours(rows: list[Row]) -> list[Row]:
    sent = [
        row | {"hour": row["sent_at"] // HOUR_MS * HOUR_MS, "reason": None}
        for row in rows
        if row["sent_at"] is not None
    ]
    died = [row | {"hour": row["dead_at"] // HOUR_MS * HOUR_MS} for row in rows if row["state"] == "dead"]
    names = ("day", "hour", "queue", "reason")
    found = []
    for some, timed in ((sent, True), (died, False)):
        for key, its in grouped(some, *names).items():
            half = percentile(values(its, "receive_s"), 50) if timed else None
            found.append(dict(zip(names, key, strict=True)) | {"messages": len(its), "receive_p50_s": half})
    return found
