"""The mean mixing distance: how far back each layer's last output draws, by its exact Jacobian.

`msbench.analysis.mixing.measure.measure_model` accepts any classifier and any batch; ``docs/mixing.md`` has
the definition.
"""
