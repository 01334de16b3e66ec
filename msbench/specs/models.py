"""Models by name."""

from msbench.specs.inceptiontime import InceptionTimeConfig
from msbench.specs.model import ModelEntry
from msbench.specs.multiresnet import MultiResNetConfig
from msbench.specs.selective import MambaConfig, MsSsmConfig
from msbench.specs.sgconv import SgConvConfig

MODELS: dict[str, ModelEntry] = {
    "msssm-s6": ModelEntry(MsSsmConfig, "MS-SSM with selective (S6) scans", "ms-ssm", {}, ("MS-SSM (S6)",)),
    "mamba": ModelEntry(MambaConfig, "Mamba: selective SSM", "mamba", {}, ("Mamba",)),
    "multiresnet": ModelEntry(
        MultiResNetConfig, "MultiResNet: one wavelet over all scales", "multiresnet", {}, ("MultiResNet",)
    ),
    "sgconv": ModelEntry(SgConvConfig, "SGConv: a long structured kernel", "sgconv", {}, ("SGConv",)),
    "inceptiontime": ModelEntry(
        InceptionTimeConfig,
        "InceptionTime: convolutions of several widths",
        "inceptiontime",
        {},
        ("InceptionTime",),
    ),
}
