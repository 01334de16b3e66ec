"""A document compared with an older one: faster rows, slower rows and changed conditions."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

SMALLEST = 0.03
"""Changes below 3 % count as noise: spreads within a run do not cover the variation between runs."""
MODES = {
    "forward": "forward",
    "forward_backward": "both",
    "step": "step",
    "open": "open",
    "epoch": "epoch",
}

Row = Mapping[str, Any]


def compare(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``differences`` of the conditions, and ``rows``: time ratio, noise, verdict by row and mode.

    Rows that did not start are left out, and with ``--only`` those that were not requested.
    """
    before, after = ({key(row): row for row in found["rows"] if "size" in row} for found in (old, new))
    partial = at(new, ("settings", "only"))
    rows = []
    for name in after if partial else dict.fromkeys([*after, *before]):
        rows += list(changes(name, after.get(name), before.get(name)))
    return {"differences": differences(new, old), "rows": rows}


def key(row: Row) -> str:
    """Return the key that matches rows of two documents: name and problem."""
    size = row.get("size", {})
    sizes = "x".join(str(size[name]) for name in ("b", "l", "m", "d", "n") if name in size)
    return " ".join(filter(None, (row.get("shape", ""), row["name"], sizes)))


def changes(name: str, new: Row | None, old: Row | None) -> Iterator[dict[str, Any]]:
    """Yield a line for each mode; a single line if a row has no counterpart or no times."""
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
    """Return ``ratio`` of the medians (above 1: slower), ``noise``, and ``faster``, ``slower``, ``same``."""
    ratio = new["median"] / old["median"]
    noise = max(SMALLEST, math.hypot(half_width(new), half_width(old)))
    outside = abs(math.log(ratio)) > math.log1p(noise)
    verdict = ("slower" if ratio > 1 else "faster") if outside else "same"
    return {"ratio": ratio, "noise": noise, "verdict": verdict}


def half_width(spread: Row) -> float:
    """Return the larger distance of a percentile from the median, relative to the median."""
    reach = max(spread["p80"] - spread["median"], spread["median"] - spread["p20"])
    return float(reach / spread["median"])


def differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return the conditions that differ and may explain a ratio instead of the code."""
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
    """Return the value at a path of keys; None if there is none."""
    value: Any = found
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
