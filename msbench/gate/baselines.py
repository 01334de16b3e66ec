"""The command ``msbench baseline``: record results as a baseline."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msbench import console
from msbench.config.layers import load_yaml
from msbench.errors import ConfigError, Undecided
from msbench.gate import baseline_file
from msbench.gate.baseline_file import BaselineEntry
from msbench.gate.collect import BaselineChange, collect, merged, places
from msbench.results import store
from msbench.results.files import list_shared_folders, update_file
from msbench.runs import suite
from msbench.runs.suite import Suite

HEADER = ("task", "model", "hardware", "before", "now", "change", "margin")


def find_baseline(results: Path, name: str) -> Path | None:
    """Find the suite's baseline: in `results`, in the checkout, or in an installed package; else None."""
    return next(iter(_baselines(results, name)), None)


def _baselines(results: Path, name: str) -> list[Path]:
    """Return all baselines of the suite; the first is used, and hides the others."""
    paths = (
        path
        for folder in list_shared_folders(results, "baseline")
        if (path := folder / f"{name}.yaml").is_file()
    )
    return list({path.resolve(): path for path in reversed(list(paths))}.values())[::-1]


def hidden_baselines(chosen: Suite, results: Path) -> Iterator[str]:
    """Yield a line for each baseline that the used one hides, if their expectations differ."""
    used, *hidden = _baselines(results, chosen.name) or [results]
    for path in hidden:
        mine = dict(places(baseline_file.parsed(load_yaml(used), chosen).cells))
        try:
            other = baseline_file.parsed(load_yaml(path), chosen)
        except ConfigError as error:  # possibly of another version of the suite
            yield f"{used} hides {path}, which cannot be compared: {error}"
            continue
        differing = [
            f"{' · '.join(place)}: {_words(mine.get(place))} here, {_words(there)} there"
            for place, there in places(other.cells)
            if place not in mine or mine[place].values != there.values
        ]
        if differing:
            yield f"{used} hides {path}, which expects other results: {'; '.join(differing)}"


def write(
    name: str, results: Path, out: Path | None = None, *, replace: bool = False, any_hardware: bool = False
) -> tuple[Path, list[BaselineChange]]:
    """Write the baseline of a suite from its runs, and return the file and the changes.

    The file is `out`, or ``baseline/<suite>.yaml`` in `results`. New entries are added to those of this file,
    or of the committed or installed baseline that it would hide. Without `replace` an entry with other
    numbers is kept, and ConfigError shows the difference. Raises Undecided if no run gives an entry.
    """
    chosen = suite.load(name)
    path = out or results / "baseline" / f"{chosen.name}.yaml"
    stored = store.read_runs(results, chosen.name)
    new = collect(chosen, stored, results, any_hardware=any_hardware)
    for text in (*stored.warnings, *new.left_out, *new.warnings):
        console.say(f"msbench: {text}")
    if not new.entries:
        raise Undecided(f"{results}: no run under the protocol of {chosen.name} has a result to write down")
    with update_file(path, "--out") as write_over:
        before = path if path.exists() or out else find_baseline(results, chosen.name)
        old = baseline_file.parsed(load_yaml(before), chosen) if before and before.exists() else None
        baseline, changes = merged(chosen, old, new)
        if (replaced := [change for change in changes if change.old]) and not replace:
            whose = "has" if before == path else f"would hide {before}, which has"
            lines = [f"{path}: {whose} other numbers; --replace writes the new ones. Nothing was written:"]
            lines += [f"{' · '.join(row[:3])}: {row[3]} -> {row[4]}: {row[5]}" for row in rows(replaced)]
            raise ConfigError("\n  ".join(lines))
        if changes:
            write_over(baseline_file.text(baseline).encode())
    return path, changes


def rows(changes: Sequence[BaselineChange]) -> list[tuple[str, ...]]:
    """Return the changes as table rows, old -> new."""
    return [
        (
            *change.place,
            _words(change.old),
            _words(change.new),
            "new" if change.old is None else _difference(change.old, change.new),
            f"{change.new.margin:.2%}",
        )
        for change in changes
    ]


def as_dicts(changes: Sequence[BaselineChange]) -> list[dict[str, Any]]:
    """Return the changes as plain values."""
    return [
        {
            **dict(zip(("task", "model", "hardware"), change.place, strict=True)),
            "before": change.old.model_dump(mode="json") if change.old else None,
            "now": change.new.model_dump(mode="json"),
        }
        for change in changes
    ]


def _words(seen: BaselineEntry | None) -> str:
    if seen is None:
        return "--"
    sd = "" if seen.sd is None else f" ± {seen.sd:.2%}"
    return f"{seen.mean:.2%}{sd} ({seen.n})"


def _difference(old: BaselineEntry, new: BaselineEntry) -> str:
    said = [] if math.isclose(old.mean, new.mean) else [f"{100 * (new.mean - old.mean):+.2f} points"]
    said += ["other data"] if old.data != new.data else []
    said += ["other code"] if old.source != new.source else []
    said += [f"margin was {old.margin:.2%}"] if old.margin != new.margin else []
    return ", ".join(said) or "other seeds or words"
