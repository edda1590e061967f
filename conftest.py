"""Loads the plugins of the whole suite: the conformance ledger, the tiers, and pytester to test the ledger itself."""

pytest_plugins = ["tests.ledger", "tests.tiers", "pytester"]
