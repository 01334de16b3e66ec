"""Tables of a document: several narrow ones, so that no cell is cut or wrapped at 80 columns.

At a terminal each column takes three characters besides its text: six columns leave 61 for the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msbench import console

Row = Mapping[str, Any]
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, heading, rows."""

MODES = ("forward", "forward_backward")
SIZED = ("model", "parameters", "states", "MiB", "first, s", "calls")
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
    git, device = found["git"], found["device"]
    commit = f", commit {git['commit'][:12]}{' (changed)' if git['dirty'] else ''}" if git else ""
    packages = found["environment"]["packages"]
    lines = [
        f"msbench bench {found['what']}: msbench {found['msbench']}{commit}",
        f"{device['name']} ({device['type']}), {found['threads']} threads, torch {packages.get('torch')},"
        f" {found['dtype']}",
    ]
    if found["what"] == "scan":
        lines += _scan_heading(found)
    return "\n".join(lines)


def _scan_heading(found: Mapping[str, Any]) -> list[str]:
    """Return the problem size and the machine's peak rates."""
    size = found["size"]
    return [f"{format_size(size)}: {size['m'] * size['n']} states per channel", *format_rates(found["rates"])]


def format_rates(rates: Mapping[str, Any]) -> list[str]:
    """Return the rates that bounds are computed from."""
    if "instructions_per_second" in rates:
        return [
            f"at best: {rates['instructions_per_second'] / 1e9:.1f} G instructions/s,"
            f" {rates['exp_per_second'] / 1e9:.2f} G exp/s, copy"
            f" {rates['copy_bytes_per_second'] / 1e9:.1f} GB/s"
        ]
    if "forward_updates_per_second" not in rates:
        return [rates["source"]]
    updates, moved = (
        [rates[f"{name}_{unit}_per_second"] / 1e9 for name in ("forward", "backward")]
        for unit in ("updates", "bytes")
    )
    return [
        f"at best: {updates[0]:.3g} G states/s forward, {updates[1]:.3g} backward in registers;"
        f" {min(moved):.3g} GB/s"
    ]


def list_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return the tables in reading order."""
    rows = [row for row in found["rows"] if row["status"] == "measured"]
    match found["what"]:
        case "scan":
            body = make_scan_tables(found, rows)
        case "step":
            body = make_step_tables(found, rows)
        case _:
            body = make_data_tables(rows)
    return [*body, make_comparison_table(found.get("comparison", {"rows": []}))]


def make_scan_tables(found: Mapping[str, Any], rows: Sequence[Row]) -> list[Table]:
    """Return tables of times, speed, bounds, checks and scaling."""
    return [
        (
            "Time in ms: median [20th-80th percentile]",
            ("scan", "b x l", "forward", "forward + backward"),
            [(row["name"], format_batch(row), *(format_spread(row[mode]) for mode in MODES)) for row in rows],
        ),
        (
            "Forward + backward; ratios are per token",
            ("scan", "Mtoken/s", "Gstate/s", "x loop", "x mambapy"),
            [(row["name"], *format_speeds(row)) for row in rows],
        ),
        (
            "Forward alone; share of the bound's speed, forward and with backward",
            ("scan", "Gstate/s", "x loop", "forward", "both", "binds"),
            [(row["name"], *format_bound_shares(row)) for row in rows],
        ),
        (
            "Memory beyond arguments, output, gradients; worst error against float64",
            ("scan", "MiB", "x arguments", "error", "of"),
            [(row["name"], *format_memory(row), *format_worst_error(row)) for row in rows],
        ),
        (
            "First call in s; timed calls; CPU over wall time; equal to the last bit",
            ("scan", "first", "calls", "CPU/wall", "two runs", "1, 2 threads"),
            [(row["name"], *format_calls(row)) for row in rows],
        ),
        *(make_scaling_table(table) for table in found["scaling"]),
    ]


def format_batch(row: Row) -> str:
    """Format examples and steps."""
    return f"{row['size']['b']} x {row['size']['l']}"


def format_spread(spread: Row) -> str:
    """Format median and percentiles in milliseconds."""
    return f"{format_ms(spread['median'])} [{format_ms(spread['p20'])}-{format_ms(spread['p80'])}]"


def format_ms(seconds: float) -> str:
    """Format seconds as milliseconds with three significant digits."""
    return format_number(seconds * 1e3)


def format_number(value: float) -> str:
    """Format with three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def format_speeds(row: Row) -> list[str]:
    """Format the speeds of forward and backward together."""
    both = row["forward_backward"]
    return [
        f"{both['tokens_per_second'] / 1e6:.3g}",
        f"{both['states_per_second'] / 1e9:.3g}",
        format_speedup(row, "over_loop", "forward_backward"),
        format_speedup(row, "over_peer", "forward_backward"),
    ]


