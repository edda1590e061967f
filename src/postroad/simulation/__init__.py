"""A network of queue managers under one seed: the real cores and queues, virtual time, links and disks that fail.

Nothing here is used by a running queue manager.
"""
