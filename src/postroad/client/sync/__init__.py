"""The blocking client. scripts/unasync.py writes most of it from client/aio."""
