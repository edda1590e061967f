"""Loads the plugins of the whole suite: the conformance ledger, the tiers, and pytester to test the ledger itself."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

pytest_plugins = ["tests.ledger", "tests.tiers", "pytester"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Every module and test stays to the end: to search them for garbage again and again would double the time of the
    collection, and slow down each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
