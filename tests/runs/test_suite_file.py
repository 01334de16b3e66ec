"""The key ``gate`` of a suite."""

from pathlib import Path

import pytest
from conftest import TINY_SUITE

from msbench.errors import ConfigError
from msbench.runs.suite import Suite, load_suite, resolve_specs


def with_gate(folder: Path, text: str) -> Suite:
    path = folder / "tiny.yaml"
    path.write_text(f"{TINY_SUITE}gate:\n{text}", encoding="utf-8")
    return load_suite(str(path))


def test_settings_of_a_model_win(tmp_path: Path) -> None:
    gate = with_gate(
        tmp_path,
        "  margin: 0.03\n  reason: all\n  sd: 0.01\n  degrees: 4\n"
        "  tasks: {listops-tiny: {margin: 0.02, reason: task, other_data: generated}}\n"
        "  models: {mamba: {margin: 0.01, reason: model}}\n",
    ).gate
    one, other = gate.for_cell("listops-tiny", "mamba"), gate.for_cell("listops-tiny", "msssm-s6")
    assert (one.margin, one.reason, one.sd, one.degrees, one.other_data) == (
        0.01,
        "model",
        0.01,
        4,
        "generated",
    )
    assert (other.margin, other.reason) == (0.02, "task")


def test_a_suite_without_one_says_nothing(tiny: Suite) -> None:
    assert tiny.gate.for_cell("listops-tiny", "mamba").margin is None
    assert tiny.gate.expected_failure("listops-tiny", "mamba") is None


def test_a_mark_is_found_by_its_cell(tmp_path: Path) -> None:
    mark = "{task: listops-tiny, model: mamba, reason: slow, link: 'https://example.org/7'}"
    gate = with_gate(tmp_path, f"  xfail: [{mark}]\n").gate
    found = gate.expected_failure("listops-tiny", "mamba")
    assert found is not None
    assert (found.reason, found.link) == ("slow", "https://example.org/7")
    assert gate.expected_failure("listops-tiny", "msssm-s6") is None


def test_a_mark_of_what_the_suite_does_not_list_is_refused(tmp_path: Path) -> None:
    text = TINY_SUITE.replace("  mamba: {}", "  mamba: {only: [other]}")
    text = text.replace("model: {d_model", "  other: {data: {dataset: mnist}}\nmodel: {d_model")
    mark = "{task: listops-tiny, model: mamba, reason: slow, link: 'https://example.org/7'}"
    path = tmp_path / "tiny.yaml"
    path.write_text(f"{text}gate:\n  xfail: [{mark.replace('listops-tiny', 'other')}]\n", encoding="utf-8")
    assert load_suite(path).gate.xfail
    path.write_text(f"{text}gate:\n  xfail: [{mark}]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"gate\.xfail\.0: mamba is not listed for listops-tiny"):
        load_suite(path)


def test_it_changes_no_run(tiny: Suite, tmp_path: Path) -> None:
    (tmp_path / "gated").mkdir()
    gated = with_gate(tmp_path / "gated", "  margin: 0.05\n  reason: wide\n")
    assert [spec.digest for spec in resolve_specs(gated)] == [spec.digest for spec in resolve_specs(tiny)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  margin: 1\n  reason: a point\n", "where 0.01 is one point, not 1"),
        ("  margin: 0.5\n  reason: half a point\n", "up to 0.2"),
        ("  margin: 0\n  reason: none\n", "above 0"),
        ("  margin: 1 %\n  reason: a point\n", "must be a number, not '1 %'"),
        ("  margin: .nan\n  reason: a point\n", "finite"),
        ("  margin: 0.01\n", "margin and reason go together"),
        ("  reason: why\n", "margin and reason go together"),
        ("  margin: 0.01\n  reason: ''\n", "reason"),
        ("  sd: 0.01\n", "sd and degrees go together"),
        ("  sd: -0.01\n  degrees: 3\n", "greater than 0"),
        ("  sd: 0.01\n  degrees: 0\n", "greater than or equal to 1"),
        ("  margn: 0.01\n", "did you mean 'margin'"),
        ("  tasks: {listops-tny: {margin: 0.01, reason: x}}\n", "no task 'listops-tny'; did you mean"),
        ("  models: {mambo: {margin: 0.01, reason: x}}\n", "no model 'mambo'; did you mean 'mamba'"),
        ("  models: {mamba: {margin: 0.01}}\n", "margin and reason go together"),
        ("  xfail: [{task: listops-tiny, model: mamba, reason: slow}]\n", "link: required key is missing"),
        ("  xfail: [{task: listops-tiny, model: mamba, link: 'https://a.b'}]\n", "reason: required key"),
        ("  xfail: [{task: listops-tiny, model: mamba, reason: slow, link: ask me}]\n", "link"),
        (
            "  xfail: [{task: listops-tiny, model: mambo, reason: a, link: 'https://a.b'}]\n",
            "no model 'mambo'",
        ),
        ("  xfail: [{task: listops, model: mamba, reason: a, link: 'https://a.b'}]\n", "no task 'listops'"),
        ("  [1]\n", "must be a mapping"),
    ],
)
def test_invalid_settings_are_reported_with_their_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        with_gate(tmp_path, text)
    assert "tiny.yaml:" in str(refused.value)
    assert words in str(refused.value)