def format_bound_shares(row: Row) -> list[str]:
    """Format the shares of the bound's speed, forward and both."""
    forward, both = row["forward"], row["forward_backward"]
    return [
        f"{forward['states_per_second'] / 1e9:.3g}",
        format_speedup(row, "over_loop", "forward"),
        format_share(forward),
        format_share(both),
        "/".join(dict.fromkeys(mode["bound"] or "--" for mode in (forward, both))),
    ]


def format_share(mode: Row) -> str:
    """Format the bound's time over the measured one, or a dash if there is no bound."""
    return "--" if mode["of_bound"] is None else f"{mode['of_bound']:.1%}"


def format_speedup(row: Row, name: str, mode: str) -> str:
    """Format a speed-up, or a dash if there is nothing to compare with."""
    return f"{row[name][mode]:.3g}x" if name in row else "--"


def format_memory(row: Row) -> list[str]:
    """Format the peak in MiB and relative to the arguments."""
    if row["peak_bytes"] is None:
        return ["--", "--"]
    return [f"{row['peak_bytes'] / 2**20:.0f}", format_number(row["peak_per_input"])]


def format_worst_error(row: Row) -> list[str]:
    """Return the worst error and the name of its tensor."""
    name = max(row["errors"], key=lambda key: row["errors"][key])
    return [f"{row['errors'][name]:.1e}", name]


def format_calls(row: Row) -> list[str]:
    """Format the first call, calls of either mode, CPU over wall time, and bit equality."""
    both = row["forward_backward"]
    number = "/".join(str(row[mode]["calls"]) for mode in MODES)
    equal = [format_flag(row["bit_equal"].get(key)) for key in ("runs", "threads")]
    return [format_number(row["first_call_s"]), number, f"{both['cpu'] / both['median']:.2f}", *equal]


def format_flag(value: bool | None) -> str:
    """Format a truth value as a word."""
    return "--" if value is None else "yes" if value else "NO"


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


def make_step_tables(found: Mapping[str, Any], rows: Sequence[Row]) -> list[Table]:
    """Return three tables per shape: times, sizes, and ratios of times."""
    result: list[Table] = []
    for shape in found["shapes"]:
        own = [row for row in rows if row["shape"] == shape["name"]]
        title = f"{shape['name']}: {shape['title']}"
        steps = [
            (row["name"], format_batch(row), format_spread(row["step"]), format_token_rate(row))
            for row in own
        ]
        sized = [(row["name"], *format_step_sizes(row)) for row in own]
        pairs = [(x["name"], x["over"], f"{x['ratio']:.2f}x", x["what"]) for x in shape["ratios"]]
        result.append((title, ("model", "b x l", "step, ms", "ktoken/s"), steps))
        result.append(("Size; memory of a step in MiB", SIZED, sized))
        result.append(("Time per token", ("model", "over", "ratio", "which"), pairs))
    return result


def format_token_rate(row: Row) -> str:
    """Format thousands of tokens per second, padding not counted."""
    return f"{row['tokens_per_second'] / 1e3:.3g}"


def format_step_sizes(row: Row) -> list[str]:
    """Format parameters, states, memory, first call, timed calls."""
    peak = row["peak_bytes"]
    return [
        f"{row['parameters']:,}",
        str(row["states_per_channel"]),
        "--" if peak is None else f"{peak / 2**20:.0f}",
        format_number(row["first_call_s"]),
        str(row["step"]["calls"]),
    ]


def make_data_tables(rows: Sequence[Row]) -> list[Table]:
    """Return two tables: size and generation of the datasets; opening and feeding them."""
    made, used = [], []
    for row in rows:
        seconds, rate = row["made_seconds"], row["made_per_second"]
        cost = ["--", "--"] if seconds is None or rate is None else [format_number(seconds), f"{rate:,.0f}"]
        made.append((row["name"], f"{row['examples']:,}", f"{row['bytes'] / 2**20:,.1f}", *cost))
        rates = (f"{row['examples_per_second']:,.0f}", f"{row['positions_per_second'] / 1e6:.3g}")
        used.append(
            (row["name"], format_spread(row["open"]), *rates, "yes" if row["resident_bytes"] else "no")
        )
    return [
        ("Made once", ("suite task", "examples", "MiB", "s", "examples/s"), made),
        (
            "Opened again, and fed to the device in training order",
            ("suite task", "open, ms", "examples/s", "Mposition/s", "kept there"),
            used,
        ),
    ]


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
