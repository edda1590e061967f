"""Coverage-guided fuzzing of everything that reads a peer's bytes: `python -m fuzz --seconds 60`."""
