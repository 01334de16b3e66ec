"""Measurements beyond accuracy: mixing distances, benchmarks of speed, determinism."""
