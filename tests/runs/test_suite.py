"""Suites: where they are found, what is read, and what is refused."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from msbench.config import RunSpec
from msbench.config.layers import LocatedValues
from msbench.errors import ConfigError, UnknownName
from msbench.runs import suite as suite_module
from msbench.runs.suite import Suite, list_suites, load_suite, resolve_all, resolve_specs

SHIPPED = Path(__file__).resolve().parents[2] / "suites"

TEXT = """\
name: tiny
title: A tiny suite
protocol: scaled
seeds: [0, 1]
data:
  dataset: listops
  min_length: 5
  max_length: 60
model:
  d_model: 32
  layers: 2
train:
  lr: 1e-3
  epochs: 2
tasks:
  short:
    data: {max_length: 30}
    train: {lr: 2e-3}
  long:
models:
  msssm-s6:
    model: {levels: 2}
    train: {lr: 3e-3}
  mamba:
"""


def write(folder: Path, text: str = TEXT, name: str = "tiny.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Suite:
    return load_suite(write(tmp_path))


def refusal(path: Path, old: str, new: str) -> str:
    """What loading says once `old` is replaced by `new`, without the folder."""
    assert old in TEXT
    file = write(path, TEXT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_suite(file)
    return str(caught.value).replace(f"{path}/", "")


class TestLoad:
    def test_header(self, tiny: Suite) -> None:
        assert (tiny.name, tiny.title, tiny.protocol, tiny.caption) == ("tiny", "A tiny suite", "scaled", "")
        assert tiny.seeds == (0, 1)
        assert tiny.tasks == ("short", "long")
        assert tiny.models == ("msssm-s6", "mamba")
        assert tiny.reported is None

    def test_reported(self, tmp_path: Path) -> None:
        reported = "reported: {table: listops, columns: {short: 'Accuracy (%)'}}\n"
        found = load_suite(
            write(tmp_path, TEXT.replace("protocol: scaled", "protocol: paper") + reported)
        ).reported
        assert found is not None
        assert (found.table, found.columns) == ("listops", {"short": "Accuracy (%)"})

    def test_seeds_default_to_zero(self, tmp_path: Path) -> None:
        assert load_suite(write(tmp_path, TEXT.replace("seeds: [0, 1]\n", ""))).seeds == (0,)

    def test_lf_crlf_and_bom_are_one_suite(self, tmp_path: Path) -> None:
        path = write(tmp_path)
        first = load_suite(path)
        for data in (TEXT.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + TEXT.encode()):
            path.write_bytes(data)
            assert load_suite(path) == first

    def test_a_bare_name_is_looked_up_here_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write(tmp_path / "suites", TEXT.replace("tiny", "quick"), "quick.yaml")
        assert load_suite("quick").title == "A quick suite"
        assert load_suite("quick").source.name == "suites/quick.yaml"
        assert load_suite("quick", SHIPPED).title != "A quick suite"

    def test_a_bare_name_is_found_from_any_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load_suite("quick").name == "quick"

    @pytest.mark.parametrize("name", ["._tiny.yaml", ".#tiny.yaml", ".tiny.yaml.swp", ".yaml"])
    def test_hidden_files_are_no_suites(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write(tmp_path / "suites")
        known = [suite.name for suite in list_suites()]
        if name.startswith(".#"):
            (tmp_path / "suites" / name).symlink_to("somebody@host.1234:5678")
        else:
            (tmp_path / "suites" / name).write_bytes(b"\0\5\x16\7Mac OS X")
        assert [suite.name for suite in list_suites()] == known

    def test_a_path_is_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert load_suite("tiny.yaml") == load_suite("./tiny.yaml") == load_suite(Path("tiny.yaml"))
        with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
            load_suite("none.yaml")

    def test_an_unknown_name_offers_the_nearest(self) -> None:
        with pytest.raises(UnknownName, match="unknown suite 'quik'; did you mean 'quick'"):
            load_suite("quik")

    @pytest.mark.parametrize("name", ["..", "", "../quick", "quick/"])
    def test_no_name_reaches_elsewhere(self, name: str) -> None:
        with pytest.raises(ConfigError):
            load_suite(name, SHIPPED)

    def test_a_file_must_be_named_as_its_suite(self, tmp_path: Path) -> None:
        write(tmp_path, name="other.yaml")
        with pytest.raises(ConfigError, match=r"other\.yaml:1: name: must be 'other'.*not 'tiny'"):
            load_suite("other", tmp_path)


class TestAvailable:
    def test_is_sorted_by_name(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            write(tmp_path, TEXT.replace("name: tiny", f"name: {name}"), f"{name}.yaml")
        assert [suite.name for suite in list_suites(tmp_path)] == ["a", "b"]
        assert list_suites(tmp_path / "none") == []

    def test_a_broken_one_is_named(self, tmp_path: Path) -> None:
        write(tmp_path)
        write(tmp_path, "name: [", "broken.yaml")
        with pytest.raises(ConfigError, match=r"broken\.yaml:1: "):
            list_suites(tmp_path)

    def test_files_that_are_no_suites_can_be_passed_over(self, tmp_path: Path) -> None:
        write(tmp_path)
        write(tmp_path, "name: [", "broken.yaml")
        write(tmp_path, "services: {web: {image: nginx}}", "compose.yaml")
        (tmp_path / "folder.yaml").mkdir()
        errors: list[ConfigError] = []
        assert [suite.name for suite in list_suites(tmp_path, errors.append)] == ["tiny"]
        assert [str(error).splitlines()[0].partition(".yaml")[0] for error in errors] == [
            str(tmp_path / name) for name in ("broken", "compose", "folder")
        ]


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("[0, 1]", "null", "tiny.yaml:4: seeds: must be a list, not null"),
            ("[0, 1]", "0", "tiny.yaml:4: seeds: must be a list, not 0"),
            ("[0, 1]", '"0"', "tiny.yaml:4: seeds: must be a list, not '0'"),
            ("[0, 1]", "-1", "tiny.yaml:4: seeds: must be a list, not -1"),
            ("[0, 1]", "[]", "tiny.yaml:4: seeds: must not be empty"),
            ("[0, 1]", "[-1]", "tiny.yaml:4: seeds.0: must be greater than or equal to 0, not -1"),
            ("[0, 1]", '["0"]', "tiny.yaml:4: seeds.0: must be a whole number, not '0'"),
            ("[0, 1]", "[null]", "tiny.yaml:4: seeds.0: must be a whole number, not null"),
            ("[0, 1]", "[1e2]", "tiny.yaml:4: seeds.0: must be a whole number, not 100.0"),
            ("[0, 1]", "[true]", "tiny.yaml:4: seeds.0: must be a whole number, not true"),
            ("[0, 1]", "[3, 0, 3]", "tiny.yaml:4: seeds: a seed is repeated: 3, 0, 3"),
            ("name: tiny", "name: no way", "tiny.yaml:1: name: 'no way' is not a valid name: "),
            ("name: tiny", "name: 007", "tiny.yaml:1: name: must be text (in quotes), not 7"),
            ("name: tiny\n", "", "tiny.yaml: name: required key is missing"),
            (
                "scaled",
                "scald",
                "tiny.yaml:3: protocol: must be 'paper', 'scaled' or 'own', not 'scald'; did you mean",
            ),
            ("  long:", "  ../up:", "tiny.yaml:19: tasks.../up: '../up' is not a valid name: "),
            ("  long:", "  short:", "tiny.yaml:19: tasks.short: duplicate key; first on line 16"),
            ("  long:", "  long: 3", "tiny.yaml:19: tasks.long: must be a mapping, not 3"),
            (
                "  long:",
                "  long: {dat: {}}",
                "tiny.yaml:19: tasks.long.dat: unknown key; did you mean 'data'? ",
            ),
            (
                "  mamba:",
                "  mamba: {data: {dataset: imdb}}",
                "tiny.yaml:24: models.mamba: dataset is the same for all models of a task; put it under",
            ),
            ("  mamba:", "  mmba:", "tiny.yaml:24: unknown model 'mmba'; did you mean 'mamba'? known: "),
            ("  epochs: 2", "  epochs: 1e2", "tiny.yaml:14: train.epochs: must be a whole number, not 100.0"),
            ("lr: 1e-3", "lrr: 1e-3", "tiny.yaml:13: train.lrr: unknown key; did you mean 'lr'? known: "),
            ("lr: 3e-3", "lr: abc", "tiny.yaml:23: train.lr: must be a number, not 'abc'"),
            (
                "levels: 2",
                "levels: -2",
                "tiny.yaml:22: model.levels: must be greater than or equal to 0, not -2",
            ),
            ("levels: 2", "gate: full", "tiny.yaml:22: model.gate: unknown key of model 'msssm-s6'; did you"),
            (
                "max_length: 30",
                "max_length: 6",
                "tiny.yaml:7 and tiny.yaml:17: data: no length lies strictly",
            ),
            (
                "min_length: 5",
                "min_length: 5\n  max_depth: 2\n  max_args: 2",
                "tiny.yaml:7 and tiny.yaml:8 and tiny.yaml:9: data: no expression is longer than min_length",
            ),
            (
                "dataset: listops",
                "dataset: listop",
                "tiny.yaml:6: data.dataset: unknown dataset 'listop'; did",
            ),
            (
                "  dataset: listops\n",
                "",
                "tiny.yaml:5: data.dataset: required key is missing; "
                "known: aan, cifar10, imagenet, imdb, listops, mnist, pathfinder, ptbxl, recall",
            ),
        ],
    )
    def test_with_file_line_key_and_a_near_name(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        said = refusal(tmp_path, old, new)
        assert said.startswith(message)
        assert len(said.splitlines()) == 1

    def test_no_tasks(self, tmp_path: Path) -> None:
        block = TEXT[TEXT.index("tasks:") : TEXT.index("models:")]
        assert refusal(tmp_path, block, "tasks: {}\n").startswith("tiny.yaml:15: tasks: must not be empty")
        assert refusal(tmp_path, block, "") == "tiny.yaml: tasks: required key is missing"

    def test_a_reported_column_of_no_task(self, tmp_path: Path) -> None:
        said = refusal(tmp_path, "data:\n", "reported: {table: t, columns: {shor: x}}\ndata:\n")
        assert said == "tiny.yaml:5: reported.columns: no task 'shor'; did you mean 'short'?"

    def test_a_scaled_suite_is_never_compared_with_reported_numbers(self, tmp_path: Path) -> None:
        said = refusal(tmp_path, "data:\n", "reported: {table: t, columns: {short: x}}\ndata:\n")
        assert said.startswith(
            "tiny.yaml:3 and tiny.yaml:5: reported: numbers of protocol 'scaled' are never shown next to"
        )

    @pytest.mark.parametrize(
        ("claims", "message"),
        [
            ("{table: t, column: c, task: shor, base: mamba}", "no task 'shor'; did you mean 'short'?"),
            (
                "{table: t, column: c, task: short, base: mambo}",
                "no model 'mambo' in this suite; did you mean",
            ),
            ("{table: t, column: c, task: short, base: mamba, rows: {S4: s4d}}", "no model 's4d' in this"),
            ("{table: t, column: c, task: short, base: mamba, measure: distance}", "claims.0.measure: "),
            (
                ", ".join(["{table: t, column: c, task: short, base: mamba}"] * 2),
                "a table is claimed twice for",
            ),
        ],
    )
    def test_a_claim_on_what_there_is_not(self, tmp_path: Path, claims: str, message: str) -> None:
        said = refusal(tmp_path, "data:\n", f"claims: [{claims}]\ndata:\n")
        assert said.startswith("tiny.yaml:5")
        assert message in said

    @pytest.mark.parametrize("model", ["base: mamba", "base: msssm-s6, rows: {S4: mamba}"])
    def test_a_claim_on_a_model_of_other_tasks(self, tmp_path: Path, model: str) -> None:
        text = TEXT.replace("  mamba:", "  mamba: {only: [long]}")
        claim = f"claims: [{{table: t, column: c, task: short, {model}}}]\n"
        with pytest.raises(ConfigError, match="claims: mamba is not listed for short"):
            load_suite(write(tmp_path, text.replace("data:\n", f"{claim}data:\n")))

    def test_the_name_of_all_tables(self, tmp_path: Path) -> None:
        said = refusal(tmp_path, "name: tiny", "name: paper")
        assert said.startswith("tiny.yaml:1: name: 'paper' stands for the suites of all of the paper's")

    def test_every_fault_is_reported_at_once(self, tmp_path: Path) -> None:
        said = refusal(tmp_path, "lr: 1e-3\n  epochs: 2\n", "lrr: 1e-3\n  epochs: 0\n")
        assert [line.split(":")[1] for line in said.splitlines()] == ["14", "13"]

    def test_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="title: required key is missing"):
            load_suite(write(tmp_path, ""))

    @pytest.mark.parametrize("name", ["a" * 200, "a/b", "..", ".a", "a:b", '"a "'])
    def test_no_model_name_can_name_a_folder_elsewhere(self, tmp_path: Path, name: str) -> None:
        assert "is not a valid name" in refusal(tmp_path, "  mamba:", f"  {name}:")


def test_a_pipe_in_a_folder_of_suites_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    problems: list[str] = []
    found = list_suites(tmp_path, on_error=lambda error: problems.append(str(error)))
    assert [suite.name for suite in found] == ["tiny"]
    assert problems == [f"{tmp_path / 'pipe.yaml'}: cannot be read: not a regular file"]
    with pytest.raises(ConfigError, match="not a regular file"):
        load_suite("pipe", tmp_path)


def test_a_pipe_that_is_named_is_read() -> None:
    """As from a shell: ``msbench run <(sed s/a/b/ suite.yaml)``."""
    reading, writing = os.pipe()
    os.write(writing, TEXT.encode())
    os.close(writing)
    try:
        assert load_suite(f"/dev/fd/{reading}").name == "tiny"
    finally:
        os.close(reading)


def large(tasks: int, seeds: int) -> str:
    head, _, rest = TEXT.partition("tasks:\n")
    listed = "".join(f"  task-{number}:\n" for number in range(tasks))
    text = f"{head}tasks:\n{listed}models:{rest.partition('models:')[2]}"
    return text.replace("seeds: [0, 1]", f"seeds: [{', '.join(map(str, range(seeds)))}]")


def test_a_suite_of_millions_of_runs_is_refused_before_any_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_module, "resolve_specs", None)
    write(tmp_path, large(5000, 5000))
    problems: list[str] = []
    assert list_suites(tmp_path, on_error=lambda error: problems.append(str(error))) == []
    assert "tasks × models × seeds are 50,000,000 runs, of at most 10,000" in problems[0]


def test_reading_a_suite_plans_one_seed_and_is_linear_in_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved, seen, plain, select = [], 0, suite_module._resolve, Suite.select_sections

    def resolve(suite: Suite, task: str, model: str, seed: int, sets: Sequence[LocatedValues]) -> RunSpec:
        resolved.append((task, model, seed))
        return plain(suite, task, model, seed, sets)

    def count(suite: Suite, *path: str) -> LocatedValues:
        nonlocal seen
        layer = select(suite, *path)
        seen += len(layer.origins)
        return layer

    monkeypatch.setattr(suite_module, "_resolve", resolve)
    monkeypatch.setattr(Suite, "select_sections", count)
    suite = load_suite(write(tmp_path, large(200, 20)))
    assert suite.size == 200 * 2 * 20
    assert resolved == [(task, model, 0) for task in suite.tasks for model in suite.models]
    assert seen < 20 * len(resolved)


@pytest.mark.parametrize(
    ("model", "override", "key"),
    [
        ("mamba", "model.layers=1000000", "model.layers"),
        ("mamba-2x-param", "model.layers=5001", "model.layers"),
        ("msssm-s6", "model.levels=1000000", "model.levels"),
    ],
)
def test_a_model_of_endless_layers_is_refused_before_it_is_built(
    tiny: Suite, model: str, override: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: gives [\d,]+ layers and levels; 10,000 are the most"):
        resolve_specs(tiny, [model], overrides=[override])


def test_names_may_be_lists_and_patterns() -> None:
    suite = load_suite("listops")
    everything = resolve_all([suite])
    streams = [spec.model_name for spec in everything if spec.model_name.startswith("msssm-")]
    assert [spec.model_name for spec in resolve_all([suite], ["msssm-*"])] == streams
    listed = resolve_all([suite], ["mamba, s5", "msssm-s[46]"])
    assert {spec.model_name for spec in listed} == {"mamba", "s5", "msssm-s4", "msssm-s6"}
    assert resolve_all([suite], tasks=["list*"]) == everything
    both = resolve_all([suite, load_suite("quick")], ["mamb?"], ["listops,listops-short"])
    assert {spec.task for spec in both} == {"listops", "listops-short"}


@pytest.mark.parametrize(
    ("models", "tasks", "words"),
    [
        (["mssm-*"], [], r"unknown model pattern 'mssm-\*'; did you mean 'msssm-s[46]'"),
        (["mamba,mambo"], [], "unknown model 'mambo'; did you mean 'mamba'"),
        ([], ["listop-*"], r"unknown task pattern 'listop-\*'; did you mean 'listops-short'"),
        (["griffi*"], [], r"unknown model pattern 'griffi\*'"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(models: list[str], tasks: list[str], words: str) -> None:
    with pytest.raises(UnknownName, match=words):
        resolve_all([load_suite("quick")], models, tasks)
