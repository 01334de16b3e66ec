"""Tables of a document: several narrow ones, so that no row is wrapped at 80 columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from msbench import console
from msbench.analysis.benchmarks.scan import MODES
from msbench.environment import describe_commit

Row = Mapping[str, Any]
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, heading, rows."""
Format = Callable[[Row], str]

BOUNDS = {
    "registers": "the C++ kernel's arithmetic without memory, measured in turns",
    "exp": "a GPU's exponentials, one a state and pass, by its clock",
    "issue": "a GPU's instructions, 6 and 20 a state, by its clock",
    "memory": "all arrays read or written once, measured in turns",
}


def print_document(found: Mapping[str, Any]) -> None:
    """Print all tables of a document, and the reasons for missing rows."""
    console.out(format_heading(found))
    for title, header, rows in list_tables(found):
        if rows:
            console.out("")
            console.out_rows(header, rows, title=title)
    remarks = list(list_notes(found))
    console.out("\n".join(["", *remarks]) if remarks else "")


def format_heading(found: Mapping[str, Any]) -> str:
    """Return the heading: versions, device and settings of the measurement."""
    device, commit = found["device"], describe_commit(found["git"], ", commit ")
    packages, threads = found["environment"]["packages"], console.format_count(found["threads"], "thread")
    lines = [
        f"msbench bench {found['what']}: msbench {found['msbench']}{commit}",
        f"{device['name']} ({device['type']}), {threads}, torch {packages.get('torch')}, {found['dtype']}",
    ]
    if found["what"] == "scan":
        size = found["size"]
        lines.append(f"{format_size(size)}: {size['m'] * size['n']} states per channel")
        lines += format_rates(found["rates"])
    return "\n".join(lines)


def format_rates(rates: Mapping[str, Any]) -> list[str]:
    """Return the rates that bounds are computed from, a line each, and their source."""
    suffix = "_per_second"
    lines = [
        f"at best: {format_number(rate / 1e9)} G {name.removesuffix(suffix).replace('_', ' ')}/s"
        for name, rate in rates.items()
        if name.endswith(suffix)
    ]
    return lines or [rates["source"]]


def list_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return the tables in reading order."""
    rows = [row for row in found["rows"] if row["status"] == "measured"]
    tables: list[Table] = []
    for shape in found.get("shapes", ()):
        own = [row for row in rows if row["shape"] == shape["name"]]
        tables.append(make_table(f"{shape['name']}: {shape['title']}", STEP_TIMES, own))
        tables.append(make_table("Size; memory of a step in MiB", STEP_SIZES, own))
        tables.append(make_table("Time per token", STEP_RATIOS, shape["ratios"]))
    tables += [make_table(title, cells, rows) for title, cells in TABLES.get(found["what"], {}).items()]
    tables.append(make_table(GROWTH_TITLE, GROWTH, found.get("growth", ())))
    tables += [make_scaling_table(table) for table in found.get("scaling", ())]
    return [*tables, make_comparison_table(found.get("comparison", {"rows": []}))]


def make_table(title: str, cells: Mapping[str, Format], rows: Sequence[Row]) -> Table:
    """Return a table with a column for each of `cells`: its heading, and its text from a row."""
    return title, tuple(cells), [[form(row) for form in cells.values()] for row in rows]


def format_batch(row: Row) -> str:
    """Format examples and steps."""
    return f"{row['size']['b']} x {row['size']['l']}"


def format_spread(spread: Row) -> str:
    """Format median and percentiles in milliseconds."""
    return f"{format_ms(spread['median'])} [{format_ms(spread['p20'])}-{format_ms(spread['p80'])}]"


def format_ms(seconds: float) -> str:
    """Format seconds as milliseconds with three significant digits."""
    return format_number(seconds * 1e3)


def format_number(value: float | None) -> str:
    """Format with three significant digits, without an exponent; a dash if there is no value."""
    if value is None:
        return "--"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def format_share(mode: Row) -> str:
    """Format the bound's time over the measured one, or a dash if there is no bound."""
    return "--" if mode["of_bound"] is None else f"{mode['of_bound']:.1%}"


