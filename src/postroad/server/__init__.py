"""What `postroad serve` runs: a queue manager and its listeners, built from a configuration."""
