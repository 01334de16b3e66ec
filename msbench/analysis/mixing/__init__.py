"""The mean mixing distance: from how far back each layer's last output draws, by its exact Jacobian.

::

    options -> sample (test examples) -> measure (units -> jacobian -> distance) -> document
    document -> table, csv, figure

`msbench.analysis.mixing.measure.measure` takes any classifier and any batch; ``docs/mixing.md`` has the
definition.
"""
