"""Loads the plugins of the whole suite: the conformance ledger, and pytester to test the ledger itself."""

pytest_plugins = ["tests.ledger", "pytester"]
