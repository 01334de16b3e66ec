"""Measurements beyond accuracy: mixing distances, speed benchmarks, determinism."""
