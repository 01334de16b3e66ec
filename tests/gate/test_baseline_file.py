import re
from dataclasses import replace

import pytest

from msbench.config.layers import parse_yaml
from msbench.errors import ConfigError
from msbench.gate import baseline_file
from msbench.gate.baseline_file import Baseline
from msbench.runs.suite import Suite

GOOD = """\
suite: tiny
cells:
  listops-tiny:
    mamba:
      cpu:
        metric: accuracy
        values: [0.61, 0.62, 0.63]
        seeds: [0, 1, 2]
        n: 3
        mean: 0.62
        sd: 0.01
        n_test: 20
        data: "12e456789012"
        source: abcdefabcdef
        margin: 0.02
        reason: of the spread
        date: "2026-01-31"
        msbench: "0.1.0"
        checksum: "edae8f2c56fbaa17"
"""


def read(text: str, tiny: Suite) -> Baseline:
    return baseline_file.parse_baseline(parse_yaml(text, "tiny-baseline.yaml"), tiny)


def test_what_is_written_is_what_is_read(tiny: Suite) -> None:
    found = read(GOOD, tiny)
    written = baseline_file.format_baseline(found)
    assert read(written, tiny) == found
    assert baseline_file.format_baseline(read(written, tiny)) == written
    seen = found.cells["listops-tiny"]["mamba"]["cpu"]
    assert (seen.data, seen.values) == ("12e456789012", (0.61, 0.62, 0.63))


