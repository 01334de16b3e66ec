"""The registry of models: an entry for each name, with its config class and its preset.

Every choice that a paper leaves open is a field of a family's config class; `docs/paper.md` gives the reasons
for the defaults of MS-SSM.
"""

from dataclasses import dataclass, field
from typing import Any

from msbench.config.attention import (
    BigBirdConfig,
    FlashConfig,
    HTransformerConfig,
    LinearAttentionConfig,
    LinformerConfig,
    LocalAttentionConfig,
    LongformerConfig,
    LunaConfig,
    MegaConfig,
    ReformerConfig,
    SinkhornConfig,
    SparseTransformerConfig,
)
from msbench.config.base import ClassifierConfig
from msbench.config.baselines import (
    CdilConfig,
    CkConvConfig,
    GriffinConfig,
    HippoRnnConfig,
    InceptionTimeConfig,
    LipschitzRnnConfig,
    LstmConfig,
    MultiResNetConfig,
    OrchidConfig,
    RLstmConfig,
    SgConvConfig,
    SpaceTimeConfig,
    TnnConfig,
    TransformerConfig,
    UrGruConfig,
    WaveletFeaturesConfig,
)
from msbench.config.linear import DssConfig, LiquidS4Config, LruConfig, S4Config, S4dConfig, S5Config
from msbench.config.selective import MambaConfig, MsSsmConfig


