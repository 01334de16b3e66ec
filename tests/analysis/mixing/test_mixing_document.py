"""What is written down: statistics, samples, tables, CSV and figures, from a measure that can be checked."""

import contextlib
import csv
import functools
import io
import json
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mixing_cases import model_of, tokens

from msbench.analysis.mixing import table
from msbench.analysis.mixing.command import is_measure_of, split_batches
from msbench.analysis.mixing.document import build_document
from msbench.analysis.mixing.measure import Measure, MeasuredLayer, measure_model
from msbench.analysis.mixing.options import MeasureOptions, choose_sample, parse_measure_options
from msbench.console import out_json
from msbench.errors import ConfigError, DamagedRecord
from msbench.reporting.figures import mixing
from msbench.reporting.figures.style import FORMATS, Format, apply_style
from msbench.results.mixing_documents import (
    MixingDocument,
    document_path,
    read_distances,
    read_document,
    write_document,
)

FACTS = {
    "suite": "tiny",
    "task": "listops-tiny",
    "model": "mamba",
    "seed": 0,
    "run_id": "0123456789ab",
    "trained": True,
    "epoch": 2,
    "causal": True,
    "created": "2026-01-01T00:00:00+00:00",
}


def built(name: str = "mamba", seed: int = 0, trained: bool = True, **options: Any) -> MixingDocument:
    chosen = MeasureOptions(examples=3, **options)
    measured = measure_model(model_of(name), [tokens(9, 30, 14, seed=seed)], chosen)
    facts = {**FACTS, "model": name, "seed": seed, "trained": trained}
    return build_document(measured, chosen, [4, 7, 19], facts)


def by_hand(distance: list[list[float]], **others: Any) -> Measure:
    rows = np.array(distance)
    shares = np.full((len(rows), 4), 0.25)
    layer = MeasuredLayer(1, "Any", rows, shares, np.full((len(rows), 3), 1 / 3), 0.0)
    lengths = np.full(len(rows), 4)
    return Measure((layer,), (0, 1, 2), lengths, np.ones(len(rows), bool), **others)


def test_means_are_over_layers_sequences_and_channels() -> None:
    measured = measure_model(model_of("mamba"), [tokens(9, 30, 14)], MeasureOptions())
    found = build_document(measured, MeasureOptions(), [4, 7, 19], FACTS)
    values = np.stack([layer.distance for layer in measured.layers])
    assert found["n"] == values.size == 2 * 3 * 4
    assert found["mean"] == pytest.approx(values.mean())
    assert found["sd"] == pytest.approx(values.std(ddof=1))
    assert found["sd_of_layers"] == pytest.approx(values.mean((1, 2)).std(ddof=1))
    assert found["sd_of_sequences"] == pytest.approx(values.mean((0, 2)).std(ddof=1))
    for layer, rows in zip(found["layers"], values, strict=True):
        assert (layer["mean"], layer["sd"]) == pytest.approx((rows.mean(), rows.std(ddof=1)))
        assert [row["mean"] for row in layer["sequences"]] == pytest.approx(rows.mean(1))
        assert sum(layer["profile"]) == pytest.approx(1)
        assert layer["beyond"]["1"] == pytest.approx(1 - sum(layer["profile"][:2]))
    assert found["profile_edges"] == [0, 1, 2, 4, 8, 16]
    assert [row["length"] for row in found["layers"][0]["sequences"]] == [9, 30, 14]
    assert found["example_ids"] == [4, 7, 19]


def test_rows_of_zeros_are_counted_and_left_out() -> None:
    found = build_document(by_hand([[1.0, np.nan], [np.nan, np.nan]]), MeasureOptions(), [0, 1], FACTS)
    assert (found["mean"], found["sd"], found["n"], found["zero_rows"]) == (1, None, 1, 3)
    assert [row["mean"] for row in found["layers"][0]["sequences"]] == [1, None]
    assert "3 rows are zero everywhere and have no distance" in table.list_notes(found)
    assert table.format_rows(found)[0][:3] == ("1", "1.00", "1")
    json.dumps(found, allow_nan=False)


