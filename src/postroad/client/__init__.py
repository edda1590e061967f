"""The Python API: one set of verbs, blocking or asynchronous, on a queue manager in this process or behind HTTP.

`postroad` and `postroad.aio` offer what is in here; nothing is imported before it is used.
"""
