"""The page of session states agrees with the table: the diagram is generated from it, and nobody edits it by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.binary.states import TRANSITIONS, Action, PacketKind, SessionState
from scripts import session_diagram


def test_the_page_is_up_to_date() -> None:
    assert session_diagram.PAGE.read_text(encoding="utf-8") == session_diagram.page()
    assert session_diagram.main(["--check"]) == 0


def test_a_page_that_is_not_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_diagram, "PAGE", tmp_path / "session-states.md")
    assert session_diagram.main(["--check"]) == 1
    assert "session-states.md is not what the table says" in capsys.readouterr().err
    assert session_diagram.main([]) == 0
    assert session_diagram.main(["--check"]) == 0
    session_diagram.PAGE.write_text("something else", encoding="utf-8")
    assert session_diagram.main(["--check"]) == 1


def test_every_state_packet_and_action_has_its_place() -> None:
    page = session_diagram.page()
    for state in SessionState:
        assert f" {state.name}" in page
    assert set(session_diagram.PACKETS) == set(PacketKind)
    assert set(session_diagram.ACTIONS) == set(Action) == {action for action, _ in TRANSITIONS.values()}
    assert page.count("\n| ") == len(TRANSITIONS) + 1


def test_every_state_is_reached_from_a_start() -> None:
    reached = set(session_diagram.STARTS)
    while new := {then for (state, _), (_, then) in TRANSITIONS.items() if state in reached} - reached:
        reached |= new
    assert reached == set(SessionState) - {SessionState.CLOSED}
