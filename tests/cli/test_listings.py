"""Listings and the look-up of one run."""

from pathlib import Path

import pytest
from least_record import LEAST

from msbench import datasets, models
from msbench.cli.listings import build_listing, group_runs
from msbench.config import DATASETS, MODELS
from msbench.config.data import ListOpsConfig
from msbench.config.selective import MambaConfig
from msbench.errors import UnknownName
from msbench.results.record import RunRecord, write_record
from msbench.runs.suite import load_suite, resolve_specs

pytestmark = pytest.mark.usefixtures("handmade_records")


def keep(results: Path, run_id: str, **values: object) -> RunRecord:
    record = RunRecord.model_validate(LEAST | {"run_id": run_id} | values)
    write_record(results / record.suite / record.task / record.model / run_id, record)
    return record


def test_models_suites_and_datasets_are_listed(tmp_path: Path) -> None:
    names = [row["model"] for row in build_listing("models", tmp_path).as_dicts()]
    assert names == list(MODELS)
    suites = {row["suite"]: row for row in build_listing("suites", tmp_path).as_dicts()}
    assert suites["listops"]["protocol"] == "paper"
    assert suites["quick"]["runs"] == 2
    datasets = {row["dataset"]: row["state"] for row in build_listing("datasets", tmp_path).as_dicts()}
    assert list(datasets) == list(DATASETS)
    assert datasets["imagenet"] == "msbench setup imagenet --from PATH"
    assert datasets["imdb"] in ("msbench setup imdb", "ready")


def test_models_are_counted_as_the_suite_listops_trains_them(tmp_path: Path) -> None:
    listing = build_listing("models", tmp_path)
    assert listing.warnings == []
    rows = {row["model"]: row for row in listing.as_dicts()}
    for spec in resolve_specs(load_suite("listops")):
        model = models.build(spec.model_name, spec.model, datasets.outline(spec.data), spec.seed)
        row = rows[spec.model_name]
        assert row["parameters"] == models.count_parameters(model)
        assert row["at"] == "listops"
        assert row["states"] == models.count_states_per_channel(spec.model_name, spec.model)
    assert {rows[name]["states"] for name in ("mamba", "msssm-s6", "msssm-s4")} == {128}
    assert {rows[name]["causal"] for name in ("mamba", "msssm-s6")} == {"yes"}
    assert rows["s5"]["causal"] == "no"
    assert [rows[name]["cost"] for name in ("mamba", "s4", "transformer")] == ["l", "l log l", "l^2"]
    assert rows["mamba"]["rows"] == ("Mamba",)
    cells = {row[0]: row for row in listing.cells()}
    assert cells["mamba"][-3:] == ("mamba", "Mamba: selective SSM", "Mamba")
    assert f"{rows['mamba']['parameters']:,}" in cells["mamba"]


def test_seeds_are_listed_as_they_are_typed(tmp_path: Path) -> None:
    keep(tmp_path, "0" * 12, seed=12345)
    assert 12345 in build_listing("runs", tmp_path).cells()[0]


