"""The operations of the models: channel-last, for any length, each with a slow, simple reference."""

from msbench.ops.convolution import long_convolution, long_convolution_reference
from msbench.ops.filters import causal_conv, decompose
from msbench.ops.linear_scan import linear_scan, linear_scan_reference
from msbench.ops.lti_scan import lti_scan, lti_scan_reference
from msbench.ops.scan.dispatch import (
    VARIABLE,
    choose_kernel,
    kernel_name,
    requested_kernel,
    selective_scan,
    state_limit,
)
from msbench.ops.scan.fused import low_rank_scan, makes_inputs, multi_scale_scan
from msbench.ops.scan.reference import selective_scan_reference, step_sizes, sum_streams

__all__ = [
    "VARIABLE",
    "causal_conv",
    "choose_kernel",
    "decompose",
    "kernel_name",
    "linear_scan",
    "linear_scan_reference",
    "long_convolution",
    "long_convolution_reference",
    "low_rank_scan",
    "lti_scan",
    "lti_scan_reference",
    "makes_inputs",
    "multi_scale_scan",
    "requested_kernel",
    "selective_scan",
    "selective_scan_reference",
    "state_limit",
    "step_sizes",
    "sum_streams",
]
