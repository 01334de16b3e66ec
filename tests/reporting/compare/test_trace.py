"""A cell followed back to its reported number and its runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY_SUITE
from made_runs import keep

from msbench import datasets
from msbench.config import RunSpec
from msbench.reporting.compare.lookup import find_cell
from msbench.reporting.compare.page import Facts, Grid, print_page
from msbench.reporting.compare.trace import Trace, build_document, build_page, explain_value, trace_cell
from msbench.runs.suite import load_suite, resolve_specs

pytestmark = pytest.mark.usefixtures("handmade_records")


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny suite of three seeds, found by name; results lie in the default folder."""
    (tmp_path / "suites").mkdir()
    text = TINY_SUITE.replace("seeds: [0]", "seeds: [0, 1, 2]")
    (tmp_path / "suites" / "tiny.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(spec: RunSpec, run_id: str, value: float | None, **values: Any) -> None:
    """A run of this spec in the folder ``results``, finished where it has a value."""
    base: dict[str, Any] = {
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
    }
    base |= {"spec": spec.model_dump(mode="json"), "spec_digest": spec.digest, "n_test": 20}
    base |= {"ended": "2026-02-01T00:00:00+00:00", "environment": {"device": "cpu"}}
    base |= {"status": "diverged"} if value is None else {"metrics": {"test_accuracy": value}}
    keep(Path("results"), run_id * 12, **(base | values))


def follow(*words: str, data_root: Path | None = None) -> Trace:
    return trace_cell(find_cell(words, Path("results")), Path("results"), data_root or Path("no data"))


def by_id(found: Trace) -> dict[str, str]:
    """Why each run is not used, by the first character of its id."""
    return {record.run_id[0]: reason for source in found.sources for record, reason in source.unused}


@pytest.mark.usefixtures("suites")
def test_every_run_is_in_the_mean_or_has_its_reason() -> None:
    first, second, third = resolve_specs(load_suite("tiny"), ["mamba"])
    fourth = resolve_specs(load_suite("tiny"), ["mamba"], seeds=[7])[0]
    changed = resolve_specs(load_suite("tiny"), ["mamba"], overrides=["train.lr=0.5"])[0]
    stored(first, "1", 0.25)
    stored(second, "2", 0.5, environment={"device": "cuda", "gpus": ["H100"]})
    stored(third, "3", None, failure={"type": "Diverged", "message": "not finite at step 3"})
    stored(first, "4", 0.9, data_digest="z" * 64, ended="2026-01-01T00:00:00+00:00")
    stored(second, "5", 0.9, source_digest="y" * 64, ended="2026-01-01T00:00:00+00:00")
    stored(first, "6", 0.9, ended="2026-01-01T00:00:00+00:00")
    stored(changed, "7", 0.9)
    stored(fourth, "8", 0.9)
    stored(resolve_specs(load_suite("tiny"), ["msssm-s6"])[0], "9", 0.9)

    found = follow("tiny:mamba")
    (source,) = found.sources
    assert [record.run_id[0] for record in source.used] == ["1", "2", "8"]
    assert source.values == (25.0, 50.0, 90.0)
    assert by_id(found) == {
        "3": "diverged: not finite at step 3",
        "4": "on other data: zzzzzzzz, not b",
        "5": "from other source code: yyyyyyyy, not c",
        "6": "an older run of its seed",
        "7": "modified: train.lr 0.01 → 0.5",
    }
    assert (
        explain_value(found)
        == "(25.00 + 50.00 + 90.00) / 3 = 55.00; ±: sample standard deviation over seeds (divisor n - 1)"
    )
    again = "msbench run tiny --model mamba --task listops-tiny"
    what = dict(source.commands)
    assert what["data"].startswith("msbench setup listops --set data.train=60")
    assert what["runs"] == f"{again} --seed 0 --seed 1 --seed 7"
    assert what["missing seeds"] == f"{again} --seed 2"
    assert found.printed is None

    document = json.loads(json.dumps(build_document(found), allow_nan=False))
    assert document["measured"]["value"] == pytest.approx(55.0)
    assert document["measured"]["n"] == 3
    assert [run["value"] for run in document["sources"][0]["runs"]] == [25.0, 50.0, 90.0]
    assert [run["hardware"] for run in document["sources"][0]["runs"]] == ["cpu", "H100", "cpu"]
    assert len(document["sources"][0]["set_aside"]) == 5


@pytest.mark.usefixtures("suites")
def test_runs_are_asked_for_as_they_were_executed() -> None:
    first, second, third = resolve_specs(load_suite("tiny"), ["mamba"])
    single = {"device": "cpu", "threads": 1, "threads_given": True}
    stored(first, "1", 0.25, environment=single)
    stored(
        second, "2", 0.5, environment={"device": "cpu", "threads": 8, "devices": 2, "threads_given": False}
    )
    stored(third, "3", 0.5, environment=single)
    again = "msbench run tiny --model mamba --task listops-tiny"
    commands = [line for what, line in follow("tiny:mamba").sources[0].commands if what == "runs"]
    assert commands == [f"{again} --seed 0 --seed 2 --threads 1", f"{again} --seed 1 --devices 2"]


@pytest.mark.usefixtures("suites")
def test_seeds_that_lack_are_asked_for_as_the_others_were_executed() -> None:
    executed = {"device": "cpu", "threads": 1, "threads_given": True, "micro_batch": 4}
    stored(resolve_specs(load_suite("tiny"), ["mamba"])[0], "1", 0.25, environment=executed)
    again, how_again = (
        "msbench run tiny --model mamba --task listops-tiny",
        "--set train.micro_batch=4 --threads 1",
    )
    what = dict(follow("tiny:mamba").sources[0].commands)
    assert what["runs"] == f"{again} --seed 0 {how_again}"
    assert what["missing seeds"] == f"{again} --seed 1 --seed 2 {how_again}"


@pytest.mark.usefixtures("suites")
def test_a_page_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for number, spec in enumerate(resolve_specs(load_suite("tiny"), ["mamba"])):
        gpu = {"device": "cuda", "gpus": ["NVIDIA H100 80GB HBM3"]}
        stored(spec, str(number), 0.25 * number, environment=gpu)
    found = follow("tiny:mamba:listops-tiny")
    print_page(part for part in build_page(found) if isinstance(part, Grid))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(len(line) <= 80 for line in lines)
    (last,) = [part for part in build_page(found) if part.title.startswith("to reproduce it")]
    assert isinstance(last, Facts)
    assert [name for name, _ in last.pairs] == ["data", "runs", ""]
    assert last.pairs[-1][1] == "(completed runs are kept where they are; --fresh trains them anew)"
    assert last.whole == {"data", "runs"}


@pytest.mark.usefixtures("suites")
def test_data_that_are_here_need_no_set_up(data_folder: Path) -> None:
    spec = resolve_specs(load_suite("tiny"), ["mamba"])[0]
    datasets.setup(spec.data, data_folder)
    stored(spec, "1", 0.25)
    found = follow("tiny:mamba", data_root=data_folder)
    assert [what for what, _ in found.sources[0].commands] == ["runs", "missing seeds"]
    assert explain_value(found) == "one run, so no ±"
    now = found.sources[0].now
    assert now is not None
    assert now.run_id not in (None, "1" * 12)


@pytest.mark.usefixtures("suites")
def test_a_reported_number_has_its_file_line_and_note() -> None:
    found = follow("4:Transformer:text")
    assert found.printed is not None
    assert (found.printed.cell.value, found.printed.cell.label) == ("61.95", "table:lra")
    line = found.printed.path.read_text(encoding="utf-8").splitlines()[found.printed.line - 1]
    assert line.startswith("lra,table:lra,,Transformer,transformer,Text,61.95")
    document = build_document(found)
    assert (document["reported"]["line"], document["measured"]["status"]) == (found.printed.line, "missing")
    assert document["measured"]["notes"][0].startswith("reported: as in the HGRN2 figure")
    assert document["sources"][0]["commands"][-1] == {
        "what": "runs",
        "command": "msbench run lra --model transformer --task text --seed 0",
    }


@pytest.mark.usefixtures("suites")
def test_an_average_is_traced_to_each_of_its_tasks() -> None:
    values = {"text": 0.5, "retrieval": 0.6, "image": 0.7, "pathfinder": 0.8, "pathx": 0.9}
    for number, (task, value) in enumerate(values.items()):
        stored(resolve_specs(load_suite("lra"), ["mamba"], [task])[0], str(number), value)
    found = follow("lra:mamba:avg")
    assert [source.task for source in found.sources] == list(values)
    assert [source.values[0] / 100 for source in found.sources] == pytest.approx(list(values.values()))
    assert build_document(found)["measured"]["value"] == pytest.approx(70)
    assert explain_value(found).startswith("mean of the means of text, retrieval, image, pathfinder, pathx")

    stored(resolve_specs(load_suite("listops"), ["mamba"])[0], "a", 0.1)
    six = follow("lra:mamba:average-of-6")
    assert [source.task for source in six.sources] == [*values, "listops"]
    assert six.sources[-1].values == (10.0,)
    assert "reported" in build_document(six)
    assert build_document(six)["reported"] is None


@pytest.mark.usefixtures("suites")
def test_a_mixing_distance_is_traced_to_its_measurement() -> None:
    spec = resolve_specs(load_suite("listops"), ["mamba"])[0]
    stored(spec, "1", 0.4)
    measured = {"schema_version": 1, "run_id": "1" * 12, "trained": True, "default_options": True}
    measured |= {"options_digest": "d", "mean": 12.5, "sd": 2.0, "layers": [], "examples": 16, "created": "1"}
    folder = Path("results") / "listops" / "listops" / "mamba" / ("1" * 12) / "mixing"
    folder.mkdir()
    (folder / "d.json").write_text(json.dumps(measured), encoding="utf-8")
    found = follow("6:mamba")
    assert found.sources[0].values == (12.5,)
    assert dict(found.sources[0].commands)["distances"] == (
        "msbench mixing listops --model mamba --task listops --seed 0"
    )
    assert "root mean square of their own" in explain_value(found)


@pytest.mark.usefixtures("suites")
def test_a_trivial_rule_has_no_runs_of_its_own() -> None:
    stored(resolve_specs(load_suite("tiny"), ["mamba"])[0], "1", 0.25, baselines={"majority": 0.1})
    found = follow("tiny:majority")
    assert found.sources == ()
    assert explain_value(found) == "counted on the test split; records of runs have it"
    assert build_document(found)["measured"]["value"] == 10.0


def test_a_suite_that_is_named_by_its_file_is_named_so_in_commands(suites: Path) -> None:
    stored(resolve_specs(load_suite("tiny"), ["mamba"])[0], "1", 0.25)
    moved = suites / "elsewhere.yaml"
    shutil.move(suites / "suites" / "tiny.yaml", moved)
    found = follow(str(moved), "mamba", "listops-tiny")
    assert dict(found.sources[0].commands)["runs"].startswith(f"msbench run {moved} --model mamba")
