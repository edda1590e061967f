"""What a manager says and its users read, as plain values: no queue, no store and no I/O."""
