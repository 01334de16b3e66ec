"""Pathfinder and Path-X: generated here, or imported as published."""
