"""Statistics of accuracies and AUROCs, as pure functions of values; docs/statistics.md explains their use.

Distributions are those of `scipy.special`, imported when a function is called: that takes half a second, and
`scipy.stats`, which has the same ones, over a second more.
"""

from msbench.stats.bootstrap import (
    AurocInterval,
    Paired,
    auroc_bootstrap,
    paired_auroc_bootstrap,
    paired_bootstrap,
)
from msbench.stats.difference import Difference, holm, mcnemar, welch
from msbench.stats.noninferiority import (
    Noninferiority,
    State,
    decision_power,
    noninferiority,
    seeds_needed,
)
from msbench.stats.proportion import Interval, learned_rule, sampling_sd, wilson
from msbench.stats.summary import Pooled, Summary, pooled_sd, spread, summary

__all__ = [
    "AurocInterval",
    "Difference",
    "Interval",
    "Noninferiority",
    "Paired",
    "Pooled",
    "State",
    "Summary",
    "auroc_bootstrap",
    "decision_power",
    "holm",
    "learned_rule",
    "mcnemar",
    "noninferiority",
    "paired_auroc_bootstrap",
    "paired_bootstrap",
    "pooled_sd",
    "sampling_sd",
    "seeds_needed",
    "spread",
    "summary",
    "welch",
    "wilson",
]
