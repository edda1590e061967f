"""Says what to do about the findings of a report: where, how many messages, how old, and the commands to run.

The most urgent findings come first. Among findings of the same urgency, the number of messages decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC
from shlex import quote
from typing import Any

from postroad.reports.trace import class_words
from postroad.spark.pipeline.facts import Facts, Row, earliest, latest, summed
from postroad.spark.pipeline.silver import OUTGOING, QUEUED
from postroad.spark.pipeline.trends import Anomaly
from postroad.spark.pipeline.words import age, counted, listed, seconds
from postroad.wire.constants import MessageClass, class_name

# What to do about each reason of death. reports/trace.py has the words for the reasons.
_REMEDIES: dict[MessageClass, str] = {
    MessageClass.NACK_BAD_DST_Q: "create the queue, or correct the name at the sender",
    MessageClass.NACK_DELETED: "ask who emptied the outgoing queue",
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: "check that the destination answers, and why the outgoing queue waits",
    MessageClass.NACK_Q_EXCEED_QUOTA: "read the queue faster, or raise its quota",
    MessageClass.NACK_ACCESS_DENIED: "let the sender write to the queue",
    MessageClass.NACK_HOP_COUNT_EXCEEDED: "look for routing links that form a loop",
    MessageClass.NACK_BAD_SIGNATURE: "sign the messages, or lower the requirement of the queue",
    MessageClass.NACK_BAD_ENCRYPTION: "compare the queue's setting `privacy` with the sender's",
    MessageClass.NACK_NOT_TRANSACTIONAL_Q: "send without a transaction",
    MessageClass.NACK_NOT_TRANSACTIONAL_MSG: "send in a transaction",
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "encrypt with a provider that both sides have",
    MessageClass.NACK_Q_DELETED: "create the queue again",
    MessageClass.NACK_Q_PURGED: "ask who purged it",
    MessageClass.NACK_RECEIVE_TIMEOUT: "start the receiver, or give the messages more time to be received",
    MessageClass.NACK_RECEIVE_REJECTED: "ask the receiver why",
}
_BY_NAME = {class_name(reason): (class_words(reason), do) for reason, do in _REMEDIES.items()}
_MOST_COMMANDS = 3
_PLAIN = re.compile(r"[A-Za-z0-9_ -]+")

# Thresholds for findings. A backlog is a finding if a queue holds many messages, or holds a message for long.
MANY = 1000
LONG_S = 600.0
QUIET_S = 60.0  # a receiver has stopped if it is silent for this long, and for ten times its usual gap
SLOW_S = 60.0  # a route is slow if one message in ten takes longer than this to reach its queue
WORSE = 2.0  # times as slow, or times as many dead messages, as in the previous period
WORSE_S = 5.0  # and at least this much slower
WORSE_DEAD = 5  # and at least this many more dead messages
WORSE_OF = 20  # with fewer messages, percentiles say little
_LEVEL, _NOW, _SOON, _LOOK = range(4)  # urgencies, the highest first
_RECENT_S = 86_400.0  # an unusual hour stays a finding for a day


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding. `where` is a queue, a route or a manager.

    `what` is the problem, `do` the remedy, and `commands` are the first steps. `age_s` is how long the problem has
    lasted. None if unknown.
    """

    urgency: int
    where: str
    messages: int
    age_s: float | None
    what: str
    do: str
    commands: tuple[str, ...] = ()

    @property
    def urgent(self) -> bool:
        return self.urgency <= _NOW

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"urgent": self.urgent}


def reason_words(reason: str | None) -> str:
    """The reason of a death in words, from the name of a message class."""
    return _BY_NAME.get(reason or "", (f"it died of {reason}", ""))[0]


def advice(facts: Facts) -> list[Advice]:
    """All findings, the most urgent first. Empty if there is nothing to do."""
    finders = (
        _levels,
        _backlog,
        _outgoing,
        _dead,
        _unexplained,
        _unreceived,
        _unanswered,
        _slow,
        _worse,
        _faults,
        _unusual,
    )
    found = [each for finder in finders for each in finder(facts)]
    return sorted(
        found, key=lambda each: (each.urgency, -each.messages)
    )  # the sort is stable: equal findings stay in the order of the finders


