"""Two managers among strangers: seeded attacks on all their listeners at once, during an honest workload."""
