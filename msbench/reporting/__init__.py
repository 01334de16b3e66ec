"""Tables, figures and pages of results: one `Table` of `Cell`s feeds every renderer.

::

    names -> tables.load -> Report of Tables -> render: terminal, csv, latex, html
             tables.definitions.PAPER_TABLES defines each table of the paper

`tables.load.load_report` returns the report, and `command.run_report` writes its files too.
"""