def _levels(facts: Facts) -> Iterator[Advice]:
    for level in facts.levels:
        if level.broken:
            parts = [(level.late, "received late"), (level.overdue, "still waiting"), (level.died, "died")]
            said = listed([f"{count:,} {word}" for count, word in parts if count])
            share = " to ".join(dict.fromkeys(f"{each:.1%}" for each in level.shares or (0.0,)))
            what = f"Not received within {seconds(level.limit_s)}: {said}; {share} were in time."
            worst = level.worst_s or None
            yield Advice(
                _LEVEL, level.queue, level.broken, worst, what, "Look at the queue:", _show_command(facts, level.queue)
            )


def _backlog(facts: Facts) -> Iterator[Advice]:
    """Finds queues that hold many messages, or hold a message for long."""
    receipts = _receipts(facts)
    taken = summed([row for row in facts.states if row["state"] == "reached"], "queue", what="left_queue")
    for row in facts.queues:
        waits = age(row["oldest_at"], row["looked_at"])
        if row["role"] != QUEUED or not (row["messages"] >= MANY or (row["messages"] and (waits or 0) >= LONG_S)):
            continue
        what = f"{_reading(row, receipts.get(row['called']), waits, taken[row['called']])}{_growth(row)}"
        do = "Start the receiver, or find out why it does not receive:"
        yield Advice(_NOW, row["called"], row["messages"], waits, what, do, _show_command(facts, row["called"]))


def _reading(row: Row, receipts: tuple[int, Any, Any] | None, waits: float | None, taken: int) -> str:
    """Says whether the queue has a receiver, and when that was last seen to receive.

    `taken` messages are known to have left the queue, but not when; the manager has counted those since its start.
    """
    readers = row["readers"] or 0
    left = max(taken, row.get("departed") or 0)
    if receipts is None and left:
        who = f"{counted(readers, 'program')} {'has' if readers == 1 else 'have'}" if readers else "No program has"
        gone = f"{counted(left, 'message')} {'has' if left == 1 else 'have'} left it, but nothing says when"
        return f"{who} the queue open. {gone}: a journal would tell whether its receiver has stopped."
    if receipts is None:
        if readers:
            return f"{counted(readers, 'program')} with the queue open, but none is known to receive from it."
        return "No program has the queue open, and none is known to have received from it."
    count, first, last = receipts
    quiet = age(last, row["looked_at"]) or 0.0
    usual = (last - first).total_seconds() / (count - 1) if count > 1 else 0.0
    if quiet > max(QUIET_S, 10 * usual) and (waits or 0) > QUIET_S:
        rate = f", after one every {seconds(usual)}" if usual else ""
        received = f"the last of {counted(count, 'message')} was received {seconds(quiet)} ago"
        return f"The receiver has stopped: {received}{rate}."
    habit = "rarely receives" if quiet > QUIET_S else "is too slow"
    return f"Its receiver {habit}: the last message was received {seconds(quiet)} ago."


def _growth(row: Row) -> str:
    if not row["grown"] or not row["grown_s"]:
        return ""
    grown, span = row["grown"], seconds(row["grown_s"])
    return f" It has {'grown' if grown > 0 else 'shrunk'} by {abs(grown):,} in {span}."


def _receipts(facts: Facts) -> dict[str, tuple[int, Any, Any]]:
    """For each queue: how many messages were received, and when the first and the last one were, as far as is known."""
    found = {}
    received = [row for row in facts.states if row["state"] == "received"]
    for queue, count in summed(received, "queue").items():
        rows = [row for row in received if row["queue"] == queue]
        first, last = earliest(rows, "first_received_at"), latest(rows, "last_received_at")
        if first is not None and last is not None:
            found[queue] = (count, first, last)
    return found


def _outgoing(facts: Facts) -> Iterator[Advice]:
    for row in facts.queues:
        waits = age(row["oldest_at"], row["looked_at"])
        if row["role"] == OUTGOING and row["messages"] and (row["stuck"] or (waits or 0) >= LONG_S):
            why = f" {row['why'][:1].upper()}{row['why'][1:]}." if row["why"] else ""
            do = "Check that the next hop answers:"
            what = f"They wait to leave {row['manager']}.{why}"
            yield Advice(_NOW, row["called"], row["messages"], waits, what, do, _show_command(facts, row["called"]))


