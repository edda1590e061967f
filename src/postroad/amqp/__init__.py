"""AMQP 1.0 [AMQP]: the types and frames of the standard, a protocol core without I/O, and what its links do to queues.

`listener.py` is the only module with sockets and a clock.
"""