@dataclass(frozen=True)
class ModelEntry:
    """Entry of a model's name: a config class, and the fields that make it this model and no other.

    `rows` are the rows of the paper's tables that it stands for, as printed there. With `numbers_only` the
    model reads numbers alone (signals, pixels, patches), in sequences of one length.
    """

    config: type[ClassifierConfig]
    summary: str
    family: str
    preset: dict[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    numbers_only: bool = False

    @property
    def module(self) -> str:
        """The module that builds it; with all its imports, it is part of a run's source digest."""
        return f"msbench.models.{self.family.replace('-', '_')}"


def _ms_ssm(summary: str, *rows: str, **preset: Any) -> ModelEntry:
    """Return the entry for a variant of MS-SSM."""
    return ModelEntry(MsSsmConfig, f"MS-SSM {summary}", "ms-ssm", preset, rows)


BASE_ROWS = (
    "MS-SSM (S6)",
    "1 MS-SSM (S6)",
    "5 (self scale, original input)",
    "8 Input-dependent",
    "1 MS-SSM",
)
"""The rows of MS-SSM itself: those of the result tables, and the first of every part of the ablations."""

LAST_STATE = {"pooling": "last"}
"""Preset of recurrent networks whose classifier reads the last state."""

MODELS: dict[str, ModelEntry] = {
    "msssm-s6": _ms_ssm("with selective (S6) scans", *BASE_ROWS),
    "msssm-s4": _ms_ssm("with constant (S4) systems", "MS-SSM (S4)", "2 MS-SSM (S4)", ssm="s4"),
    "msssm-s4d": _ms_ssm("with complex diagonal (S4D) systems", ssm="s4d"),
    "msssm-s4-dplr": _ms_ssm("with S4's own systems: diagonal plus low rank", ssm="s4-dplr"),
    "msssm-input-conv": _ms_ssm("with Mamba's short convolution too", input_conv=True),
    "msssm-no-ssm": _ms_ssm("without SSMs: its streams are mixed", "3 Remove S6/S4", ssm="none"),
    "msssm-no-multiscale": _ms_ssm(
        "with one convolution for all streams", "4 Remove Multi. Conv.", decomposition="shared-conv"
    ),
    "msssm-gate-self-self": _ms_ssm(
        "with B, C and step sizes from the stream", "6 (self scale, self scale)", parameters_from="stream"
    ),
    "msssm-gate-original-self": _ms_ssm(
        "scanning the signal by B, C and step sizes from the stream",
        "7 (original input, self scale)",
        ssm_input="raw",
        parameters_from="stream",
    ),
    "msssm-mixer-static": _ms_ssm("with constant mixer weights", "9 Input-independent", mixer="static"),
    "msssm-mixer-softmax": _ms_ssm("with a softmax mixer", "10 None-linear SoftMax gate", mixer="softmax"),
    "msssm-mamba-init": _ms_ssm("with Mamba's decays", "2 Mamba's Initialization", decay_init="mamba"),
    "mamba": ModelEntry(MambaConfig, "Mamba: selective SSM", "mamba", {}, ("Mamba",)),
    "mamba-2x-param": ModelEntry(
        MambaConfig, "Mamba, twice as deep", "mamba", {"layers_factor": 2}, ("Mamba 2x Param",)
    ),
    "mamba-2x-state": ModelEntry(
        MambaConfig, "Mamba with twice the states", "mamba", {"state_factor": 2}, ("Mamba 2x State",)
    ),
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
    "cdil": ModelEntry(CdilConfig, "CDIL: circular dilated convolutions", "cdil", {}, ("CDIL",)),
    "tnn": ModelEntry(TnnConfig, "TNN: gated Toeplitz matrices", "tnn", {}, ("TNN",)),
    "ckconv": ModelEntry(CkConvConfig, "CKConv: kernels from networks of sines", "ckconv", {}, ("CKConv",)),
    "orchid": ModelEntry(
        OrchidConfig, "Orchid: convolutions with kernels from the input", "orchid", {}, ("Orchid",)
    ),
    "wavelet-features": ModelEntry(
        WaveletFeaturesConfig,
        "Wavelet features: a network on numbers of bands",
        "wavelet-features",
        {},
        ("Wavelet features",),
        numbers_only=True,
    ),
    "spacetime": ModelEntry(
        SpaceTimeConfig, "SpaceTime: autoregressive state spaces", "spacetime", {}, ("Spacetime",)
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
    "local-attention": ModelEntry(
        LocalAttentionConfig, "Attention within blocks", "sparse-attention", {}, ("Local Attention",)
    ),
    "linear-transformer": ModelEntry(
        LinearAttentionConfig,
        "Linear Transformer: attention with features elu + 1",
        "linear-attention",
        {"feature_map": "elu"},
        ("Linear Trans.",),
    ),
    "linformer": ModelEntry(
        LinformerConfig, "Linformer: attention to sums of positions", "linformer", {}, ("Linformer",)
    ),
    "sparse-transformer": ModelEntry(
        SparseTransformerConfig,
        "Sparse Transformer: fixed pattern, causal",
        "sparse-transformer",
        {},
        ("Sparse Transformer",),
    ),
    "performer": ModelEntry(
        LinearAttentionConfig,
        "Performer: random features estimate the softmax",
        "linear-attention",
        {"feature_map": "random"},
        ("Performer",),
    ),
    "cosformer": ModelEntry(
        LinearAttentionConfig,
        "cosFormer: linear attention that falls with the distance",
        "linear-attention",
        {"feature_map": "cosine"},
        ("cosFormer",),
    ),
    "sinkhorn": ModelEntry(
        SinkhornConfig,
        "Sinkhorn Transformer: blocks and sorted blocks",
        "sinkhorn",
        {},
        ("Sinkhorn Transformer",),
    ),
    "longformer": ModelEntry(
        LongformerConfig,
        "Longformer: attention within windows, and to global tokens",
        "sparse-attention",
        {},
        ("Longformer",),
    ),
    "bigbird": ModelEntry(
        BigBirdConfig,
        "BigBird: attention to near, global and random blocks",
        "sparse-attention",
        {},
        ("BigBird",),
    ),
    "luna-256": ModelEntry(
        LunaConfig,
        "Luna-256: attention through a second sequence",
        "luna",
        {"packed": 256},
        ("Luna-256",),
    ),
    "flash": ModelEntry(
        FlashConfig, "FLASH: gated attention in chunks, linear beyond", "flash", {}, ("FLASH",)
    ),
    "mega": ModelEntry(MegaConfig, "Mega: gated attention of a moving average", "mega", {}, ("Mega",)),
    "reformer": ModelEntry(
        ReformerConfig, "Reformer: attention within chunks of a hash", "reformer", {}, ("Reformer",)
    ),
    "h-transformer-1d": ModelEntry(
        HTransformerConfig,
        "H-Transformer-1D: attention in levels",
        "h-transformer",
        {},
        ("H-Transformer-1D",),
    ),
    "lstm": ModelEntry(LstmConfig, "LSTM, a residual block each", "lstm", {}, ("LSTM",)),
    "hippo-rnn": ModelEntry(
        HippoRnnConfig, "HiPPO-RNN: gated, with a LegS memory", "recurrent", LAST_STATE, ("HiPPO-RNN",)
    ),
    "r-lstm": ModelEntry(
        RLstmConfig, "r-LSTM: an LSTM that reproduces what it has read", "r-lstm", LAST_STATE, ("r-LSTM",)
    ),
    "ur-gru": ModelEntry(
        UrGruConfig, "UR-GRU: a GRU with refine gates", "recurrent", LAST_STATE, ("UR-GRU",)
    ),
    "lipschitz-rnn": ModelEntry(
        LipschitzRnnConfig, "Lipschitz RNN: a stable ODE by Euler", "recurrent", LAST_STATE, ("LipschitzRNN",)
    ),
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
