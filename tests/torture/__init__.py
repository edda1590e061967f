"""Hostile surroundings for the parts that must not lose anything. tests/integration runs the short forms."""
