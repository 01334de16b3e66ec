"""A document in plain text: one row per layer and one for all, within 80 columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from msbench import console
from msbench.analysis.mixing.distance import BEYOND
from msbench.analysis.mixing.document import Document
from msbench.analysis.mixing.options import Options

HEADER = ("layer", "distance", "n", *(f">{limit}" for limit in BEYOND), "future")


def print_documents(documents: Iterable[Document]) -> None:
    """Print each document's title, table and notes to stdout."""
    for index, document in enumerate(documents):
        if index:
            console.out("")
        console.out_rows(HEADER, rows(document), title=title(document))
        for line in notes(document):
            console.out(line)


def title(document: Document) -> str:
    """Return task, model, seed, run and state, and the options that differ from the default."""
    state = f"trained, epoch {document['epoch'] + 1}" if document["trained"] else "untrained"
    changed = [
        f"{key} {value}"
        for key, value in document["options"].items()
        if value != getattr(Options(), key) and key != "examples"
    ]
    names = [document["task"], document["model"], f"seed {document['seed']}", document["run_id"], state]
    return " · ".join([*names, *changed])


def rows(document: Document) -> list[tuple[str, ...]]:
    """Return cells under `HEADER`: distances with standard deviation, shares of |J| beyond each distance."""
    layers = [
        _row(str(layer["layer"] or "network"), layer, layer["future_share"]) for layer in document["layers"]
    ]
    if len(layers) == 1:
        return layers
    seen = [layer["future_share"] for layer in document["layers"] if layer["future_share"] is not None]
    return [*layers, _row("all", document, max(seen, default=None))]


def notes(document: Document) -> list[str]:
    """Return notes on the sample and on limitations of the numbers."""
    sequences, options = document["sequences"], document["options"]
    where = "the last position" if options["position"] is None else f"position {options['position']}"
    lines = [f"mean ± sd over {document['over']}; {sequences} test sequences, at {where}"]
    if document["zero_rows"]:
        lines.append(f"{document['zero_rows']:,} rows are zero everywhere and have no distance")
    if document["sequences_left_out"]:
        lines.append(f"{document['sequences_left_out']} sequences are too short and left out")
    if not document["distribution"]:
        lines.append(
            "printed normaliser: signs cancel in it, so that no row is a distribution over distances"
        )
    if not document["causal"]:
        lines.append("not causal: distances are to both sides; before the last position lies the past alone")
    return lines


def _row(name: str, found: Mapping[str, Any], future: float | None) -> tuple[str, ...]:
    shares = (_share(found["beyond"][str(limit)]) for limit in BEYOND)
    return (name, _distance(found), str(found["n"]), *shares, "--" if future is None else f"{future:.1g}")


def _distance(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return "--"
    return f"{found['mean']:.2f}" + ("" if found["sd"] is None else f"±{found['sd']:.2f}")


def _share(value: float | None) -> str:
    return "--" if value is None else f"{value:.1%}"
