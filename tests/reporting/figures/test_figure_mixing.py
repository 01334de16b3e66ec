"""Mixing distances by layer: one way of measuring a figure, the mean over seeds, what the picture holds."""

import json

import pytest
from figure_values import cell, column, points_of, record, series_in, table

from msbench.reporting.figures.mixing import choose_measurements, collect_layers, draw_layers
from msbench.reporting.figures.style import apply_style, assign_styles
from msbench.reporting.tables.cells import Cell
from msbench.results.mixing_documents import Distances, LayerDistances

DEFAULT = '{"entries": "l1"}'
RUNS = [record("a"), record("b", seed=1), record("c")]
TABLE = table({"Mamba": [cell("a", "b")], "MS-SSM": [cell("c")]})


def document(
    *means: float | None, options: str = DEFAULT, default: bool = True, trained: bool = True
) -> Distances:
    return Distances(
        schema_version=1,
        run_id="a",
        trained=trained,
        default_options=default,
        options_digest=options,
        options=json.loads(options),
        mean=1.0,
        sd=0.5,
        layers=tuple(LayerDistances(layer=at, mean=mean, sd=0.5, n=4) for at, mean in enumerate(means)),
        examples=8,
        created="2026-01-01",
    )


def test_a_row_a_layer_and_one_of_the_mean_over_seeds() -> None:
    kept = {"a": [document(1.0, 3.0)], "b": [document(2.0, 5.0, 9.0)], "c": [document(4.0, None)]}
    rows = collect_layers(series_in(TABLE, RUNS), kept)
    assert [(row.name, row.kind, row.run_id, row.layer, row.distance, row.n) for row in rows] == [
        *(("Mamba", "seed", "a", 1, 1.0, 4), ("Mamba", "seed", "a", 2, 3.0, 4)),
        *(
            ("Mamba", "seed", "b", 1, 2.0, 4),
            ("Mamba", "seed", "b", 2, 5.0, 4),
            ("Mamba", "seed", "b", 3, 9.0, 4),
        ),
        *(("Mamba", "mean", "", 1, 1.5, 2), ("Mamba", "mean", "", 2, 4.0, 2)),
        *(("MS-SSM", "seed", "c", 1, 4.0, 4), ("MS-SSM", "seed", "c", 2, None, 4)),
    ]
    assert [row.sd for row in rows if row.kind == "mean"] == pytest.approx([0.70710678, 1.41421356])


def test_the_picture_holds_the_rows() -> None:
    kept = {"a": [document(1.0, 3.0)], "b": [document(2.0, 5.0)], "c": [document(4.0, None, 6.0)]}
    rows = collect_layers(series_in(TABLE, RUNS), kept)
    with apply_style():
        [axes] = draw_layers(rows, assign_styles(row.name for row in rows)).axes
    lines = {str(line.get_gid()): points_of(line) for line in axes.get_lines()}
    assert lines["seed-a"] == [(1, 1.0), (2, 3.0)]
    assert lines["seed-c"] == [(1, 4.0), (3, 6.0)]
    [mean] = axes.containers
    assert lines["mean-"] == [(1, 1.5), (2, 4.0)]
    bars = [end for segment in mean[2][0].get_segments() for end in segment[:, 1]]
    assert bars == pytest.approx([1.5 - 0.70710678, 1.5 + 0.70710678, 4 - 1.41421356, 4 + 1.41421356])


def test_only_what_was_measured_in_one_way_is_compared() -> None:
    other = '{"entries": "l2"}'
    documents = {
        "a": [document(1.0), document(7.0, options=other, default=False), document(8.0, trained=False)],
        "b": [document(2.0)],
        "c": [document(9.0, options=other, default=False)],
    }
    kept, notes = choose_measurements(documents)
    assert {run: [each.layers[0].mean for each in found] for run, found in kept.items()} == {
        "a": [1.0, 8.0],
        "b": [2.0],
    }
    assert notes == ("2 measured in another way left out",)


def test_of_a_run_measured_twice_in_one_way_the_newer_is_drawn() -> None:
    kept, _ = choose_measurements({"a": [document(1.0), document(2.0)]})
    assert [each.layers[0].mean for each in kept["a"]] == [2.0]


def test_untrained_models_and_the_reported_number_are_drawn_next_to_trained_ones() -> None:
    distances = column("listops", "Mixing", "tokens", source="mixing")
    of = table(
        {"Mamba": [cell("a", "b", reported="6.5")], "Reported only": [Cell(reported="9")]}, [distances]
    )
    kept = {
        "a": [document(1.0, 3.0), document(8.0, 6.0, trained=False)],
        "b": [document(2.0, 5.0), document(6.0, 6.0, trained=False)],
    }
    rows = collect_layers(series_in(of, RUNS), kept)
    means = [(row.trained, row.layer, row.distance) for row in rows if row.kind == "mean"]
    assert means == [(True, 1, 1.5), (True, 2, 4.0), (False, 1, 7.0), (False, 2, 6.0)]
    [mark] = [row for row in rows if row.kind == "reported"]
    assert (mark.name, mark.layer, mark.distance, mark.n) == ("Mamba", None, 6.5, None)
    with apply_style():
        figure = draw_layers(rows, assign_styles(row.name for row in rows))
    [axes] = figure.axes
    dashed, solid = (line for line in axes.get_lines() if line.get_gid() == "mean-")
    assert points_of(dashed) == [(1, 7.0), (2, 6.0)]
    assert (dashed.get_linestyle(), dashed.get_markerfacecolor()) == ("--", "#ffffff")
    assert points_of(solid) == [(1, 1.5), (2, 4.0)]
    assert solid.get_linestyle() == "-"
    [diamond] = [line for line in axes.get_lines() if line.get_gid() == "reported"]
    assert points_of(diamond) == [(1.0, 6.5)]
    low, high = axes.get_ylim()
    assert low <= 6.5 <= high
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Mamba", "untrained", "reported"]


def test_other_options_are_in_the_notes() -> None:
    kept, notes = choose_measurements(
        {"a": [document(1.0, options='{"entries": "l2"}', default=False, trained=False)]}
    )
    assert list(kept) == ["a"]
    assert notes == ('measured with the options {"entries": "l2"}', "the models are not trained")
    assert choose_measurements({"a": []}) == ({}, ())
