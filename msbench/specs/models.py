"""Models by name."""

from msbench.specs.model import ModelEntry
from msbench.specs.selective import MambaConfig, MsSsmConfig

MODELS: dict[str, ModelEntry] = {
    "msssm-s6": ModelEntry(MsSsmConfig, "MS-SSM with selective (S6) scans", "ms-ssm", {}, ("MS-SSM (S6)",)),
    "mamba": ModelEntry(MambaConfig, "Mamba: selective SSM", "mamba", {}, ("Mamba",)),
}
