"""The operations of the models: channel-last, for any length, each with a slow, simple reference."""

from msbench.ops.convolution import long_convolution, long_convolution_reference
from msbench.ops.decompose import causal_conv, decompose
from msbench.ops.fused_scan import low_rank_scan, makes_inputs, multi_scale_scan
from msbench.ops.linear_scan import linear_scan, linear_scan_reference
from msbench.ops.lti_scan import lti_scan, lti_scan_reference
from msbench.ops.scan import kernel_name, selective_scan, selective_scan_reference
from msbench.ops.scan_kernels import VARIABLE, choose, most_states, wanted
from msbench.ops.step_sizes import step_sizes

__all__ = [
    "VARIABLE",
    "causal_conv",
    "choose",
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
    "most_states",
    "multi_scale_scan",
    "selective_scan",
    "selective_scan_reference",
    "step_sizes",
    "wanted",
]