def test_the_two_sequences_of_a_pair_are_numbered() -> None:
    found = build_document(by_hand([[1.0], [2.0], [3.0], [4.0]]), MeasureOptions(), [5, 5, 8, 8], FACTS)
    rows = [(row["example"], row["sequence"]) for row in found["layers"][0]["sequences"]]
    assert rows == [(5, 0), (5, 1), (8, 0), (8, 1)]
    assert (found["examples"], found["sequences"]) == (2, 4)


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, found = document_path(tmp_path, MeasureOptions().digest, trained=True), built()
    assert read_document(path) is None
    write_document(path, found)
    assert read_document(path) == found
    assert path.parent.name == "mixing"
    others = [document_path(tmp_path, MeasureOptions(residual=True).digest, trained=True)]
    others.append(document_path(tmp_path, MeasureOptions().digest, trained=False))
    assert len({path, *others}) == 3
    assert read_document(path / "below a file.json") is None
    with pytest.raises(DamagedRecord, match="mixing: cannot be read: not a regular file"):
        read_document(path.parent)
    for text in ("{", "[]", '{"schema_version": 0}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DamagedRecord, match=rf"{path.name}: not a measure of mixing.*; delete it"):
            read_document(path)


WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, -1e308, math.nan, math.inf, 2**64, "", "text", "half \ud83d"),
    *([], {}, [None], [[]], {"1": "x"}, ["a", "b"], [1e308] * 6, json.loads("[" * 60 + "]" * 60)),
)
"""Values of every kind, most of which are wrong anywhere."""


