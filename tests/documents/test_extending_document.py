"""`docs/extending.md`: its files, copied out of the page, train, resume, and are reported and judged."""

import random
import re
import signal
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from msbench import datasets
from msbench.analysis.mixing.command import measure_runs
from msbench.analysis.mixing.options import MeasureOptions, MixingOptions
from msbench.cli import app
from msbench.config.own import list_entry_points
from msbench.results.store import read_records
from msbench.runs.plan import plan_runs
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.loop import Trainer

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
SUITE, MODELS = "my-suite.yaml", ("my-gru", "my-net")
NET = '  my-net: {use: "./my_net.py:build"}\n'


def write_recordings(folder: Path) -> None:
    """Recordings whose first column gives the class away, of 5 to 30 positions."""
    draw = random.Random(0)
    for split, count in (("train", 12), ("validation", 6), ("test", 6)):
        for offset, label in enumerate(("circle", "line", "rest")):
            place = folder / split / label
            place.mkdir(parents=True)
            for number in range(count):
                rows = [
                    f"{3 * offset + draw.random()},{draw.random()},{draw.random()}\n"
                    for _ in range(draw.randint(5, 30))
                ]
                (place / f"{number}.csv").write_text("x,y,z\n" + "".join(rows), encoding="utf-8")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, and recordings."""
    folder = tmp_path_factory.mktemp("extending")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_recordings(folder / "recordings")
    return folder


@pytest.fixture
def page(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the current folder."""
    monkeypatch.chdir(copied)
    return copied


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done.stdout + done.stderr


def test_every_command_of_the_page_is_tried_here() -> None:
    (commands,) = re.findall(r"```\n(msbench .*?)```", TEXT, re.DOTALL)
    source = Path(__file__).read_text(encoding="utf-8")
    for command in commands.splitlines():
        verb = command.split()[1]
        assert f'call("{verb}", ' in source or f'invoke(app, ["{verb}"' in source, command


@pytest.mark.usefixtures("page")
def test_the_page_from_set_up_to_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = call("run", SUITE, "--dry-run")
    assert "gestures is not set up yet: msbench setup my-suite.yaml --from PATH" in planned
    assert "models.my-gru (my-suite.yaml:" in planned
    missing = call("run", SUITE, "--quiet", code=6)
    assert "the data are not available" in missing
    call("setup", SUITE, "--from", "recordings")

    interrupted = Trainer._report

    def stop(trainer: Trainer) -> None:
        interrupted(trainer)
        if trainer.progress.step == 8:
            trainer.signals.received = signal.SIGTERM

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_report", stop)
        call("run", SUITE, "--model", "my-gru", "--seed", "0", "--quiet", "--results", "stopped", code=143)
    assert "resume" in call("explain", SUITE, "--model", "my-gru", "--results", "stopped")
    call("run", SUITE, "--model", "my-gru", "--seed", "0", "--quiet", "--results", "stopped")
    call("run", SUITE, "--quiet")
    (resumed,), _ = read_records(Path("stopped"))
    records, warnings = read_records(Path("results"))
    assert warnings == []
    found = {(record.model, record.seed): record for record in records}
    assert set(found) == {(model, 0) for model in (*MODELS, "mamba")}
    assert resumed.resumed == 1
    assert resumed.run_id == found["my-gru", 0].run_id
    assert resumed.metrics == found["my-gru", 0].metrics
    assert {record.steps for record in records} == {20}
    assert found["my-gru", 0].states_per_channel == 1

    report = call("report", SUITE)
    assert all(name in report for name in MODELS)
    shown = call("show", "my-suite:gestures:my-net:0", "--suite", SUITE)
    assert "msbench run my-suite.yaml --model my-net --task gestures --seed 0" in shown
    assert "id  the same" in shown
    call("diff", "my-suite:gestures:my-net:0", "my-suite:gestures:my-gru:0")
    listed = call("list", "models", SUITE)
    assert re.search(r"my-gru +1 +yes", listed)
    assert re.search(r"my-net +0 +no", listed)
    call("baseline", SUITE)
    judged = CliRunner().invoke(app, ["check", SUITE])
    assert judged.exit_code in (0, 5), judged.stderr  # few examples may decide nothing
    assert all(re.search(rf"gestures +{name} +(pass|inconclusive)", judged.stdout) for name in MODELS)
    assert "layer" in call("mixing", SUITE, "--model", "my-gru", "--quiet", "--examples", "3")

    specs = resolve_specs(load_suite(SUITE), MODELS, seeds=[0])
    documents, missing_runs = measure_runs(
        specs, MixingOptions(results=Path("results"), measure=MeasureOptions(examples=3), quiet=True)
    )
    assert missing_runs == []
    assert [(each["causal"], len(each["layers"])) for each in documents] == [(True, 2), (False, 1)]
    for each in documents:
        assert each["mean"] > 0
        assert all(layer["future_share"] < 1e-6 for layer in each["layers"])


