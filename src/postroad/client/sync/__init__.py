"""The blocking face of the client, written from client/aio by scripts/unasync.py."""
