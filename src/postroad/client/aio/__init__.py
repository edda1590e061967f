"""The asynchronous client. scripts/unasync.py writes client/sync from it."""
