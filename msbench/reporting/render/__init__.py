"""Tables as text at a terminal, CSV, LaTeX and HTML."""
