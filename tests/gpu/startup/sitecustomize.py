"""What Python imports first in each process on the null GPU, the children of a command included."""

import atexit
import os
import sys
import warnings
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

DISPATCH = "msbench.ops.scan.dispatch"
"""The module that chooses and checks kernels."""


class DispatchFinder(MetaPathFinder):
    """Lets kernels pass their checks as soon as the module that has them is imported."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own specification, whose execution accepts any result."""
        if name != DISPATCH or (spec := PathFinder.find_spec(name, path, target)) is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_accept(module: ModuleType) -> None:
            execute(module)
            import null_gpu

            null_gpu.accept_any_result(module)

        loader.exec_module = execute_and_accept
        return spec


def write_report() -> None:
    """Write the counters at the end of the process, if it had the GPU at all."""
    if "torch" in sys.modules:
        import null_gpu

        null_gpu.write_report()


if "NULL_GPU_LIBRARY" in os.environ:
    # A kernel launched on tensors without memory, as in an estimate of a step's, would write to address 0.
    warnings.filterwarnings("error", message="Accessing the data pointer of FakeTensor")
    sys.meta_path.insert(0, DispatchFinder())
    if "NULL_GPU_REPORTS" in os.environ:
        atexit.register(write_report)
