"""Runs and reported numbers -> a table of cells, which every renderer is fed with."""