@pytest.mark.usefixtures("page")
def test_source_of_the_dataset_decides_its_folder_and_not_where_it_is(tmp_path: Path) -> None:
    call("setup", SUITE, "--from", "recordings")
    spec = resolve_specs(load_suite(SUITE), ["mamba"], seeds=[0])[0]
    known = plan_runs([spec], Path("results"), datasets.data_root())[0]
    for name in FILES:
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    there = resolve_specs(load_suite(tmp_path / SUITE), ["mamba"], seeds=[0])[0]
    assert plan_runs([there], Path("results"), datasets.data_root())[0].run_id == known.run_id
    other = tmp_path / "other"
    other.mkdir()
    for name in FILES:
        text = FILES[name].replace("np.concatenate(recordings)", "2 * np.concatenate(recordings)")
        (other / name).write_text(text, encoding="utf-8")
    edited = resolve_specs(load_suite(other / SUITE), ["mamba"], seeds=[0])[0]
    assert not datasets.is_ready(edited.data, datasets.data_root())
    assert datasets.command(edited.data) == f"msbench setup {other / SUITE} --from PATH"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/line/0.csv", "x,y,z\n1,2,3\n1,b,3\n", r"0.csv, line 3: must have a number in x, y, z"),
        ("train/line/0.csv", "x,y,z\n", r"0.csv: has 0 positions, of 1 to 1000"),
        (
            "train/cross/0.csv",
            "x,y,z\n1,2,3\n",
            r"DATASET: ValueError: .*my_gestures.py, line \d+",
        ),
    ],
)
def test_faulty_files_are_one_error_and_leave_nothing(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, message: str
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    write_recordings(tmp_path / "bad")
    path = tmp_path / "bad" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    said = call("setup", str(page / SUITE), "--from", str(tmp_path / "bad"), code=6)
    assert re.search(message, said)
    assert list((tmp_path / "data").rglob("*.npy")) == []


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


def test_fashion_mnist_is_read_by_torchvision_in_its_true_layout(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    draw, kept = np.random.default_rng(0), {}
    for split, count in (("train", 40), ("t10k", 20)):
        images = draw.integers(256, size=(count, 28, 28)).astype(np.uint8)
        kept[split] = images, (np.arange(count) % 10).astype(np.uint8)
        write_idx(raw / f"{split}-images-idx3-ubyte", images)
        write_idx(raw / f"{split}-labels-idx1-ubyte", kept[split][1])
    suite = FILES[SUITE].replace(
        '{use: "./my_gestures.py:DATASET", standardise: true}',
        '{use: "./my_fashion.py:DATASET", permuted: true}',
    )
    suite = suite.replace(NET, "").replace("epochs: 4, max_steps: 20", "epochs: 1")
    file = page / "fashion.yaml"
    file.write_text(suite, encoding="utf-8")
    call("setup", str(file), "--from", str(tmp_path))
    call(
        "run",
        str(file),
        "--quiet",
        "--model",
        "my-gru",
        "--seed",
        "0",
        "--results",
        str(tmp_path / "results"),
    )
    (record,), _ = read_records(tmp_path / "results")
    assert record.finished
    assert record.spec["data"]["dataset"] == "fashion-mnist"
    spec = resolve_specs(load_suite(file), ["my-gru"], seeds=[0])[0]
    found = datasets.open_dataset(spec.data, datasets.data_root())
    assert found.splits["test"].targets.tolist() == kept["t10k"][1].tolist()
    batch = found.splits["test"].batch(np.arange(20))
    pixels = np.sort(batch.inputs[..., 0] * 0.3081 * 255 + 0.1307 * 255, axis=1)
    assert np.allclose(pixels, np.sort(kept["t10k"][0].reshape(20, 784), axis=1), atol=1e-3)
    assert found.manifest["licence"] == "MIT"


def test_a_package_gives_names_to_its_model_and_its_dataset(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    for name in ("my_gru.py", "my_gestures.py"):
        (package / name).write_text(FILES[name], encoding="utf-8")
    (found,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    text = re.sub(r'\[project.entry-points."(.*)"\]', r"[\1]", found).replace('"', "")
    folder = tmp_path / "my_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: my-package\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    list_entry_points.cache_clear()
    try:
        call("setup", "gestures", "--from", str(page / "recordings"))
        assert re.search(r"gestures +ready", call("list", "datasets"))
        assert re.search(r"my-gru +1 +yes", call("list", "models"))
        text = FILES[SUITE].replace('use: "./my_gestures.py:DATASET"', "dataset: gestures")
        text = text.replace('use: "./my_gru.py:FAMILY", ', "").replace(NET, "")
        (tmp_path / SUITE).write_text(text, encoding="utf-8")
        planned = call("explain", str(tmp_path / SUITE), "--results", str(tmp_path / "results"))
        assert "no run yet" in planned
        call("explain", "quick", "--model", "my-gru", "--task", "listops-short", code=0)
        unknown = call("explain", "quick", "--model", "my-gruu", code=2)
        assert "unknown model 'my-gruu'; did you mean 'my-gru'?" in unknown
    finally:
        list_entry_points.cache_clear()
