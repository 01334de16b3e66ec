"""Statistics of accuracies and AUROCs, as pure functions of values; docs/statistics.md explains their use.

Distributions are those of `scipy.special`, imported when a function is called: that takes half a second, and
`scipy.stats`, which has the same ones, over a second more.
"""

from msbench.stats.bootstrap import (
    AurocInterval,
    Paired,
    bootstrap_auroc,
    bootstrap_auroc_difference,
    bootstrap_difference,
)
from msbench.stats.difference import Difference, holm, mcnemar, welch
from msbench.stats.noninferiority import (
    Noninferiority,
    State,
    compute_power,
    count_seeds_needed,
    decide_noninferiority,
)
from msbench.stats.proportion import Interval, compute_sampling_sd, find_learned_rule, wilson
from msbench.stats.summary import Pooled, Summary, compute_sd, pool_sd, summarise

__all__ = [
    "AurocInterval",
    "Difference",
    "Interval",
    "Noninferiority",
    "Paired",
    "Pooled",
    "State",
    "Summary",
    "bootstrap_auroc",
    "bootstrap_auroc_difference",
    "bootstrap_difference",
    "compute_power",
    "compute_sampling_sd",
    "compute_sd",
    "count_seeds_needed",
    "decide_noninferiority",
    "find_learned_rule",
    "holm",
    "mcnemar",
    "pool_sd",
    "summarise",
    "welch",
    "wilson",
]
