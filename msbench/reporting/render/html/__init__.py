"""The report as one HTML file that opens offline: tables, verdicts, figures, and the runs behind numbers."""
