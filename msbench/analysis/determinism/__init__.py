"""Determinism: bit equality of a training run twice, resumed, or with another number of threads."""
