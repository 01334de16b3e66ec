"""The speed of the scan, from the documents that ``msbench bench scan --out`` writes.

One figure shows a call by length, to which the time of a linear scan is proportional. The other compares
backends: time and memory of each for one channel of one token, as not all were run at the same size.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullFormatter, NullLocator

from msbench.console import format_count
from msbench.reporting.figures.series import clean, shorten
from msbench.reporting.figures.style import COLOURS, INK, NARROW, Line, SeriesStyle, make_panels, scale_axis
from msbench.reporting.render.formatting import number_repeats
from msbench.results.benchmark_documents import read_document

MODES = {"forward": "forward", "forward_backward": "forward and backward"}
LINES: tuple[Line, Line] = ("--", "-")
"""The lines of the two modes."""
GUIDE = SeriesStyle("in proportion to l", INK, "", ":")
BANDS = "Bands hold the middle 60 % of the calls."
SIZES = ("b", "l", "d", "m", "n")


@dataclass(frozen=True)
class Length:
    """One pass of one engine at a length `l`: the median of its calls, and the 20th and 80th percentile."""

    document: str
    machine: str
    engine: str
    mode: str
    b: int
    l: int  # noqa: E741 - the field's name of the length
    d: int
    m: int
    n: int
    seconds: float
    p20: float
    p80: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Backend:
    """One pass of one backend or peer; ``each`` is a channel of a token: there are b · l · d of them."""

    document: str
    machine: str
    name: str
    mode: str
    b: int
    l: int  # noqa: E741
    d: int
    m: int
    n: int
    seconds: float
    nanoseconds_each: float
    peak_bytes: int | None
    bytes_each: float | None


@dataclass(frozen=True)
class Scan:
    """The contents of a document; `notes` are on backends that were not measured."""

    document: str
    machine: str
    lengths: tuple[Length, ...]
    backends: tuple[Backend, ...]
    notes: tuple[str, ...]


def read_scan(path: Path) -> tuple[Scan | None, str]:
    """Read a document from a file; return None and an error message if it is invalid."""
    try:
        values = read_document(path, "scan")
        return parse_scan(path.stem, values), ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else getattr(error, "strerror", None) or error
        return None, f"{path}: no benchmark of the scan: {reason}"


def parse_scan(document: str, values: Mapping[str, Any]) -> Scan:
    """Convert a document's values to rows; raise KeyError, TypeError or ValueError if it is incomplete."""
    machine = _describe_machine(values)
    notes = [
        f"{clean(row['name'])}: not measured: {clean(row.get('reason') or row['status'])}"
        for row in values["rows"]
        if row["status"] != "measured"
    ]
    lengths = tuple(_list_lengths(document, machine, values.get("scaling") or ()))
    return Scan(document, machine, lengths, tuple(_list_backends(document, machine, values)), tuple(notes))


def _describe_machine(values: Mapping[str, Any]) -> str:
    """Return the device and date, such as ``AMD EPYC, 2 threads, 2026-11-28``."""
    threads = f", {format_count(values['threads'], 'thread')}" if values["device"]["type"] == "cpu" else ""
    name = values["device"]["name"] or values["device"]["type"]
    return f"{clean(name)}{threads}, {values['ended'][:10]}"


def _list_lengths(document: str, machine: str, tables: Sequence[Mapping[str, Any]]) -> Iterator[Length]:
    for table in tables:
        if table["varied"] != "l":
            continue
        for mode in MODES:
            for row in table["rows"]:
                if mode in row:
                    times, sizes = row[mode], _get_sizes(row)
                    spread = (times["median"], times["p20"], times["p80"])
                    yield Length(
                        document, machine, table["engine"], mode, *sizes, *spread, row.get("peak_bytes")
                    )


def _list_backends(document: str, machine: str, values: Mapping[str, Any]) -> Iterator[Backend]:
    rows = [row for row in values["rows"] if row["status"] == "measured"]
    rows.sort(key=_compute_cost)
    labels = number_repeats(_make_label(row, values["size"]) for row in rows)
    for label, row in zip(labels, rows, strict=True):
        sizes = _get_sizes(row)
        each, peak = sizes[0] * sizes[1] * sizes[2], row.get("peak_bytes")
        for mode in MODES:
            if mode in row:
                seconds = row[mode]["median"]
                memory = None if peak is None else peak / each
                yield Backend(
                    *(document, machine, label, mode, *sizes),
                    *(seconds, 1e9 * seconds / each, peak, memory),
                )


