"""Formats on disk, each with its reader next to its writer."""
