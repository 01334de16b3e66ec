"""``msbench bench``: speed and memory, measured next to peers in one run that also checks the results.

==============  ======================================================================================
module          content
==============  ======================================================================================
`options`       the options of the command
`command`       measure, compare with an older document, write
`terminal`      tables of a document
`measurement`   repeated timings in turns, their spread, and the peak memory of one call
`problem`       the arguments of a scan, its output and gradients, and their errors against float64
`contenders`    the implementations of the scan: the project's own kernels and the peers
`bounds`        lower bounds on time from the machine's peak rates
`scan`          the benchmark of the scan, also over the length and the number of states
`step_models`   models and batches of training steps, ours and the peer's
`step`          the benchmark of whole training steps
`data`          the benchmark of opening and feeding datasets
==============  ======================================================================================
"""
