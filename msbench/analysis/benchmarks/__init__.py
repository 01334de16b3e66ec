"""``msbench bench``: speed and memory, measured beside peers in one run that also checks the numbers.

===============  ===================================================================================
module           noun
===============  ===================================================================================
`command`        what was asked, carried out: measure, compare, write
`problem`        the arguments of a scan, and what a scan makes of them
`contenders`     who takes part: the project's own kernels and the peers
`peers`          public implementations, given the same problem
`timing`         repeated timings, interleaved, and their spread
`memory`         the peak of one call
`accuracy`       errors against float64
`roofline`       what the machine can do at best
`native_bounds`  its loops in C++, on a CPU
`scan`           the benchmark of the scan
`scaling`        its time over the length and the number of states
`step`           the benchmark of whole training steps
`document`       what was found, as JSON
`comparison`     a document against an older one
`terminal`       tables
===============  ===================================================================================
"""
