"""A traced message: what is known at each manager, and no more."""

from __future__ import annotations

import pytest

from postroad.console.pages.queue import attempts
from postroad.console.pictures import SIGNS, hop_picture, hop_sentence, joined_hops
from postroad.reports.trace import Trace, TraceHop, TraceState


def trace(*hops: TraceHop) -> Trace:
    return Trace("{8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a01}\\1", (), 0, 0, (), hops=hops)


@pytest.mark.parametrize("state", TraceState)
def test_every_state_has_a_sign_a_word_and_a_style(state: TraceState) -> None:
    picture = hop_picture([TraceHop("beta", state.value, "a sentence")])
    mark, style = SIGNS[state]
    assert state.value in picture
    assert mark in picture
    assert (style == "ok") is (state in (TraceState.ARRIVED, TraceState.RECEIVED))
    assert f'class="hop {style}"' in picture


def test_of_several_managers_the_one_that_knows_best_counts() -> None:
    one = trace(
        TraceHop("alpha", "handed over", "", manager="a"),
        TraceHop("beta", "unknown", "", manager="b", address="127.0.0.2"),
        TraceHop("gamma", "unknown", ""),
    )
    other = trace(
        TraceHop("Beta", "died", "dead", manager="b", reason="nack-reach-queue-timeout"),
        TraceHop("gamma", "unknown", "", manager="g"),
    )
    found = joined_hops([one, other])
    assert [(hop.name, hop.state) for hop in found] == [
        ("alpha", "handed over"),
        ("Beta", "died"),
        ("gamma", "unknown"),
    ]
    assert hop_sentence(found[1]) == "dead: it did not reach its queue in time"


def test_attempts_to_connect_are_grouped_and_in_words() -> None:
    history = [
        {"status": "connect-socket-failure", "time_s": 100 + n, "error": 0xC00E0069, "addresses": []} for n in range(30)
    ]
    history.append({"status": "established", "time_s": 200, "error": 0, "addresses": []})
    found = attempts(history)
    assert [(each.status, each.why, each.count, each.first_s, each.last_s) for each in found] == [
        ("established", "", 1, 200, 200),
        ("connect socket failure", "remote machine not available", 30, 100, 129),
    ]
