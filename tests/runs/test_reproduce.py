"""The printed command is carried out: it gives the same run."""

import json
import shlex
from pathlib import Path

import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner

from msbench import environment
from msbench.cli import app
from msbench.config import RunSpec
from msbench.results.record import RunRecord, read_record
from msbench.runs.reproduce import ReproductionBuilder, build_reproduction
from msbench.runs.suite import Suite, load_suite, resolve_specs

SHORT = "train.max_steps=1"


@pytest.fixture(autouse=True)
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Suites are found by name, as in a checkout."""
    folder = tmp_path / "suites"
    folder.mkdir()
    text = TINY_SUITE.replace("{epochs: 3,", "{epochs: 1, clip: 1.0,")
    (folder / "tiny.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def msbench(*words: str) -> RunRecord:
    """The one record of ``msbench run``."""
    done = CliRunner().invoke(app, [*words, "--json", "--quiet"])
    assert done.exit_code == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return RunRecord.model_validate(record)


def made_of(spec: RunSpec) -> RunRecord:
    """The record of a finished run of this spec, as far as a command needs it."""
    place = {"suite": spec.suite, "task": spec.task, "model": spec.model_name, "seed": spec.seed}
    asked = {"spec": spec.model_dump(mode="json"), "spec_digest": spec.digest}
    other = {"run_id": "0" * 12, "status": "finished", "data_digest": "b", "source_digest": "c"}
    return RunRecord.model_validate(place | asked | other)


@pytest.mark.parametrize(
    ("model", "sets"),
    [
        ("mamba", ()),
        ("mamba", ("train.lr=5e-4",)),  # float
        ("mamba", ("train.bucketing=false", "model.skip=false")),
        ("mamba", ("train.clip=null",)),  # the suite has 1.0
        ("mamba", ("model.norm=batch", 'model.pooling="last"', "model.d_model=16")),
        ("lstm", ("model.layers=2",)),  # not listed by the suite
        ("msssm-s6", ("data.test=10", "data.max_args=4")),
    ],
)
def test_the_command_gives_the_same_run(tmp_path: Path, model: str, sets: tuple[str, ...]) -> None:
    typed = ("run", "tiny", "--model", model, "--seed", "3")
    given = [word for text in (SHORT, *sets) for word in ("--set", text)]
    record = msbench(*typed, *given, "--results", "first")

    found = build_reproduction(record)
    assert found.reason == ""
    assert sorted(change.name for change in found.departures) == sorted(
        text.partition("=")[0] for text in (SHORT, *sets)
    )
    program, *words = shlex.split(found.line)
    assert program == "msbench"
    assert msbench(*words).run_id == record.run_id
    assert read_record(tmp_path / "results" / "tiny" / "listops-tiny" / model / record.run_id)


def test_a_planned_run_needs_no_settings(suites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.THREAD_VARIABLES:  # its command would be asked for as many
        monkeypatch.delenv(name, raising=False)
    record = msbench("run", "tiny", "--model", "mamba", "--results", "first")
    found = build_reproduction(record, results=Path("odd place's"))
    assert found.departures == ()
    assert found.line == (
        "msbench run tiny --model mamba --task listops-tiny --seed 0 --results 'odd place'\"'\"'s'"
    )
    moved = suites / "my file.yaml"
    (suites / "tiny.yaml").rename(moved)
    nowhere = build_reproduction(record)
    assert nowhere.command == ()
    assert "unknown suite 'tiny'" in nowhere.reason
    assert "--suite FILE" in nowhere.reason
    by_file = build_reproduction(record, moved)
    assert shlex.split(by_file.line)[2] == str(moved)
    assert msbench(*shlex.split(by_file.line)[1:]).run_id == record.run_id


def test_many_records_have_the_same_commands_and_each_suite_is_read_once(
    suites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = resolve_specs(load_suite("tiny"), ["mamba"])[0]
    records = [made_of(planned.model_copy(update={"seed": seed})) for seed in range(3)]
    records.append(made_of(resolve_specs(load_suite("tiny"), ["lstm"], overrides=["train.lr=0.5", SHORT])[0]))
    one_by_one = [build_reproduction(record) for record in records]
    (suites / "tiny.yaml").rename(suites / "other name.yaml")

    read: list[str] = []

    def reported(name: str) -> Suite:
        read.append(name)
        return load_suite(name)

    monkeypatch.setattr("msbench.runs.reproduce.load_suite", reported)
    commands = ReproductionBuilder(["suites/other name.yaml", "table-2"])
    found = [commands(record) for record in (*records, *records)]
    assert [each.line.replace("'suites/other name.yaml'", "tiny") for each in found] == [
        each.line for each in (*one_by_one, *one_by_one)
    ]
    assert read == ["suites/other name.yaml", "table-2"]


@pytest.mark.usefixtures("suites")
def test_devices_and_pieces_of_batches_are_in_the_command_and_mark_nothing() -> None:
    record = made_of(resolve_specs(load_suite("tiny"), ["mamba"])[0])
    assert "--devices" not in build_reproduction(record).line
    how = {"devices": 2, "micro_batch": "auto"}
    found = build_reproduction(record.model_copy(update={"environment": how}))
    assert found.line == (
        "msbench run tiny --model mamba --task listops-tiny --seed 0 --set train.micro_batch=auto --devices 2"
    )
    assert found.departures == ()


@pytest.mark.parametrize("name", ["gone", "./tiny.yaml", "tiny; ls", ""])
def test_a_suite_that_a_record_names_is_looked_up_by_its_name_alone(suites: Path, name: str) -> None:
    record = made_of(resolve_specs(load_suite("tiny"), ["mamba"])[0]).model_copy(update={"suite": name})
    (suites / "tiny.yaml").rename(suites.parent / "tiny.yaml")
    for found in (build_reproduction(record), ReproductionBuilder()(record)):
        assert found.command == ()
        assert repr(name) in found.reason


def test_settings_that_cannot_be_asked_for_have_a_reason_and_no_command(suites: Path) -> None:
    record = msbench("run", "tiny", "--model", "mamba", "--set", SHORT)
    gone = record.model_copy(update={"spec": {**record.spec, "model": {**record.spec["model"], "gone": 1}}})
    assert build_reproduction(gone).command == ()
    assert "unknown key of model 'mamba'" in build_reproduction(gone).reason

    other = record.model_copy(update={"spec_digest": "0" * 64})
    assert build_reproduction(other).command == ()
    assert "no --set gives these settings now" in build_reproduction(other).reason

    text = (suites / "tiny.yaml").read_text(encoding="utf-8")
    (suites / "tiny.yaml").write_text(text.replace("listops-tiny", "listops-small"), encoding="utf-8")
    assert "unknown task 'listops-tiny'" in build_reproduction(record).reason