def format_bounds(row: Row) -> str:
    """Return the names of the bounds of both modes, once if they are the same."""
    return "/".join(dict.fromkeys(row[mode]["bound"] or "--" for mode in MODES))


def format_speedup(row: Row, name: str, mode: str) -> str:
    """Format a speed-up, or a dash if there is nothing to compare with."""
    return f"{row[name][mode]:.3g}x" if name in row else "--"


def format_memory(row: Row) -> str:
    """Format the peak in MiB, or a dash if it is unknown."""
    return "--" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f}"


def find_worst_error(row: Row) -> tuple[str, float]:
    """Return the tensor with the largest error, and that error."""
    errors: dict[str, float] = row["errors"]
    return max(errors.items(), key=lambda item: item[1])


def format_flag(value: bool | None) -> str:
    """Format a truth value as a word."""
    return "--" if value is None else "yes" if value else "NO"


FORWARD, BOTH = MODES
TABLES: dict[str, dict[str, dict[str, Format]]] = {
    "scan": {
        "Time in ms: median [20th-80th percentile]": {
            "scan": itemgetter("name"),
            "b x l": format_batch,
            "forward": lambda row: format_spread(row[FORWARD]),
            "forward + backward": lambda row: format_spread(row[BOTH]),
        },
        "Forward + backward; ratios are per token": {
            "scan": itemgetter("name"),
            "Mtoken/s": lambda row: f"{row[BOTH]['tokens_per_second'] / 1e6:.3g}",
            "Gstate/s": lambda row: f"{row[BOTH]['states_per_second'] / 1e9:.3g}",
            "x loop": lambda row: format_speedup(row, "over_loop", BOTH),
            "x mambapy": lambda row: format_speedup(row, "over_peer", BOTH),
        },
        "Forward alone; share of the bound's speed, forward and with backward": {
            "scan": itemgetter("name"),
            "Gstate/s": lambda row: f"{row[FORWARD]['states_per_second'] / 1e9:.3g}",
            "x loop": lambda row: format_speedup(row, "over_loop", FORWARD),
            "forward": lambda row: format_share(row[FORWARD]),
            "both": lambda row: format_share(row[BOTH]),
            "binds": format_bounds,
        },
        "Memory beyond arguments, output, gradients; worst error against float64": {
            "scan": itemgetter("name"),
            "MiB": format_memory,
            "x arguments": lambda row: format_number(row["peak_per_input"]),
            "error": lambda row: f"{find_worst_error(row)[1]:.1e}",
            "of": lambda row: find_worst_error(row)[0],
        },
        "First call in s; timed calls; CPU over wall time; equal to the last bit": {
            "scan": itemgetter("name"),
            "first": lambda row: format_number(row["first_call_s"]),
            "calls": lambda row: "/".join(str(row[mode]["calls"]) for mode in MODES),
            "CPU/wall": lambda row: f"{row[BOTH]['cpu'] / row[BOTH]['median']:.2f}",
            "two runs": lambda row: format_flag(row["bit_equal"].get("runs")),
            "1, 2 threads": lambda row: format_flag(row["bit_equal"].get("threads")),
        },
    },
    "length": {
        "A step on one sequence: ms, median [20th-80th percentile]; memory in MiB": {
            "model": itemgetter("name"),
            "l": lambda row: str(row["size"]["l"]),
            "step, ms": lambda row: format_spread(row["step"]),
            "ktoken/s": lambda row: f"{row['tokens_per_second'] / 1e3:.3g}",
            "MiB": format_memory,
        },
    },
    "data": {
        "Made once": {
            "suite task": itemgetter("name"),
            "examples": lambda row: f"{row['examples']:,}",
            "MiB": lambda row: f"{row['bytes'] / 2**20:,.1f}",
            "s": lambda row: format_number(row["made_seconds"]),
            "examples/s": lambda row: f"{row['made_per_second']:,.0f}" if row["made_per_second"] else "--",
        },
        "Opened again, and fed to the device in training order": {
            "suite task": itemgetter("name"),
            "open, ms": lambda row: format_spread(row["open"]),
            "examples/s": lambda row: f"{row['examples_per_second']:,.0f}",
            "Mposition/s": lambda row: f"{row['positions_per_second'] / 1e6:.3g}",
            "kept there": lambda row: "yes" if row["resident_bytes"] else "no",
        },
    },
}
"""Tables by benchmark and title, each a formatter of a row's cell by column heading."""
STEP_TIMES: dict[str, Format] = {
    "model": itemgetter("name"),
    "b x l": format_batch,
    "step, ms": lambda row: format_spread(row["step"]),
    "ktoken/s": lambda row: f"{row['tokens_per_second'] / 1e3:.3g}",
}
STEP_SIZES: dict[str, Format] = {
    "model": itemgetter("name"),
    "parameters": lambda row: f"{row['parameters']:,}",
    "states": lambda row: str(row["states_per_channel"]),
    "MiB": format_memory,
    "first, s": lambda row: format_number(row["first_call_s"]),
    "calls": lambda row: str(row["step"]["calls"]),
}
STEP_RATIOS: dict[str, Format] = {
    "model": itemgetter("name"),
    "over": itemgetter("over"),
    "ratio": lambda row: f"{row['ratio']:.2f}x",
    "which": itemgetter("what"),
}
GROWTH_TITLE = "Growth from one length to the next: of the time, of its term in l, of the memory"
GROWTH: dict[str, Format] = {
    "model": itemgetter("name"),
    "from": lambda row: str(row["from"]),
    "to": lambda row: str(row["to"]),
    "time": lambda row: f"{row['time']:.2f}x",
    "term": lambda row: f"{row['expected']:.2f}x",
    "of": itemgetter("cost"),
    "memory": lambda row: f"{row['memory']:.2f}x" if row["memory"] else "--",
}


