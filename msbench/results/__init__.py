"""Formats on disk, each with its reader next to its writer.

The package is a function too, as it has the name of one: ``msbench.results("results")`` is `read_frame` of
`msbench.results.frame`, a data frame of all runs of a folder.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


class CallablePackage(ModuleType):
    """The package `msbench.results`, which can be called."""

    def __call__(self, folder: str | Path = "results", suite: str | None = None) -> "DataFrame":
        """Return a data frame of the runs of a folder: see `msbench.results.frame.read_frame`."""
        from msbench.results.frame import read_frame

        return read_frame(folder, suite)


sys.modules[__name__].__class__ = CallablePackage
