"""``msbench bench``: speed and memory, measured next to peers in one run that also checks the results.

===============  ===================================================================================
module           content
===============  ===================================================================================
`command`        the command: measure, compare, write
`problem`        the arguments of a scan, and its output and gradients
`contenders`     the implementations compared: the project's own kernels and the peers
`peers`          public implementations, given the same problem
`timing`         repeated timings, interleaved, and their spread
`memory`         the peak of one call
`accuracy`       errors against float64
`roofline`       lower bounds on time from the machine's peak rates
`native_bounds`  the C++ loops that measure them on a CPU
`scan`           the benchmark of the scan
`scaling`        its time over the length and the number of states
`step`           the benchmark of whole training steps
`document`       the results, as JSON
`comparison`     a document against an older one
`terminal`       tables
===============  ===================================================================================
"""
