"""msbench: benchmark suite and reproducibility harness for MS-SSM. ``docs/python.md`` shows its functions.

::

    suite = msbench.load_suite("quick")       # a suite by name or file
    plan = msbench.plan(suite)                # its runs, and what would be done with each
    records = msbench.run(plan)               # train what is missing
    frame = msbench.results("results")        # all runs as a data frame
    table = msbench.report("quick")[0]        # reported next to measured numbers
    model = msbench.load_model(records[0])    # a trained model

They are imported on first use, so that importing msbench takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from msbench.api import Plan, Records, ReportTable, load_model, load_suite, plan, report, run
    from msbench.results.frame import read_frame as results

__all__ = ["Plan", "Records", "ReportTable", "load_model", "load_suite", "plan", "report", "results", "run"]


if not TYPE_CHECKING:  # else type checkers would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name == "results":  # the package has this name too: it can be called
            return import_module("msbench.results")
        if name in __all__:
            return getattr(import_module("msbench.api"), name)
        raise AttributeError(f"module 'msbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
