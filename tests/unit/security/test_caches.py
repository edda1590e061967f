"""The caches of [MS-MQQB] 3.1.1.3, 3.1.3.1, 3.1.5.8.3 and 3.1.6.10 to 3.1.6.13."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.security.encryption import (
    CERTIFICATE_LIFETIME_S,
    CERTIFICATES,
    KEY_LIFETIME_S,
    RECEIVE_KEYS,
    SEND_KEYS,
    TimedCache,
)


def filled(count: int, size: int = 53) -> TimedCache[int, str]:
    cache: TimedCache[int, str] = TimedCache(size, 600.0)
    for each in range(count):
        cache.put(each, str(each), float(each))
    return cache


@pytest.mark.spec(
    "QB-3.1.3.1-04", "QB-3.1.3.1-05", "QB-3.1.3.1-07", "QB-3.1.3.1-09", "QB-3.1.3.1-10"
)  # fmt: skip
def test_sizes_and_lifetimes_are_the_specified_ones() -> None:
    assert (CERTIFICATES, RECEIVE_KEYS, SEND_KEYS) == (53, 127, 53)
    assert (KEY_LIFETIME_S, CERTIFICATE_LIFETIME_S) == (600.0, 1200.0)


@pytest.mark.spec("QB-3.1.1.3-04", "QB-3.1.5.8.3-09", "QB-3.1.5.8.3-17", "QB-3.1.7.1.5-16")
@pytest.mark.parametrize(("size", "dropped"), [(SEND_KEYS, 26), (RECEIVE_KEYS, 63)])
def test_a_full_cache_drops_its_older_half(size: int, dropped: int) -> None:
    cache = filled(size, size)
    assert len(cache) == size
    cache.put(size, "new", 200.0)
    assert len(cache) == size - dropped + 1
    assert [cache.get(each, 200.0) is None for each in range(size + 1)] == [True] * dropped + [False] * (
        size - dropped + 1
    )


def test_an_entry_that_is_put_again_is_the_newest() -> None:
    cache = filled(53)
    cache.put(0, "again", 60.0)
    assert len(cache) == 53
    cache.put(99, "new", 61.0)
    assert cache.get(0, 61.0) == "again"
    assert cache.get(1, 61.0) is None


@pytest.mark.spec("QB-3.1.6.10-01", "QB-3.1.6.11-01", "QB-3.1.6.12-01", "QB-3.1.6.13-01")
def test_an_entry_is_gone_after_its_lifetime() -> None:
    cache = filled(2)
    assert cache.get(0, 600.0) == "0"
    assert cache.get(0, 600.5) is None
    assert cache.get(1, 600.5) == "1"
    assert len(cache) == 1


@pytest.mark.spec("QB-3.1.6.10-02", "QB-3.1.6.11-02", "QB-3.1.6.12-01", "QB-3.1.6.13-02")
def test_a_cleanup_says_when_the_next_one_is_due() -> None:
    cache = filled(3)
    assert cache.cleanup(600.5) == 600.0 + 60.0 - (600.5 - 1.0)
    assert len(cache) == 2
    assert cache.cleanup(700.0) is None
    assert len(cache) == 0


def test_an_empty_cache_needs_no_cleanup() -> None:
    cache = filled(5)
    cache.clear()
    assert cache.cleanup(0.0) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 300)), max_size=80))
def test_a_cache_never_exceeds_its_size_and_never_returns_what_is_old(steps: list[tuple[int, int]]) -> None:
    cache: TimedCache[int, float] = TimedCache(8, 600.0)
    now = 0.0
    for key, wait in steps:
        now += wait
        found = cache.get(key, now)
        assert found is None or now - found <= 600.0
        if found is None:
            cache.put(key, now, now)
        assert len(cache) <= 8
        assert cache.get(key, now) is not None
