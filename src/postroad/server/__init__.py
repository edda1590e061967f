"""What `postroad serve` runs: a queue manager and its listeners, from a configuration."""
