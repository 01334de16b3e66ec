"""``msbench baseline``: write down, on purpose, what results are to be held against."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msbench import console, shipped, store, suite
from msbench.check.collect import Change, collect, merged
from msbench.config import load_yaml
from msbench.errors import ConfigError, Undecided
from msbench.files import write_file
from msbench.gate import baseline_file
from msbench.gate.baseline_file import Seen

HEADER = ("task", "model", "hardware", "before", "now", "change", "margin")


def find_baseline(results: Path, name: str) -> Path | None:
    """The suite's baseline: in `results`, in the checkout, or with an installed package; None without one."""
    checkout = Path(__file__).resolve().parents[2]
    places = [results / "baseline", checkout / "results" / "baseline", *shipped.folders("baseline")]
    return next((path for each in places if (path := each / f"{name}.yaml").is_file()), None)


def write(
    name: str, results: Path, out: Path | None = None, *, replace: bool = False, any_hardware: bool = False
) -> tuple[Path, list[Change]]:
    """Write the baseline of a suite from its runs, and return the file and what changed in it.

    The file is `out`, or ``baseline/<suite>.yaml`` in `results`. New entries are added to it; without
    `replace` an entry that has other numbers stays, and ConfigError is raised, the difference told. Raises
    Undecided where no run gives an entry.
    """
    chosen = suite.load(name)
    path = out or results / "baseline" / f"{chosen.name}.yaml"
    found, warnings = store.records(results, chosen.name)
    new = collect(chosen, found, any_hardware=any_hardware)
    for text in (*warnings, *new.left_out, *new.unlearned):
        console.say(f"msbench: {text}")
    if not new.entries:
        raise Undecided(f"{results}: no run under the protocol of {chosen.name} has a result to write down")
    old = baseline_file.parsed(load_yaml(path), chosen) if path.exists() else None
    baseline, changes = merged(chosen, old, new)
    if (replaced := [change for change in changes if change.old]) and not replace:
        lines = [f"{path}: has other numbers; --replace writes over them. Nothing was written:"]
        lines += [f"{' · '.join(row[:3])}: {row[3]} -> {row[4]}: {row[5]}" for row in rows(replaced)]
        raise ConfigError("\n  ".join(lines))
    if changes:
        write_file(path, baseline_file.text(baseline).encode(), "--out")
    return path, changes


def rows(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    """What changed, old -> new, in words."""
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


def as_dicts(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {
            **dict(zip(("task", "model", "hardware"), change.place, strict=True)),
            "before": change.old.model_dump(mode="json") if change.old else None,
            "now": change.new.model_dump(mode="json"),
        }
        for change in changes
    ]


def _words(seen: Seen | None) -> str:
    if seen is None:
        return "--"
    sd = "" if seen.sd is None else f" ± {seen.sd:.2%}"
    return f"{seen.mean:.2%}{sd} ({seen.n})"


def _difference(old: Seen, new: Seen) -> str:
    said = [] if math.isclose(old.mean, new.mean) else [f"{100 * (new.mean - old.mean):+.2f} points"]
    said += ["other data"] if old.data != new.data else []
    said += ["other code"] if old.source != new.source else []
    said += [f"margin was {old.margin:.2%}"] if old.margin != new.margin else []
    return ", ".join(said) or "other seeds or words"
