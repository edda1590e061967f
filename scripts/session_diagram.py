"""Writes docs/reference/session-states.md: the states of a session as a diagram and a table, from the table in the
code. `python -m scripts.session_diagram` writes it. With `--check`, it only says whether the page is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from postroad.binary.states import TRANSITIONS, Action, PacketKind, SessionState

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "session-states.md"

PACKETS = {
    PacketKind.ESTABLISH_CONNECTION: "EstablishConnection",
    PacketKind.CONNECTION_PARAMETERS: "ConnectionParameters",
    PacketKind.SESSION_ACK: "SessionAck",
    PacketKind.USER_MESSAGE: "UserMessage",
}
ACTIONS = {
    Action.ANSWER_ESTABLISH: "answers with its own; refuses one for another queue manager, and closes the session",
    Action.SEND_PARAMETERS: "sends its time-outs and its window, unless the peer refused",
    Action.ANSWER_PARAMETERS: "takes the time-outs, and answers with its own window",
    Action.ENTER_OPEN: "takes the peer's window",
    Action.TAKE_SESSION_ACK: "releases the acknowledged messages, and compares the counts",
    Action.TAKE_MESSAGE: "counts the message and passes it on; treats its SessionHeader like a SessionAck",
}
STARTS = {
    SessionState.WAITING_EC_MSG: "a connection is accepted",
    SessionState.WAITING_ECR_MSG: "a connection is made, EstablishConnection sent",
}

TEXT = """\
# Session states

<!-- Written by scripts/session_diagram.py from src/postroad/binary/states.py: edit those. -->

A session of the binary protocol is one connection between two queue managers ([MS-MQQB] 3.1.1.1.1). The queue manager
that made the connection is the initiator, the other one is the acceptor. Once the session is open, both have the same
role, and messages go in both directions.

```mermaid
stateDiagram-v2
{diagram}
```

| state | packet | action | next state |
|---|---|---|---|
{table}

OrderAck and FinalAck are sent and counted as UserMessages. Everything that is not in the table closes the session:

- a packet in the wrong state, or a malformed packet;
- counts that do not agree;
- a time-out: `initialization` until the session is open, `ack wait` while messages are unacknowledged, `cleanup` when
  it is idle;
- the end of the connection.

No packet announces the end of a session.

A closed session does not open again. The manager sends the messages that were not acknowledged again on the next
session, which counts from one. The wait in between, WAITING_RECONNECT in the specification, belongs to the path to the
peer, not to one session.
"""


def page() -> str:
    return TEXT.format(diagram="\n".join(_arrows()), table="\n".join(_rows()))


def _arrows() -> Iterator[str]:
    for state, event in STARTS.items():
        yield f"    [*] --> {state.name}: {event}"
    for (state, kind), (_, then) in TRANSITIONS.items():
        yield f"    {state.name} --> {then.name}: {PACKETS[kind]}"
    for state in SessionState:
        if state is not SessionState.CLOSED:
            yield f"    {state.name} --> {SessionState.CLOSED.name}"
    yield f"    {SessionState.CLOSED.name} --> [*]"


def _rows() -> Iterator[str]:
    for (state, kind), (action, then) in TRANSITIONS.items():
        yield f"| {state.name} | {PACKETS[kind]} | {ACTIONS[action]} | {then.name} |"


def main(arguments: list[str]) -> int:
    """Returns 0 if all is well. With `--check`, returns 1 if the page is out of date."""
    wanted = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"run `python -m scripts.session_diagram`: {PAGE.name} is not what the table says", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