def make_scaling_table(table: Row) -> Table:
    """Return the table of one kernel's times over one dimension."""
    varied, rows = table["varied"], table["rows"]
    fixed = {key: value for key, value in rows[0]["size"].items() if key != varied}
    body = []
    for row in rows:
        cells = [str(row["size"][varied])]
        for mode in MODES:
            ratio = row.get(f"{mode}_ratio")
            cells += [
                format_ms(row[mode]["median"]) if mode in row else row["error"],
                f"{ratio:.2f}x" if ratio else "",
            ]
        body.append(cells)
    title = f"Time of {table['engine']} over {varied} in ms, and over the line before ({format_size(fixed)})"
    return title, (varied, "forward", "ratio", "with backward", "ratio"), body


def make_comparison_table(found: Mapping[str, Any]) -> Table:
    """Return the table of ratios to an older document."""
    rows = []
    for row in found["rows"]:
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        noise = f"{row['noise']:.0%}" if "noise" in row else ""
        rows.append((row["row"], row.get("mode", ""), ratio, noise, row["verdict"]))
    return "Time over that of the older document", ("row", "mode", "ratio", "noise", "verdict"), rows


def list_notes(found: Mapping[str, Any]) -> Iterable[str]:
    """Yield reasons for missing rows, remarks on rows, and conditions that changed."""
    for row in found["rows"]:
        name = " ".join(filter(None, (row.get("shape", ""), row["name"])))
        if row["status"] != "measured":
            status = "INVALID" if row["status"] == "invalid" else row["status"]
            yield f"{name}: {status}: {row['reason']}"
        elif row.get("note"):
            yield f"{name}: {row['note']}"
    if found["what"] == "scan":
        yield from explain_bounds(found["rows"])
    for text in found.get("comparison", {}).get("differences", ()):
        yield f"not the same conditions: {text}"


def explain_bounds(rows: Iterable[Row]) -> Iterable[str]:
    """Yield an explanation of each bound that a row has."""
    names = {row[mode]["bound"] for row in rows if row["status"] == "measured" for mode in MODES}
    for name, meaning in BOUNDS.items():
        if name in names:
            yield f"bound {name}: {meaning}"


def format_size(size: Row) -> str:
    """Format dimensions as letters and numbers."""
    return ", ".join(f"{name} {value}" for name, value in size.items())