def _get_sizes(row: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    b, l, d, m, n = (int(row["size"][name]) for name in SIZES)  # noqa: E741
    return b, l, d, m, n


def _compute_cost(row: Mapping[str, Any]) -> float:
    size = row["size"]
    slowest = max(row[mode]["median"] for mode in MODES if mode in row)
    return float(slowest / (size["b"] * size["l"] * size["d"]))


def _make_label(row: Mapping[str, Any], size: Mapping[str, int]) -> str:
    """Return the label of a backend, with the differing sizes if it was run at another size than the rest."""
    other = [f"{name} {row['size'][name]}" for name in SIZES if row["size"][name] != size[name]]
    name = str(row.get("label") or row["name"])
    return f"{name} ({', '.join(other)})" if other else name


def draw_lengths(found: Sequence[Length]) -> Figure:
    """Draw the time of a call over the length, both logarithmic, and memory next to it where measured."""
    engines = list(dict.fromkeys(each.engine for each in found))
    shown = {
        (engine, mode): SeriesStyle(
            f"{shorten(engine)}, {words}", COLOURS[index % len(COLOURS)], marker, line
        )
        for index, engine in enumerate(engines)
        for (mode, words), marker, line in zip(MODES.items(), "os", LINES, strict=True)
        if any((each.engine, each.mode) == (engine, mode) for each in found)
    }
    with_memory = any(each.peak_bytes for each in found)
    figure, axes = make_panels(2 if with_memory else 1, [*shown.values(), GUIDE], height=2.4)
    for key, style in shown.items():
        points = [each for each in found if (each.engine, each.mode) == key]
        lengths = [each.l for each in points]
        axes[0].plot(lengths, [each.seconds for each in points], **style.options)
        low, high = [each.p20 for each in points], [each.p80 for each in points]
        axes[0].fill_between(lengths, low, high, color=style.colour, alpha=0.2, linewidth=0)
        if with_memory:
            sized = [(each.l, each.peak_bytes) for each in points if each.peak_bytes]
            axes[1].plot([length for length, _ in sized], [peak for _, peak in sized], **style.options)
    _draw_guide(axes[0], found)
    for panel in axes:
        _set_length_axis(panel, sorted({each.l for each in found}))
    axes[0].set_ylabel("time of a call")
    axes[0].yaxis.set_major_formatter(EngFormatter("s"))
    if with_memory:
        axes[1].set_ylabel("peak memory (bytes)")
    sizes = ", ".join(f"{name} {getattr(found[0], name)}" for name in SIZES if name != "l")
    _set_caption(figure, found[0].machine, f"\n{sizes}")
    return figure


def _draw_guide(axes: Axes, found: Sequence[Length]) -> None:
    """Draw a guide line proportional to the length, below all others."""
    first, last = min(each.l for each in found), max(each.l for each in found)
    start = 0.6 * min(each.seconds * first / each.l for each in found)
    ends = (start, start * last / first)
    axes.plot((first, last), ends, color=INK, linestyle=GUIDE.line, linewidth=0.9)


def _set_length_axis(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="length l (steps)")
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _set_caption(figure: Figure, machine: str, below: str = "") -> None:
    line = shorten(machine, 100 if figure.get_figwidth() > NARROW else 60)
    figure.suptitle(line + below, fontsize=7)


def draw_backends(found: Sequence[Backend]) -> Figure:
    """Draw a row per backend, the fastest on top: time and memory for one channel of one token."""
    names = list(dict.fromkeys(each.name for each in found))
    shown = [
        SeriesStyle(words, COLOURS[index], "os"[index], "") for index, words in enumerate(MODES.values())
    ]
    figure, axes = make_panels(2, shown, height=0.75 + 0.24 * max(2, len(names)))
    for style, mode in zip(shown, MODES, strict=True):
        points = [each for each in found if each.mode == mode]
        rows = [names.index(each.name) for each in points]
        axes[0].plot([each.nanoseconds_each for each in points], rows, markersize=5.5, **style.options)
    whole = [each for each in found if each.bytes_each is not None and each.mode == "forward_backward"]
    memory = [each.bytes_each for each in whole if each.bytes_each is not None]
    rows = [names.index(each.name) for each in whole]
    axes[1].plot(memory, rows, markersize=5.5, **shown[-1].options)
    for panel, label in zip(axes, ("time: ns", "memory: bytes"), strict=True):
        panel.set(ylim=(len(names) - 0.5, -0.5), xlabel=f"{label} / (token · channel)")
        panel.set_yticks(range(len(names)), [shorten(name) for name in names])
    scale_axis(axes[0], [each.nanoseconds_each for each in found])
    scale_axis(axes[1], memory)
    axes[1].tick_params(labelleft=False)
    _set_caption(figure, found[0].machine)
    return figure
