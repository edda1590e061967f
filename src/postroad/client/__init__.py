"""The Python API: one set of verbs, blocking or asynchronous, for a queue manager in this process or behind HTTP.

`postroad` and `postroad.aio` offer what is here. Nothing is imported before it is used.
"""
