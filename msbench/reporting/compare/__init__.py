"""Inspection of single runs, differences between two runs, and traces of a table's cell to its runs."""
