"""Tables of cells, built from runs and reported numbers; the input of every renderer."""