@pytest.mark.parametrize(
    "reason",
    [
        *("a: b # c", 'say "no"', "%&|<", "null", "1e5", "yes", "модель → δ", "- x"),
        *("📈 is\u00a01 point", "👩\u200d🔬 \U000e0001", "\ufefftab\tand\x7f\\u1F4C8", "next\u2028line\x85"),
    ],
)
def test_any_reason_survives(reason: str, tiny: Suite) -> None:
    found = read(GOOD, tiny)
    seen = found.cells["listops-tiny"]["mamba"]["cpu"].model_copy(update={"reason": reason})
    gpu = "NVIDIA H100 80GB HBM3"
    written = baseline_file.sign_entry(("listops-tiny", "mamba", gpu), seen.model_dump())
    changed = Baseline(suite="tiny", cells={"listops-tiny": {"mamba": {gpu: written}}})
    assert read(baseline_file.format_baseline(changed), tiny) == changed


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[0.61, 0.62, 0.63]", "[61, 62, 63]", 7, "61 is not a fraction from 0 to 1; is it a percentage?"),
        ("[0.61, 0.62, 0.63]", "[0.61, 62, 0.63]", 7, "then it is 0.62"),
        ("[0.61, 0.62, 0.63]", "[0.61, .nan, 0.63]", 7, "must be a finite number"),
        ("[0.61, 0.62, 0.63]", "[0.61, .inf, 0.63]", 7, "must be a finite number"),
        ("[0.61, 0.62, 0.63]", "[0.61, '62 %', 0.63]", 7, "must be a number, not '62 %'"),
        ("[0.61, 0.62, 0.63]", "[0.61, , 0.63]", 7, ""),
        ("[0.61, 0.62, 0.63]", "[]", 7, "must not be empty"),
        ("[0.61, 0.62, 0.63]", "[0.61, null, 0.63]", 7, "must be a number, not null"),
        ("[0.61, 0.62, 0.63]", "[0.61, true, 0.63]", 7, "must be a number, not true"),
        ("mean: 0.62", "mean: 62.0", 10, "is it a percentage? then it is 0.62"),
        ("mean: 0.62", "mean:", 10, "must be a number, not null"),
        ("        mean: 0.62\n", "", 5, "required key is missing"),
        ("sd: 0.01", "sd: -0.01", 11, "greater than or equal to 0"),
        ("n_test: 20", "n_test: 0", 12, "greater than or equal to 1"),
        ("margin: 0.02", "margin: 2", 15, "where 0.01 is one point, not 2"),
        ("margin: 0.02", "margin: 0", 15, "above 0"),
        ("margin: 0.02", "margin: .nan", 15, "finite"),
        ("reason: of the spread", 'reason: ""', 16, "must not be empty"),
        ("        reason: of the spread\n", "", 5, "required key is missing"),
        ("metric: accuracy", "metric: acuracy", 6, "did you mean 'accuracy'"),
        ("margin: 0.02", "margn: 0.02", 15, "did you mean 'margin'"),
        ("    mamba:", "    mambo:", 4, "the suite has no model 'mambo'; did you mean 'mamba'?"),
        ("  listops-tiny:", "  listops-tny:", 3, "no task 'listops-tny'; did you mean 'listops-tiny'?"),
        ("suite: tiny", "suite: tinny", 1, "is 'tinny', but the checked suite is 'tiny'"),
        ('data: "12e456789012"', "data: 12e456789012", 13, "must be"),
        ('data: "12e456789012"', 'data: ""', 13, "data"),
        ("        n: 3\n", "        n: 3\n        n: 4\n", 10, ""),
        ("suite: tiny\n", "suite: tiny\ntolerance: 1\n", 2, "unknown key"),
    ],
)
def test_what_is_no_baseline_is_said_with_its_line(
    old: str, new: str, line: int, words: str, tiny: Suite
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as refused:
        read(GOOD.replace(old, new), tiny)
    assert f"tiny-baseline.yaml:{line}" in str(refused.value)
    assert words in str(refused.value)


def test_an_entry_of_what_the_suite_does_not_list_is_said(tiny: Suite) -> None:
    """It would never be checked, and the gate would pass without it."""
    fewer = replace(tiny, cells=tiny.cells - {("listops-tiny", "mamba")})
    with pytest.raises(ConfigError, match=r"tiny-baseline.yaml:4: .*does not list mamba for listops-tiny"):
        read(GOOD, fewer)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0.61, 0.62, 0.63]", "[0.61, 0.62]"),
        ("mean: 0.62", "mean: 0.621"),
        ("mean: 0.62", "mean: 0.61"),
        ("mean: 0.62", "mean: 0.0062"),
        ("sd: 0.01", "sd: 0.2"),
        ("        sd: 0.01\n", ""),
        ("seeds: [0, 1, 2]", "seeds: [0, 1, 1]"),
        ('date: "2026-01-31"', 'date: "yesterday"'),
        ("margin: 0.02", "margin: 0.2"),
        ("source: abcdefabcdef", "source: bbcdefabcdef"),
        ('data: "12e456789012"', 'data: "22e456789012"'),
        ("reason: of the spread", "reason: of the wind"),
        ("[0.61, 0.62, 0.63]", "[0.63, 0.62, 0.61]"),
        ("seeds: [0, 1, 2]", "seeds: [0, 1, 3]"),
        ("n_test: 20", "n_test: 200"),
        ("metric: accuracy", "metric: macro-auroc"),
        ("cpu:", "any:"),
        ("    mamba:", "    msssm-s6:"),
        ('date: "2026-01-31"', 'date: "2026-01-30"'),
        ("checksum: ", "checksum: x"),
        (re.findall("        checksum.*\n", GOOD)[0], ""),
    ],
)
def test_an_edit_by_hand_is_found(old: str, new: str, tiny: Suite) -> None:
    """Of the entry or of its place, even where all derived numbers were edited along."""
    assert old in GOOD
    with pytest.raises(ConfigError, match=r"tiny-baseline.yaml:5: .*its checksum does not match"):
        read(GOOD.replace(old, new), tiny)


@pytest.mark.parametrize("text", ["", "cells:\n", "suite: tiny\ncells: {}\n", "suite: tiny\n", "- 1\n"])
def test_an_empty_file_is_none(text: str, tiny: Suite) -> None:
    with pytest.raises(ConfigError, match="tiny-baseline"):
        read(text, tiny)


def test_a_model_without_an_entry_is_said(tiny: Suite) -> None:
    with pytest.raises(ConfigError, match="has no class of hardware"):
        read("suite: tiny\ncells:\n  listops-tiny:\n    mamba: {}\n", tiny)
