"""Models by name."""

from msbench.specs.griffin import GriffinConfig
from msbench.specs.inceptiontime import InceptionTimeConfig
from msbench.specs.lstm import LstmConfig
from msbench.specs.model import ModelEntry
from msbench.specs.multiresnet import MultiResNetConfig
from msbench.specs.selective import MambaConfig, MsSsmConfig
from msbench.specs.sgconv import SgConvConfig
from msbench.specs.transformer import TransformerConfig

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
    "griffin": ModelEntry(
        GriffinConfig,
        "Griffin: RG-LRU, and local attention in each third layer",
        "griffin",
        {"pattern": ("recurrent", "recurrent", "attention")},
        ("Griffin",),
    ),
    "hawk": ModelEntry(GriffinConfig, "Hawk: RG-LRU in every layer", "griffin", {"pattern": ("recurrent",)}),
    "transformer": ModelEntry(
        TransformerConfig, "Transformer encoder, pre-norm", "transformer", {}, ("Transformer",)
    ),
    "lstm": ModelEntry(LstmConfig, "LSTM, a residual block each", "lstm", {}, ("LSTM",)),
}
