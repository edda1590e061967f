"""Writes docs/reference/session-states.md: the states of a session as a diagram and a table, from the table itself.
`python -m scripts.session_diagram` writes it; with `--check` it only says whether it is up to date.
"""

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
    Action.ANSWER_ESTABLISH: "answers with its own; one for another queue manager is refused, and the session closes",
    Action.SEND_PARAMETERS: "sends its time-outs and its window, unless it was refused",
    Action.ANSWER_PARAMETERS: "takes the time-outs, and answers with its own window",
    Action.ENTER_OPEN: "takes the peer's window",
    Action.TAKE_SESSION_ACK: "releases what was acknowledged, and compares the counts",
    Action.TAKE_MESSAGE: "counts the message and passes it on; a SessionHeader with it is taken like a SessionAck",
}
STARTS = {
    SessionState.WAITING_EC_MSG: "a connection is accepted",
    SessionState.WAITING_ECR_MSG: "a connection is made, EstablishConnection sent",
}

TEXT = """\
# Session states

<!-- Written by scripts/session_diagram.py from src/postroad/binary/states.py: edit those. -->

A session of the binary protocol is one connection between two queue managers ([MS-MQQB] 3.1.1.1.1). The queue manager
that made the connection is its initiator, the other one its acceptor; once the session is open they are alike, and
messages go both ways.

```mermaid
stateDiagram-v2
{diagram}
```

| in state | this packet | does | then |
|---|---|---|---|
{table}

OrderAck and FinalAck travel and count as UserMessages. Everything that is not in the table closes the session: a packet
out of place, a packet that breaks its format, counts that disagree, a time-out (`initialization` until it is open,
`ack wait` while messages are unacknowledged, `cleanup` when it is idle), the end of the connection. No packet says so.

A closed session does not come back. What it had not seen acknowledged is sent again on the next one, which counts from
one; the wait in between, WAITING_RECONNECT in the specification, belongs to the way to the peer.
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
    """0 if all is well; with `--check`, 1 if the page is not what it should be."""
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