def test_models_have_their_default_size_where_the_suite_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "listops.yaml").write_text("services: {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    listing = build_listing("models", tmp_path)
    row = next(row for row in listing.as_dicts() if row["model"] == "mamba")
    expected = models.build("mamba", MambaConfig(), datasets.outline(ListOpsConfig()), 0)
    assert (row["at"], row["states"], row["parameters"]) == (
        "defaults",
        16,
        models.count_parameters(expected),
    )
    assert "models have their default size" in listing.warnings[0]


def test_a_foreign_file_among_the_suites_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "compose.yaml").write_text("services: {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    listing = build_listing("suites", tmp_path)
    assert {"listops", "quick"} <= {row["suite"] for row in listing.as_dicts()}
    assert len(listing.warnings) >= 1
    assert "compose.yaml" in listing.warnings[0]


def test_runs_are_listed_whatever_became_of_them(tmp_path: Path) -> None:
    keep(tmp_path, "0" * 12, metrics={"test_accuracy": 0.1234})
    keep(tmp_path, "1" * 12, status="diverged")
    broken = tmp_path / "s" / "t" / "m" / ("2" * 12)
    broken.mkdir()
    (broken / "run.json").write_text("[]", encoding="utf-8")
    listing = build_listing("runs", tmp_path)
    assert [row["status"] for row in listing.as_dicts()] == ["finished", "diverged"]
    assert [row["test"] for row in listing.as_dicts()] == [0.1234, None]
    assert [row[listing.header.index("test")] for row in listing.cells()] == ["12.34%", None]
    assert len(listing.warnings) == 1


def test_a_run_is_listed_by_the_metric_of_its_task(tmp_path: Path) -> None:
    keep(tmp_path, "0" * 12, metrics={"test_accuracy": 0.9, "test_macro_auroc": 0.75}, metric="macro-auroc")
    [row] = build_listing("runs", tmp_path).as_dicts()
    assert (row["metric"], row["test"]) == ("macro-auroc", 0.75)


def test_runs_of_one_model_are_distinguished_by_their_settings(tmp_path: Path) -> None:
    settings: list[dict[str, object]] = [
        {"train": {"lr": 0.001}, "model": {"state": 16}},
        {"train": {"lr": 0.001}, "model": {"state": 16}, "seed": 1},
        {"train": {"lr": 0.004}, "model": {"state": 16}},
        {"train": {"lr": 0.001}, "model": {"state": 16, "raw_input": "sum", "pattern": ["a", "b"]}},
    ]
    for number, spec in enumerate(settings):
        keep(tmp_path, str(number) * 12, spec=spec)
    keep(tmp_path, "9" * 12, model="another", spec={"train": {"lr": 0.5}})
    listed = {row["run"][0]: row["with"] for row in build_listing("runs", tmp_path).as_dicts()}
    assert listed == {
        "0": "",
        "1": "",
        "2": "train.lr 0.004",
        "3": "model.pattern [a, b], model.raw_input sum",
        "9": "",
    }


def test_runs_are_compared_with_their_suite_however_many_differ(tmp_path: Path) -> None:
    planned = resolve_specs(load_suite("quick"))[0]
    true = planned.model_dump(mode="json")
    changed = {**true, "train": {**true["train"], "lr": 0.5}}
    for number, spec in enumerate([true, changed, changed, changed]):
        keep(
            tmp_path, str(number) * 12, suite="quick", task=planned.task, model=planned.model_name, spec=spec
        )
    listed = {row["run"][0]: row["with"] for row in build_listing("runs", tmp_path).as_dicts()}
    assert listed == {"0": "", **dict.fromkeys("123", "train.lr 0.5")}


def test_at_a_terminal_a_run_is_one_line_with_its_result(tmp_path: Path) -> None:
    keep(tmp_path, "0" * 12, metrics={"test_accuracy": 0.1234})
    keep(tmp_path, "1" * 12, status="diverged")
    keep(tmp_path, "2" * 12, task="u", metrics={"test_macro_auroc": 0.5}, metric="macro-auroc")
    keep(tmp_path, "3" * 12, task="v", status="failed")
    groups = list(group_runs(build_listing("runs", tmp_path)))
    assert [title for title, _, _ in groups] == ["s · t", "s · u", "s · v"]
    assert [header[3] for _, header, _ in groups] == ["accuracy", "macro-auroc", "accuracy"]
    assert [row[3] for _, _, rows in groups for row in rows] == ["12.34%", "diverged", "50.00%", "failed"]


def test_runs_of_an_unknown_suite_are_listed_with_a_note(tmp_path: Path) -> None:
    keep(tmp_path, "0" * 12, suite="gone")
    keep(tmp_path, "1" * 12, suite="quick")
    (note,) = build_listing("runs", tmp_path).notes
    assert note.startswith("gone: no suite of this name is known here")


def test_anything_else_is_an_unknown_listing(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'runs'"):
        build_listing("rums", tmp_path)
