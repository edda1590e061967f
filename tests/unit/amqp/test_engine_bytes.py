"""The core of AMQP with any bytes, as the fuzzer feeds it: it has an answer to each, and keeps nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.amqp import SEEDS, fuzz_amqp, fuzz_amqp_message
from postroad.amqp.codec import binary, described, listed, mapped, symbol, text, uint

VALUES = st.recursive(
    st.one_of(
        st.binary(max_size=20).map(binary),
        st.text(max_size=10).map(text),
        st.integers(0, 0xFFFFFFFF).map(uint),
        st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x45"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: listed(*parts)),
        st.lists(inner, max_size=2).map(lambda parts: mapped([each for part in parts for each in (symbol("k"), part)])),
        inner.map(lambda part: described(0x24, part)),
    ),
    max_leaves=8,
)
BODIES = st.tuples(st.integers(0x10, 0x18), st.lists(VALUES, max_size=12)).map(
    lambda found: described(found[0], listed(*found[1]))
)
FRAMES = st.tuples(BODIES, st.binary(max_size=20)).map(
    lambda found: (len(found[0] + found[1]) + 8).to_bytes(4, "big") + b"\2\0\0\0" + found[0] + found[1]
)


@pytest.mark.parametrize("seed", SEEDS["amqp"])
def test_a_seed_has_an_answer(seed: bytes) -> None:
    fuzz_amqp(seed)


@given(st.lists(FRAMES, max_size=3).map(b"".join))
@settings(max_examples=40)
def test_frames_with_any_fields_have_an_answer(stream: bytes) -> None:
    fuzz_amqp(stream)


@given(
    st.lists(st.tuples(st.integers(0x70, 0x78), VALUES).map(lambda found: described(*found)), max_size=4).map(b"".join)
)
def test_messages_of_any_sections_have_an_answer(payload: bytes) -> None:
    fuzz_amqp_message(payload)
