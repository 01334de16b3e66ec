"""A document against an older one: which rows became faster, and what else changed."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

SMALLEST = 0.03
"""A change of 3 % is noise however narrow the spreads: what repeats within a run, changes between runs."""
MODES = {
    "forward": "forward",
    "forward_backward": "both",
    "step": "step",
    "open": "open",
    "epoch": "epoch",
}

Row = Mapping[str, Any]


def compare(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """``differences`` of the conditions, and ``rows``: ratio of times, noise and verdict a row and mode.

    Rows that did not start are left out, and with ``--only`` those that were not asked for.
    """
    before, after = ({key(row): row for row in found["rows"] if "size" in row} for found in (old, new))
    partial = at(new, ("settings", "only"))
    rows = []
    for name in after if partial else dict.fromkeys([*after, *before]):
        rows += list(changes(name, after.get(name), before.get(name)))
    return {"differences": differences(new, old), "rows": rows}


def key(row: Row) -> str:
    """What makes two rows the same: who, and on which problem."""
    size = row.get("size", {})
    sizes = "x".join(str(size[name]) for name in ("b", "l", "m", "d", "n") if name in size)
    return " ".join(filter(None, (row.get("shape", ""), row["name"], sizes)))


def changes(name: str, new: Row | None, old: Row | None) -> Iterator[dict[str, Any]]:
    """A line for each mode; one line alone where a row has no counterpart or no times."""
    if new is None or old is None:
        yield {"row": name, "verdict": "only now" if old is None else "only before"}
        return
    if "measured" not in (new["status"], old["status"]):
        return
    if new["status"] != old["status"]:
        yield {"row": name, "verdict": f"{new['status']}, was {old['status']}"}
        return
    for mode, label in MODES.items():
        if mode in new and mode in old:
            yield {"row": name, "mode": label, **change(new[mode], old[mode])}


def change(new: Row, old: Row) -> dict[str, Any]:
    """``ratio`` of the medians (above 1: slower now), ``noise``, and ``faster``, ``slower`` or ``same``."""
    ratio = new["median"] / old["median"]
    noise = max(SMALLEST, math.hypot(half_width(new), half_width(old)))
    outside = abs(math.log(ratio)) > math.log1p(noise)
    verdict = ("slower" if ratio > 1 else "faster") if outside else "same"
    return {"ratio": ratio, "noise": noise, "verdict": verdict}


def half_width(spread: Row) -> float:
    """The larger distance of a percentile from the median, as a share of it."""
    reach = max(spread["p80"] - spread["median"], spread["median"] - spread["p20"])
    return float(reach / spread["median"])


def differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Conditions that differ, so that a ratio may not be the code's doing."""
    found = []
    for label, path in CONDITIONS.items():
        now, then = at(new, path), at(old, path)
        if now != then:
            found.append(f"{label}: {now}, was {then}")
    return found


CONDITIONS = {
    "device": ("device", "type"),
    "name of the device": ("device", "name"),
    "host": ("environment", "host"),
    "threads": ("threads",),
    "torch": ("environment", "packages", "torch"),
}


def at(found: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path of keys; None where there is none."""
    value: Any = found
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
