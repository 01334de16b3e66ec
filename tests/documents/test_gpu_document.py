"""`docs/gpu.md`: what it names is there, and what it says of the estimate is what the estimate has."""

import re
from pathlib import Path

from counting import LAUNCH, PRODUCTS, STREAMED, STRIDED
from kernels import CAPABILITIES
from null_gpu import CUDA
from torch import float32

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_its_files_are_there() -> None:
    names = re.findall(r"[`\s]((?:[\w.]+/)*\w+\.(?:py|cpp|csv))\b", TEXT)
    assert len(names) > 8
    assert [x for x in names if not (ROOT / x).exists() and not (ROOT / "tests" / "gpu" / x).exists()] == []


def test_every_test_of_the_folder_is_described() -> None:
    there = {path.name for path in (ROOT / "tests" / "gpu").glob("test_*.py")} - {"test_null_gpu.py"}
    assert set(re.findall(r"^\| `(test_\w+\.py)` \|", TEXT, re.M)) == there


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"at {STREAMED / 1e12} TB/s, or at {STRIDED / 1e12} if" in TEXT
    assert f"take {PRODUCTS[float32] / 1e12:.0f} TFLOP/s in float32" in TEXT
    assert f"takes {1e6 * LAUNCH:.0f} µs at least" in " ".join(TEXT.split())
    assert f"CUDA {CUDA} is absent" in TEXT
    *most, last = (f"{capability / 10:.1f}" for capability in CAPABILITIES)
    assert f"compute capability {', '.join(most)} or {last}," in TEXT
