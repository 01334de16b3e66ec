"""Set-up of data by name: of a dataset, or of all that a suite needs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msbench import datasets
from msbench.config import DATASETS, DataConfig, RunSpec
from msbench.config.layers import LocatedValues, merge_layers, parse_override, run_checks
from msbench.config.own import list_entry_points
from msbench.config.run import resolve_data
from msbench.console import say
from msbench.datasets.dataset import Dataset
from msbench.datasets.disk import distrust_stamps
from msbench.errors import ConfigError, DataError, ExitCode
from msbench.results.files import require_writable
from msbench.runs.amounts import show_amounts
from msbench.runs.plan import PlannedRun, plan_runs
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.signals import SignalFlag


@dataclass(frozen=True)
class DatasetSetup:
    """One dataset that was set up, or the reason why it was not."""

    config: DataConfig
    dataset: Dataset | None
    error: str = ""


@dataclass(frozen=True)
class SetupResult:
    """Outcome of ``msbench setup``; one dataset's failure does not stop the others."""

    items: list[DatasetSetup]

    @property
    def exit_code(self) -> ExitCode:
        """6 if any dataset is not ready."""
        return ExitCode.DATA if any(item.dataset is None for item in self.items) else ExitCode.OK

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows for ``--json``."""
        return [
            {
                "dataset": item.config.dataset,
                "config": item.config.model_dump(mode="json"),
                "ready": item.dataset is not None,
                "digest": item.dataset.digest if item.dataset else None,
                "manifest": dict(item.dataset.manifest) if item.dataset else None,
                "error": item.error or None,
            }
            for item in self.items
        ]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return header and rows for the terminal."""
        rows = [(item.config.dataset, _get_source(item.config), *_count_facts(item)) for item in self.items]
        return ("dataset", "source", "train", "validation", "test", "longest", "digest"), rows


def setup_by_name(
    names: list[str],
    source: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    check_only: bool,
    quiet: bool,
) -> SetupResult:
    """Set up, or with `check_only` verify, each dataset that `names` (datasets or suites) need.

    `source` is an archive or a folder to import; it goes with exactly one dataset. `overrides` are texts such
    as ``data.size=128``. For several datasets, the number of ready ones is printed at the end.
    """
    configs = run_checks(
        *(partial(_resolve_configs, name, source, overrides) for name in dict.fromkeys(names))
    )
    outcome = _set_up([config for each in configs for config in each], source, check_only, quiet)
    if len(outcome.items) > 1:
        ready = sum(item.dataset is not None for item in outcome.items)
        say(f"{ready} of {len(outcome.items)} {'verified' if check_only else 'set up'}")
    return outcome


def setup_datasets(configs: Iterable[DataConfig], *, quiet: bool) -> SetupResult:
    """Set up each of these datasets once."""
    return _set_up(_drop_duplicates(configs), None, check_only=False, quiet=quiet)


def setup_fetched_data(specs: Iterable[RunSpec], *, quiet: bool) -> ExitCode:
    """Set up missing data of these runs that cannot be generated: they may have to be fetched."""
    root, configs = datasets.data_root(), (spec.data for spec in specs)
    absent = (
        each for each in configs if _get_source(each) != "generated" and not datasets.is_ready(each, root)
    )
    return setup_datasets(absent, quiet=quiet).exit_code


def plan_with_data(
    specs: Sequence[RunSpec], results: Path, *, fresh: bool, quiet: bool
) -> tuple[list[PlannedRun], ExitCode]:
    """Set up missing data, so that processes that train do not each repeat it, and plan these runs.

    Returns also the exit code of the set-up. Raises ConfigError before it if results cannot be written.
    """
    root = datasets.data_root()
    entries = plan_runs(specs, results, root, fresh=fresh)
    missing = [entry.spec.data for entry in entries if entry.action == "set up"]
    if not missing:
        return entries, ExitCode.OK
    require_writable(results)
    code = setup_datasets(missing, quiet=quiet).exit_code
    return plan_runs(specs, results, root, fresh=fresh), code


def _set_up(configs: list[DataConfig], source: Path | None, check_only: bool, quiet: bool) -> SetupResult:
    if source is not None and len(configs) != 1:
        raise ConfigError("--from goes with one dataset, such as: msbench setup listops --from PATH")
    root = datasets.data_root()
    with SignalFlag() as signals:

        def work(config: DataConfig) -> Dataset:
            with show_amounts(quiet=quiet) as show:

                def progress(what: str, done: int, total: int) -> None:
                    signals.check()
                    show(what, done, total)

                if check_only:
                    with distrust_stamps(progress):
                        return datasets.open_dataset(config, root)
                return datasets.setup(config, root, source=source, progress=progress)

        return SetupResult([_try_setup(config, work, signals) for config in configs])


def _resolve_configs(name: str, source: Path | None, overrides: Sequence[str]) -> list[DataConfig]:
    if name not in (*DATASETS, *list_entry_points("dataset")):
        return _drop_duplicates(spec.data for spec in resolve_specs(load_suite(name), overrides=overrides))
    start: dict[str, Any] = {"dataset": name}
    if (
        source is not None and name in DATASETS and "source" in DATASETS[name].model_fields
    ):  # other datasets are always imported
        start["source"] = "release"
    merged = merge_layers(LocatedValues({"data": start}, {}, name), *map(parse_override, overrides))
    for key in merged.values:
        if key != "data":
            raise ConfigError(f"--set {key}: a dataset alone has keys that begin with data.")
    return [resolve_data(merged.at("data"))]


def _drop_duplicates(configs: Iterable[DataConfig]) -> list[DataConfig]:
    return list({config.model_dump_json(): config for config in configs}.values())


def _try_setup(
    config: DataConfig, work: Callable[[DataConfig], Dataset], signals: SignalFlag
) -> DatasetSetup:
    try:
        dataset = work(config)
        # Notes go into records, as differences from the published data; remarks are on the protocol.
        for note in (*dataset.manifest.get("notes", ()), *dataset.manifest.get("remarks", ())):
            say(f"{config.dataset}: {note}")
        return DatasetSetup(config, dataset)
    except DataError as error:
        # A signal to the whole process group can end the workers before it is noticed here.
        signals.check()
        say(f"msbench: {error}")
        return DatasetSetup(config, None, str(error))


def _get_source(config: DataConfig) -> str:
    generated = datasets.get_dataset(config).is_generated(config)
    return "generated" if generated else str(getattr(config, "source", ""))


def _count_facts(item: DatasetSetup) -> tuple[str, ...]:
    if item.dataset is None:
        return ("not ready", "", "", "", "")
    counts = [f"{len(item.dataset.splits[name]):,}" for name in ("train", "validation", "test")]
    return (*counts, f"{item.dataset.info.longest:,}", item.dataset.digest[:12])
