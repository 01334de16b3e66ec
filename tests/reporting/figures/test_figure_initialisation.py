"""The figure of the initialisation: its dots are a model's, and Figure 2's where the model is its."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from figure_values import cell, record, series_in, table

from msbench import models
from msbench.config import MODELS
from msbench.datasets import DATASETS
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.reporting.figures import FigureFile
from msbench.reporting.figures.initialisation import (
    Poles,
    collect_dots,
    compute_initial_poles,
    draw_dots,
    list_dots,
)
from msbench.runs.suite import Suite, resolve_specs

INFO = TaskInfo("tokens", 7, 3, 12, "accuracy", 1 / 3, {})
FIGURE_2 = [
    [0.24659696, 0.20189652, 0.16529889],
    [0.44932896, 0.36787944, 0.30119421],
    [0.81873075, 0.67032005, 0.54881164],
]
"""The dots of the paper's drawing, s = 1, 2, 3, as its source has them."""


def model_of(name: str = "msssm-s6", **options: Any) -> Classifier:
    entry = MODELS[name]
    config = entry.config(**{"d_model": 8, "layers": 2, **entry.preset, **options})
    return models.build(name, config, INFO, seed=0)


@pytest.mark.parametrize("name", ["msssm-s6", "msssm-s4"])
@pytest.mark.parametrize("streams", [{"levels": 1}, {"levels": 2, "raw_stream": False}])
def test_the_nine_dots_of_figure_2(name: str, streams: dict[str, Any]) -> None:
    """Three streams of three states at one step size, 0.2, in every channel of every layer."""
    model = model_of(name, state=9, dt_min=0.2, dt_max=0.2, **streams)
    for layer in (0, 1):
        found = compute_initial_poles(model, layer)
        assert len(found) == 3
        for poles, expected in zip(found, FIGURE_2, strict=True):
            assert len(poles.channels) == 16
            np.testing.assert_allclose(poles.channels, [expected] * 16, rtol=1e-6)


def test_dots_follow_the_model_and_no_constant() -> None:
    model = model_of(state=9, levels=1, dt_min=0.2, dt_max=0.2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.add_(torch.tensor(2.0).log())
    coarse = compute_initial_poles(model)[-1]
    np.testing.assert_allclose(coarse.channels[0], np.exp(-0.4 * np.arange(1, 4)), rtol=1e-6)
    mamba = compute_initial_poles(model_of("msssm-mamba-init", state=9, levels=1, dt_min=0.2, dt_max=0.2))
    for poles in mamba:
        np.testing.assert_allclose(poles.channels[0], FIGURE_2[2], rtol=1e-6)


@pytest.mark.parametrize("name", ["msssm-s4d", "msssm-s4-dplr"])
def test_complex_poles_are_drawn_by_how_fast_they_decay(name: str) -> None:
    found = compute_initial_poles(model_of(name, state=12, levels=1, dt_min=0.2, dt_max=0.2))
    assert [len(poles.channels[0]) for poles in found] == [4, 4, 4]
    for poles, offset in zip(found, (8, 4, 0), strict=True):
        decay = -0.2 * (offset + 0.5)
        if name == "msssm-s4d":
            np.testing.assert_allclose(poles.channels, np.exp(decay), rtol=1e-5)
        else:  # bilinear, so faster oscillations decay more slowly
            assert all(abs((2 + decay) / (2 - decay)) < dot < 1 for dot in poles.dots)
    assert draw_dots(list_dots(found)).axes


def test_streams_of_the_paper_at_128_states() -> None:
    found = compute_initial_poles(model_of(state=128, levels=3))
    assert [poles.stream for poles in found] == ["x", "d1", "d2", "d3", "a3"]
    assert [len(poles.channels[0]) for poles in found] == [25, 25, 26, 26, 26]
    assert all(0 <= dot < 1 for poles in found for dot in poles.dots)
    assert len(compute_initial_poles(model_of(bidirectional=True), layer=3)) == 5


def test_models_without_ssms_are_refused() -> None:
    with pytest.raises(ValueError, match="ssm: none"):
        compute_initial_poles(model_of("msssm-no-ssm"))
    with pytest.raises(ValueError, match="no layer 2 among the 2"):
        compute_initial_poles(model_of(), layer=2)
    with pytest.raises(ValueError, match="no layer 0 among the 0"):
        compute_initial_poles(model_of("mamba"))


def test_the_figure_has_a_dot_for_every_pole() -> None:
    streams = compute_initial_poles(model_of(state=9, levels=1, dt_min=0.2, dt_max=0.2))
    (axes,) = draw_dots(list_dots(streams, ("", "Figure 2", "", ""))).axes
    assert axes.get_title() == "Figure 2"
    rows = [line.get_xydata() for line in axes.get_lines()]
    for row, (points, expected) in enumerate(zip(rows, FIGURE_2, strict=True)):
        points = np.unique(np.round(np.asarray(points), 6), axis=0)
        np.testing.assert_allclose(points[:, 0], sorted(expected), atol=1e-6)
        assert set(points[:, 1]) == {row}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "d1", "a1"]


def test_the_svg_is_well_formed_and_always_the_same() -> None:
    streams = compute_initial_poles(model_of(state=9, levels=1))
    found = FigureFile("start", "Start", rows=list_dots(streams, ("", "Δ & <A>", "", "")))
    found = replace(found, draw=partial(draw_dots, found.rows))
    text = found.pictures()["svg"].decode()
    assert text == found.pictures()["svg"].decode()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert "Δ &amp; &lt;A&gt;" in text
    assert not re.search(r"20\d\d-\d\d-\d\dT", text)
    for stream in ("x", "d1", "a1"):
        group = root.find(f".//*[@id='poles-0-{stream}']")
        assert group is not None
        assert len(group.findall(".//{*}use")) == len(streams[("x", "d1", "a1").index(stream)].dots)


def test_a_stream_without_states_has_an_empty_row() -> None:
    streams = compute_initial_poles(model_of(state=2, levels=1))
    assert [len(poles.channels[0]) for poles in streams] == [0, 1, 1]
    assert draw_dots(list_dots(streams)).axes
    assert Poles("x", ((), ())).dots == []


def test_dots_too_close_to_distinguish_are_one() -> None:
    assert Poles("x", ((0.5, 0.5001, 0.9), (0.5019, 0.502))).dots == [0.5, 0.502, 0.9]


def test_the_models_of_a_table_are_built_as_their_runs_start(tiny: Suite) -> None:
    first, second = resolve_specs(tiny)
    runs = [record("1", spec=first.model_dump(mode="json")), record("2", spec=second.model_dump(mode="json"))]
    odd = record("3", spec={"model": {"layers": 2}})
    names = ("MS-SSM", "Mamba", "Old")
    series = series_in(table({name: [cell(str(k))] for k, name in enumerate(names, 1)}), [*runs, odd])
    found, notes = collect_dots(series)
    task = DATASETS["listops"].outline(first.data)
    expected = compute_initial_poles(models.build(first.model_name, first.model, task, first.seed))
    assert [(dot.stream, dot.pole) for dot in found] == [
        (poles.stream, pole) for poles in expected for pole in (*poles.dots, *([] if poles.dots else [None]))
    ]
    assert {(dot.name, dot.run_id) for dot in found} == {("MS-SSM", "1")}
    [note] = notes
    assert note.startswith("Old: not shown: run 3: ")


def test_only_building_a_model_imports_torch() -> None:
    code = "import sys, msbench.reporting, msbench.reporting.figures; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
