"""Statistics of accuracies and AUROCs, as pure functions of values; docs/statistics.md explains their use.

Distributions are those of `scipy.special`, imported when a function is called: that takes half a second, and
`scipy.stats`, which has the same ones, over a second more.
"""