def list_places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys of every value in a document, from the top."""
    yield above
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from list_places(inner, (*above, key))


@functools.cache
def valid_document() -> str:
    return json.dumps(built())


@st.composite
def spoiled_documents(draw: st.DrawFn) -> Any:
    """A valid document with one or two of its values replaced, wrapped in a list or removed."""
    changed: Any = json.loads(valid_document())
    for _ in range(draw(st.integers(1, 2))):
        if not isinstance(changed, dict):
            break
        place = draw(st.sampled_from(list(list_places(changed))[1:]))
        how = draw(st.sampled_from(["replace", "wrap", "remove"]))
        wrong = deepcopy(draw(st.sampled_from(WRONG)))  # the next change may be inside of it
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        if how == "remove":
            del inner[place[-1]]
        else:
            inner[place[-1]] = wrong if how == "replace" else [inner[place[-1]]]
    return changed


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoiled=spoiled_documents() | st.sampled_from(WRONG))
def test_a_document_of_any_shape_is_refused_or_shown_in_every_form(spoiled: Any, tmp_path: Path) -> None:
    path = tmp_path / "mixing" / "trained-x.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(spoiled), encoding="utf-8")
    read_distances(tmp_path)
    with contextlib.suppress(DamagedRecord):
        found = read_document(path)
        assert found is not None
        if is_measure_of({key: json.loads(valid_document())[key] for key in (*FACTS, "options")}, found):
            with contextlib.redirect_stdout(io.StringIO()):
                table.print_documents([found])
                out_json([found])
            table.render_csv([found])
            for draw in mixing.DOCUMENT_FIGURES.values():
                draw([found])


def test_options_have_one_spelling_and_say_what_is_wrong() -> None:
    assert MeasureOptions().is_default
    assert parse_measure_options({"position": "last", "examples": 64}) == MeasureOptions()
    assert parse_measure_options({"position": "0"}).position == 0
    assert not parse_measure_options({"position": "0"}).is_default
    assert (
        len({MeasureOptions().digest, MeasureOptions(position=0).digest, MeasureOptions(entries="l2").digest})
        == 3
    )
    for key, value, words in (
        ("entries", "l3", "--entries: must be 'l1', 'l2' or 'same-channel', not 'l3'"),
        ("examples", 0, "--examples: must be greater than or equal to 1, not 0"),
        ("dtype", "float16", "--dtype: must be 'float32' or 'float64'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            parse_measure_options({"position": "last", key: value})
    for position, words in (
        ("first", "a whole"),
        ("--5", "a whole"),
        ("-1", "greater than or equal to 0, not -1"),
    ):
        with pytest.raises(ConfigError, match=f"--position: must be {words}"):
            parse_measure_options({"position": position})


def test_the_sample_is_fixed_and_grows() -> None:
    assert choose_sample(1000, 4).tolist() == [162, 206, 222, 459]
    assert set(choose_sample(1000, 4)) < set(choose_sample(1000, 30))
    assert choose_sample(5, 16).tolist() == [0, 1, 2, 3, 4]


def test_batches_hold_all_and_no_more_than_fits() -> None:
    lengths = np.array([5, 90, 7, 30, 6, 30])
    found = [part.tolist() for part in split_batches(lengths, 60)]
    assert found == [[0, 4, 2], [3, 5], [1]]
    assert [part.tolist() for part in split_batches(lengths, 59)] == [[0, 4, 2], [3], [5], [1]]
    assert [part.tolist() for part in split_batches(lengths, 0)] == [[0], [4], [2], [3], [5], [1]]


@pytest.mark.parametrize("options", [{}, {"residual": True, "normaliser": "printed"}, {"scope": "network"}])
def test_the_table_fits_80_columns(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    found = built("msssm-s6", **options)
    found |= {"mean": 1234.5678, "sd": 1234.5678, "n": 320_000}
    table.print_documents([found, found])
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if re.match(r"(layer|\d+|all|network) ", line)]
    assert len(rows) == (2 * 2 if options.get("scope") else 2 * 4)
    assert max(map(len, rows)) <= 80
    assert ("residual True" in out) == ("residual" in options)
    assert ("signs cancel" in out) == ("normaliser" in options)


def test_csv_has_a_row_a_layer_and_sequence_unrounded() -> None:
    documents = [built(), built("msssm-s6", trained=False)]
    text = table.render_csv(documents).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 2 * 2 * 3
    assert [row["trained"] for row in rows] == ["true"] * 6 + ["false"] * 6
    for row, expected in zip(
        rows, [s for d in documents for each in d["layers"] for s in each["sequences"]], strict=True
    ):
        assert float(row["mean"]) == expected["mean"]
        assert float(row["beyond_10"]) == expected["beyond"]["10"]
        assert (int(row["example"]), int(row["length"])) == (expected["example"], expected["length"])


def documents() -> list[MixingDocument]:
    pairs = [("mamba", 0), ("mamba", 1), ("msssm-s6", 0)]
    return [built(name, seed, trained) for trained in (True, False) for name, seed in pairs]


def test_seeds_share_a_line() -> None:
    groups = mixing.group_seeds(documents())
    found = list(groups)
    assert [style.label for style in found] == [
        "mamba",
        "msssm-s6",
        "mamba · untrained",
        "msssm-s6 · untrained",
    ]
    assert [len(seeds) for seeds in groups.values()] == [2, 1, 2, 1]
    assert [style.line for style in found] == ["-", "-", "--", "--"]
    assert found[0].colour == found[2].colour != found[1].colour


def test_the_figure_by_layer_has_the_mean_and_spread_of_all_rows() -> None:
    (axes,) = mixing.draw_by_layer(documents()[:2]).axes
    line = axes.get_lines()[0]
    both = [
        measure_model(model_of("mamba"), [tokens(9, 30, 14, seed=seed)], MeasureOptions()) for seed in (0, 1)
    ]
    for k in (0, 1):
        values = np.concatenate([each.layers[k].distance.ravel() for each in both])
        assert np.asarray(line.get_ydata())[k] == pytest.approx(values.mean())
        (low, high) = axes.collections[0].get_segments()[k][:, 1]  # type: ignore[attr-defined]
        assert (high - low) / 2 == pytest.approx(values.std(ddof=1))


def test_the_figure_by_distance_falls_from_all_that_is_not_the_position_itself() -> None:
    (found, *_) = documents()
    (axes,) = mixing.draw_by_distance([found]).axes
    whole = np.asarray(axes.get_lines()[-1].get_ydata())
    assert whole[0] == pytest.approx(1 - found["profile"][0])
    assert (np.diff(whole) <= 0).all()
    assert whole[-1] == pytest.approx(found["profile"][-1])


@pytest.mark.parametrize("name", mixing.DOCUMENT_FIGURES)
@pytest.mark.parametrize("form", FORMATS)
def test_the_same_documents_are_the_same_bytes(name: str, form: Format) -> None:
    drawn = [{**each, "task": "Δ & <A>" if each["seed"] else each["task"]} for each in documents()]
    first = mixing.render_documents(drawn, name, form)
    assert first == mixing.render_documents(drawn, name, form)
    assert first.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[form])
    if form == "svg":
        assert ElementTree.fromstring(first.decode()).tag.endswith("svg")
        assert not re.search(rb"20\d\d-\d\d-\d\dT", first)


@pytest.mark.parametrize("name", mixing.DOCUMENT_FIGURES)
def test_a_users_settings_have_no_effect_and_names_are_no_mathematics(name: str) -> None:
    model = "price_$ and $x^{"
    drawn = [{**each, "model": model} for each in documents()]
    first = mixing.render_documents(drawn, name, "svg")
    assert model in first.decode()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert mixing.render_documents(drawn, name, "svg") == first


@pytest.mark.parametrize("date", ["x", "", "1" + "0" * 30])
def test_a_date_of_the_environment_has_no_effect(date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mixing.render_documents([built()], "layers", "pdf")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
    assert mixing.render_documents([built()], "layers", "pdf") == first
    assert os.environ["SOURCE_DATE_EPOCH"] == date


def test_hollow_markers_of_untrained_models_have_an_edge() -> None:
    with apply_style():
        (axes,) = mixing.draw_by_layer([built(trained=False)]).axes
    line = axes.get_lines()[0]
    assert line.get_markerfacecolor() == "white"
    assert line.get_markeredgewidth() > 0


def test_files_land_in_a_folder(tmp_path: Path) -> None:
    written = table.write_outputs([built()], tmp_path / "out", csv=True, figure=True)
    assert len(written) == 1 + 2 * 3
    assert all(path.stat().st_size > 500 for path in written)
    assert [
        path.name for path in table.write_outputs([built(trained=False)], tmp_path, csv=True, figure=False)
    ] == ["tiny-untrained-mixing.csv"]
    assert table.write_outputs([built()], tmp_path / "none", csv=False, figure=False) == []
    assert table.write_outputs([], tmp_path / "none", csv=True, figure=True) == []
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--out .*file: names a file, and must be a folder"):
        table.write_outputs([built()], tmp_path / "file", csv=True, figure=False)


def test_a_document_with_half_a_surrogate_pair_can_be_written_in_every_form(tmp_path: Path) -> None:
    path = tmp_path / "mixing.json"
    path.write_text(json.dumps({**built(), "task": "half \ud83d"}), encoding="ascii")
    found = read_document(path)
    assert found is not None
    assert found["task"] == r"half \ud83d"
    written = table.write_outputs([found], tmp_path / "out", csv=True, figure=True)
    assert len(written) == 7
    write_document(path, {**found, "task": "half \ud83d"})
    assert read_document(path) == found


@pytest.mark.parametrize("name", [".trained-x.json", "._trained-x.json", ".#trained-x.json"])
def test_hidden_files_are_no_distances(tmp_path: Path, name: str) -> None:
    (tmp_path / "mixing").mkdir()
    if name.startswith(".#"):
        (tmp_path / "mixing" / name).symlink_to("somebody@host.1234:5678")
    else:
        (tmp_path / "mixing" / name).write_bytes(b"\0\5\x16\7Mac OS X")
    assert read_distances(tmp_path) == ([], [])
