"""Verdicts: does what was measured hold against what was expected? Pure functions of values."""
