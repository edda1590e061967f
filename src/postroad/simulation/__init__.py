"""A network of queue managers under one seed. Cores and queues are the real ones, time is virtual, and links and disks
fail.

A running queue manager uses nothing of this.
"""
