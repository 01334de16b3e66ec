"""Models by name."""

from msbench.specs.griffin import GriffinConfig
from msbench.specs.inceptiontime import InceptionTimeConfig
from msbench.specs.linear import DssConfig, LiquidS4Config, LruConfig, S4Config, S4dConfig, S5Config
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
    "s4": ModelEntry(S4Config, "S4: diagonal plus low rank, HiPPO-LegS", "s4", {}, ("S4",)),
    "s4d-lin": ModelEntry(S4dConfig, "S4D, imaginary parts pi n", "s4d", {"spectrum": "lin"}, ("S4D",)),
    "s4d-inv": ModelEntry(S4dConfig, "S4D, inverse imaginary parts", "s4d", {"spectrum": "inv"}),
    "s4d-legs": ModelEntry(S4dConfig, "S4D, spectrum of HiPPO-LegS", "s4d", {"spectrum": "legs"}),
    "s4d-real": ModelEntry(S4dConfig, "S4D with real poles -1, -2, ..", "s4d", {"spectrum": "real"}),
    "dss-softmax": ModelEntry(
        DssConfig, "DSS, normalised by softmax", "dss", {"version": "softmax"}, ("DSS", "DSS_softmax")
    ),
    "dss-exp": ModelEntry(DssConfig, "DSS, zero-order hold", "dss", {"version": "exp"}, ("DSSEXP",)),
    "dss-exp-no-scale": ModelEntry(
        DssConfig, "DSS without input scale", "dss", {"version": "exp-no-scale"}, ("DSSEXP-NO-SCALE",)
    ),
    "s5": ModelEntry(S5Config, "S5: one state space a layer, scanned", "s5", {}, ("S5",)),
    "lru": ModelEntry(LruConfig, "LRU: linear recurrent unit", "lru", {}, ("LRU",)),
    "liquid-s4": ModelEntry(
        LiquidS4Config, "Liquid-S4: S4 and products of inputs", "liquid-s4", {}, ("Liquid-S4",)
    ),
}
