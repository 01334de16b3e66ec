"""Statistics of accuracies and AUROCs, as pure functions of values; docs/statistics.md explains their use."""

from msbench.stats.auroc import AurocInterval, auroc_bootstrap, paired_auroc_bootstrap
from msbench.stats.bootstrap import Paired, paired_bootstrap
from msbench.stats.difference import Difference, mcnemar, welch
from msbench.stats.multiple import holm
from msbench.stats.noninferiority import Noninferiority, State, noninferiority, seeds_needed
from msbench.stats.proportion import Interval, sampling_sd, wilson
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
    "holm",
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
