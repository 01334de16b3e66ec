"""Verdicts on measured results against expected ones; pure functions of values."""
