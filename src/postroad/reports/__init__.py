"""What a manager reports and its clients read, as plain values: no queue, no store and no I/O."""
