"""Runs looked at closely: one record, two records, and the way from a table's cell back to its runs."""