def _dead(facts: Facts) -> Iterator[Advice]:
    replayed = facts.replayed
    for reason, count in facts.reasons.items():
        if left := count - replayed[reason]:
            rows = [row for row in facts.dead_letters if row["reason"] == reason]
            words, do = _BY_NAME.get(reason, (f"it died of {reason}", "look at the dead letters"))
            again = tuple(_replay(facts, reason, manager) for manager in facts.dead_letters_left.get(reason, ()))
            then = "then send them again:" if again else "there are no dead letters to send again."
            since = age(earliest(rows, "first_at"), facts.as_of)
            what = f"Dead: {words}."
            yield Advice(_NOW, _largest_queue(rows), left, since, what, f"{do[:1].upper()}{do[1:]}; {then}", again)


def _unexplained(facts: Facts) -> Iterator[Advice]:
    if unexplained := facts.total("unexplained"):
        commands = tuple(f"postroad trace {quote(str(row['id']))}" for row in facts.oldest[:_MOST_COMMANDS])
        since = age(earliest(facts.oldest, "sent_at"), facts.as_of)
        rows = [row | {"messages": row["unexplained"]} for row in facts.states if row["unexplained"]]
        do = "Trace them through the managers on their route:"
        yield Advice(_NOW, _largest_queue(rows), unexplained, since, "No report since they were sent.", do, commands)


def _unreceived(facts: Facts) -> Iterator[Advice]:
    """Finds messages in queues that the pipeline does not read. Only acknowledgments and reports tell about these."""
    looked_at = {row["called"] for row in facts.queues}
    reached = [row for row in facts.states if row["state"] == "reached" and row["queue"] not in looked_at]
    for queue, count in summed(reached, "queue").items():
        rows = [row for row in reached if row["queue"] == queue]
        since = age(earliest(rows, "first_reached_at"), facts.as_of)
        if (since or 0.0) >= LONG_S:
            what = "They reached their queue, but nothing says that they were received."
            do = "Ask for acknowledgments of receiving, or let the pipeline read that manager too:"
            command = f"postroad pipeline run --lake {quote(facts.lake)} --api http://HOST:8180"
            yield Advice(_SOON, queue or "unknown", count, since, what, do, (command,))


def _unanswered(facts: Facts) -> Iterator[Advice]:
    """Finds requests that have waited for long, also compared with the usual time of their answers."""
    for row in facts.pairs:
        since = age(row["oldest_unanswered_at"], facts.as_of)
        if since is not None and since > max(LONG_S, 10 * (row["response_p90_s"] or 0.0)):
            took = (
                "" if row["response_p50_s"] is None else f"; half of the answers took {seconds(row['response_p50_s'])}"
            )
            what = f"Requests of {row['source']} without an answer, {row['answered']:,} others have one{took}."
            command = f"postroad trace {quote(str(row['oldest_unanswered']))}"
            do = "Check that the answering program runs, and where the oldest request is:"
            yield Advice(_SOON, row["queue"] or "unknown", row["unanswered"], since, what, do, (command,))


def _slow(facts: Facts) -> Iterator[Advice]:
    for row in facts.speed("route", "reach"):
        if (row.get("p90_least_s") or 0.0) >= SLOW_S:
            half, tenth = seconds(row["p50_s"]), seconds(row["p90_least_s"])
            what = f"A slow route: half took {half} or less to reach their queue, one in ten more than {tenth}."
            manager = row["value"].partition(" -> ")[0]
            command = f"postroad status{_api_option(facts, manager)}"
            do = "Look at the sessions and outgoing queues of its managers:"
            since = age(facts.period[0], facts.as_of)
            yield Advice(_SOON, row["value"], row["messages"], since, what, do, (command,))


