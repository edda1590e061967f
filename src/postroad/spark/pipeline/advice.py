"""What to do about the findings of a report: a sentence and commands for each problem."""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from postroad.spark.pipeline.facts import Facts
from postroad.values.trace import class_words
from postroad.wire.constants import MessageClass, class_name

# What to do about each reason. The words for the reasons are in values/trace.py.
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


@dataclass(frozen=True, slots=True)
class Advice:
    """`what` is the problem, `do` the remedy, and `commands` the first steps."""

    what: str
    do: str
    commands: tuple[str, ...] = ()


def reason_words(reason: str | None) -> str:
    """`it was received`, for the name of a class."""
    return _BY_NAME.get(reason or "", (f"it died of {reason}", ""))[0]


def advice(facts: Facts) -> list[Advice]:
    """The most urgent first; empty if there is nothing to do."""
    found = []
    replayed = facts.replayed
    for reason, count in facts.reasons.items():
        if left := count - replayed[reason]:
            words, do = _BY_NAME.get(reason, (f"it died of {reason}", "look at the dead letters"))
            again = tuple(_replay(facts, reason, manager) for manager in facts.dead_letters_left.get(reason, ()))
            then = "then send them again:" if again else "there are no dead letters to send again."
            found.append(Advice(f"{_messages(left)}: {words}.", f"{do[:1].upper()}{do[1:]}; {then}", again))
    if unexplained := facts.total("unexplained"):
        commands = tuple(f"postroad trace {quote(str(row['id']))}" for row in facts.oldest[:_MOST_COMMANDS])
        found.append(
            Advice(
                f"{_messages(unexplained)} without any report since they were sent.",
                "Trace them through the managers on their route:",
                commands,
            )
        )
    if duplicates := facts.total("duplicates"):
        do = "A receiver read a message twice, or express messages were sent again after a restart: see gold/delivery."
        found.append(Advice(f"{duplicates:,} more copies than messages.", do))
    if late := facts.total("out_of_order"):
        do = "Several receivers read one transactional queue at once, or messages were moved: see gold/delivery."
        found.append(Advice(f"{_messages(late)} out of order.", do))
    if contradicted := facts.total("contradicted"):
        do = "They were received, but their senders got a negative acknowledgment: check before you send them again."
        found.append(Advice(f"{_messages(contradicted)} both received and dead.", do))
    if faults := facts.undecodable:
        do = "Other software may have sent them. Export and decode them:"
        queues = dict.fromkeys(row["queue"] for row in facts.faults)
        commands = tuple(
            f"postroad export {quote(str(queue))} odd.packets; postroad decode odd.packets" for queue in queues
        )
        found.append(
            Advice(f"{faults:,} packet{'' if faults == 1 else 's'} did not decode.", do, commands[:_MOST_COMMANDS])
        )
    return found


def _replay(facts: Facts, reason: str, manager: str) -> str:
    api = facts.apis.get(manager)
    options = [f"--lake {quote(facts.lake)}", *([] if api is None else [f"--api {quote(api)}"])]
    condition = f"reason = '{reason}'"
    quoted = f'"{condition}"' if _PLAIN.fullmatch(reason) else quote(condition)
    return f"postroad pipeline replay {' '.join(options)} --where {quoted}"


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"
