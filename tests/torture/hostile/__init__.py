"""Two managers among strangers: seeded attacks on all their listeners at once, beside an honest workload."""