def _worse(facts: Facts) -> Iterator[Advice]:
    """Finds queues that are slower, or lose more messages, than in the previous period.

    A queue with a backlog is not reported as slower: that would be no news.
    """
    full = {each.where for each in _backlog(facts)}
    for now, before in facts.compared("queue"):
        if before is None:
            continue
        lasted = age(now["since"], now["until"])
        span = seconds(lasted)
        slow, fast = now.get("receive_p90_least_s") or 0.0, before["receive_p90_s"]
        enough = min(now["received"], before["received"]) >= WORSE_OF
        if enough and now["value"] not in full and fast is not None and slow >= max(WORSE * fast, fast + WORSE_S):
            what = f"Slower than before: one in ten took more than {seconds(slow)} in the last {span}, {seconds(fast)} "
            what += f"in the {span} before."
            do = "Look at the queue and its receiver:"
            yield Advice(_SOON, now["value"], now["received"], lasted, what, do, _show_command(facts, now["value"]))
        if now["died"] >= max(WORSE * before["died"], before["died"] + WORSE_DEAD):
            what = f"More messages died than before: {now['died']:,} in the last {span}, {before['died']:,} in the "
            what += f"{span} before."
            do = "See what was lost, and why, below."
            yield Advice(_SOON, now["value"], now["died"], lasted, what, do)


def _faults(facts: Facts) -> Iterator[Advice]:
    """Finds what is never right, however rare."""
    texts = {
        "duplicates": (
            "More copies than messages.",
            "A receiver read a message twice, or express messages were sent again after a restart: see gold/delivery.",
        ),
        "out_of_order": (
            "Out of order.",
            "Several receivers read one transactional queue at once, or messages were moved: see gold/delivery.",
        ),
        "contradicted": (
            "Both received and dead.",
            "They were received, but their senders got a negative acknowledgment: check before you send them again.",
        ),
    }
    for column, (what, do) in texts.items():
        if count := facts.total(column):
            rows = [row | {"messages": row[column]} for row in facts.states if row[column]]
            yield Advice(_SOON, _largest_queue(rows), count, None, what, do)
    if facts.undecodable:
        queues = dict.fromkeys(row["queue"] for row in facts.faults)
        commands = tuple(
            f"postroad export {quote(str(queue))} odd.packets; postroad decode odd.packets" for queue in queues
        )
        rows = [row | {"messages": row["packets"]} for row in facts.faults]
        since = age(earliest(rows, "first_at"), facts.as_of)
        what, do = "Packets that did not decode.", "Other software may have sent them. Export and decode them:"
        yield Advice(_SOON, _largest_queue(rows), facts.undecodable, since, what, do, commands[:_MOST_COMMANDS])


def _unusual(facts: Facts) -> Iterator[Advice]:
    """Finds the most unusual hour of the last day for each queue."""
    recent: dict[str, list[Anomaly]] = {}
    for each in facts.unusual:
        if (age(each.hour, facts.as_of) or 0.0) <= _RECENT_S:
            recent.setdefault(each.queue, []).append(each)
    for queue, some in recent.items():
        most = max(some, key=lambda each: abs(each.times))
        what = f"Unusual in the hour from {most.hour.astimezone(UTC):%d %b %H:%M}: {anomaly_words(most)}."
        do = "Find out what was different then; all unusual hours are below."
        yield Advice(_LOOK, queue, most.messages, age(most.hour, facts.as_of), what, do)


def anomaly_words(each: Anomaly) -> str:
    if each.kind == "latency":
        return f"half took more than {seconds(each.value)}, usually {seconds(each.usual)}"
    what = "messages" if each.kind == "volume" else f"died, {reason_words(each.kind)}"
    return f"{each.value:,.0f} {what}, usually {each.usual:,.0f}"


# Pieces


def _largest_queue(rows: list[Row]) -> str:
    """The queue with the most messages, and how many other queues there are."""
    queues = summed(rows, "queue").most_common()
    first = (queues[0][0] if queues else None) or "unknown queue"
    return first if len(queues) < 2 else f"{first} and {counted(len(queues) - 1, 'other')}"


def _show_command(facts: Facts, called: str) -> tuple[str, ...]:
    """The command that shows a queue with a name like `MANAGER: QUEUE`."""
    manager, colon, queue = called.partition(": ")
    if not colon:
        manager, queue = "", called
    return (f"postroad queue show {quote(queue)}{_api_option(facts, manager)}",)


def _api_option(facts: Facts, manager: str) -> str:
    api = facts.apis.get(manager)
    return "" if api is None else f" --api {quote(api)}"


def _replay(facts: Facts, reason: str, manager: str) -> str:
    condition = f"reason = '{reason}'"
    quoted = f'"{condition}"' if _PLAIN.fullmatch(reason) else quote(condition)
    return f"postroad pipeline replay --lake {quote(facts.lake)}{_api_option(facts, manager)} --where {quoted}"
