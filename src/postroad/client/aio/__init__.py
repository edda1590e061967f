"""The asynchronous face of the client. client/sync is written from it: see scripts/unasync.py."""
