"""The operations that models are made of: channel-last, any length, each with a slow obvious reference."""

from msbench.ops.decompose import causal_conv, decompose
from msbench.ops.fused_scan import low_rank_scan, makes_inputs, multi_scale_scan
from msbench.ops.scan import kernel_name, selective_scan, selective_scan_reference
from msbench.ops.scan_kernels import VARIABLE, choose, wanted
from msbench.ops.step_sizes import step_sizes

__all__ = [
    "VARIABLE",
    "causal_conv",
    "choose",
    "decompose",
    "kernel_name",
    "low_rank_scan",
    "makes_inputs",
    "multi_scale_scan",
    "selective_scan",
    "selective_scan_reference",
    "step_sizes",
    "wanted",
]
