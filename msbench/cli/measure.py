"""Verbs that measure models and this machine."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from msbench import __version__, console
from msbench.cli import flags
from msbench.cli.app import collect, select_specs, verb
from msbench.errors import ConfigError, Undecided

Untrained = Annotated[
    bool, typer.Option("--untrained/--trained", help="Models as they start, instead of finished runs.")
]
Channels = Annotated[int | None, typer.Option(help="Output channels, always the same; all if unset.")]
Again = Annotated[bool, typer.Option(help="Measure again what was measured before.")]


@verb
def mixing(
    suite: flags.Name,
    model: flags.Models = None,
    task: flags.Tasks = None,
    seed: flags.Seeds = None,
    overrides: flags.Sets = None,
    untrained: Untrained = False,
    examples: Annotated[int, typer.Option(help="Test examples, always the same.")] = 64,
    channels: Channels = None,
    scope: Annotated[str, typer.Option(help="layers, each by itself, or the whole network")] = "layers",
    entries: Annotated[str, typer.Option(help="Weight of a position: l1, l2 or same-channel.")] = "l1",
    normaliser: Annotated[str, typer.Option(help="absolute, or printed as in the paper")] = "absolute",
    residual: Annotated[bool, typer.Option(help="Layers with their residual.")] = False,
    position: Annotated[str, typer.Option(help="Output position: last, or a number from 0.")] = "last",
    on: Annotated[str | None, typer.Option(metavar="TASK", help="On the examples of this task.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64")] = "float32",
    device: flags.Device = "auto",
    fresh: Again = False,
    csv: Annotated[bool, typer.Option(help="Write CSV: a row a layer and sequence.")] = False,
    figure: Annotated[bool, typer.Option(help="Write figures: SVG, PDF, PNG.")] = False,
    out: flags.Out = flags.REPORTS,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Measure the mean mixing distance of each layer. How far back its last output draws."""
    given = locals()
    from msbench.analysis.mixing.options import MixingOptions, parse_measure_options
    from msbench.results.files import refuse_file

    refuse_file(out)  # before hours of measuring, not after them
    measure = parse_measure_options(given)
    specs = select_specs([suite], model, task, seed, overrides)
    from msbench.analysis.mixing import command, table

    data = None if on is None else select_specs([suite], None, [on], None, overrides)[0].data
    options = collect(MixingOptions, {**given, "measure": measure, "trained": not untrained, "data": data})
    documents, missing = command.measure_runs(specs, options)
    written = table.write_outputs(documents, out, csv=csv, figure=figure)
    if as_json:
        console.out_json(documents)
    else:
        table.print_documents(documents)
    for path in written:
        console.say(str(path))
    if missing:
        raise Undecided("not measured, as there is no trained model:\n" + "\n".join(missing))


@verb
def bench(
    what: Annotated[str, typer.Argument(help="scan, step (whole training steps), length or data")] = "scan",
    device: flags.Device = "auto",
    threads: Annotated[
        int | None, typer.Option(max=flags.MOST, help="Threads of the CPU; PyTorch's number if unset.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Turns of each; 5, quick 3.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this scan, model or dataset; repeatable.")
    ] = None,
    b: Annotated[int | None, typer.Option(help="scan: examples.")] = None,
    l: Annotated[int | None, typer.Option(help="scan: steps.")] = None,  # noqa: E741 (the field's letter)
    m: Annotated[int | None, typer.Option(help="scan: streams.")] = None,
    d: Annotated[int | None, typer.Option(help="scan: channels.")] = None,
    n: Annotated[int | None, typer.Option(help="scan: states of a stream.")] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shape", help="step: quick, deep, or large: listops, text, image, pathx; repeatable."),
    ] = None,
    scaling: Annotated[bool, typer.Option(help="scan: time over length and states.")] = True,
    quick: Annotated[bool, typer.Option(help="Smaller: below a minute.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the JSON document.")] = None,
    compare: Annotated[Path | None, typer.Option(help="An older document; ratios to it.")] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Measure speed next to public implementations. Memory too; all is checked in the same run."""
    given = locals()
    from msbench.analysis.benchmarks import command, terminal
    from msbench.analysis.benchmarks.options import BenchmarkOptions, resolve_flags

    found = command.run_benchmark(collect(BenchmarkOptions, given | resolve_flags(given)))
    if as_json:
        console.out_json(found)
    else:
        terminal.print_document(found)
    if not command.list_measured_rows(found):
        raise Undecided("nothing could be measured: each row gives its reason")


@verb
def doctor(
    determinism: Annotated[
        bool,
        typer.Option(
            help="Train each model twice, and once with a stop and resume: does the same give the same?",
        ),
    ] = False,
    models: flags.Models = None,
    device: flags.Device = "auto",
    deterministic: flags.Deterministic = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Show what this machine can do, and which kernels are in use."""
    given = locals()
    if determinism:
        from msbench.analysis.determinism import DeterminismOptions, check_models, print_report

        report = check_models(collect(DeterminismOptions, given))
        if as_json:
            console.out_json(report.as_dict())
        else:
            print_report(report)
        report.require_equal()
        return
    if models or device != "auto":
        raise ConfigError("--model and --device go with --determinism: they choose what it trains, and where")
    facts = describe_machine()
    if as_json:
        from msbench.environment import describe_environment

        console.out_json({**dict(facts), "environment": describe_environment()})
    else:
        console.out_rows(("what", "found"), facts)


def describe_machine() -> list[tuple[str, str]]:
    """Return pairs of a topic and what this machine has, in reading order."""
    from msbench import datasets
    from msbench.environment import describe_commit, describe_environment
    from msbench.ops import native_library

    found = describe_environment()
    packages, count = found["packages"], console.format_count
    root = datasets.data_root()
    nearest = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    return [
        ("msbench", __version__ + describe_commit(found["git"], " at ")),
        ("python", found["python"]),
        ("platform", found["platform"]),
        ("cpu", ", ".join((found["cpu"], count(found["cores"], "core"), count(found["threads"], "thread")))),
        ("torch", f"{packages.get('torch')} for CUDA {found['cuda']}"),
        ("gpus", ", ".join(found["gpus"]) or "none: runs use the CPU"),
        *_describe_kernels("cpu"),
        *([("threads of cpp", native_library.describe_threads())] if native_library.load_library() else []),
        *(_describe_kernels("cuda") if found["gpus"] else []),
        ("triton", packages.get("triton", "not installed")),
        ("mamba-ssm", packages.get("mamba-ssm", "not installed: optional, not needed")),
        ("data", f"{root}, {shutil.disk_usage(nearest).free / 1e9:.0f} GB free"),
    ]


def _describe_kernels(device: str) -> list[tuple[str, str]]:
    """Return the scan kernel of a device type, and the reason why each faster kernel is not used."""
    from msbench.ops.scan import dispatch

    try:
        choice = dispatch.choose_kernel(device)
    except ConfigError as error:  # a kernel is forced that this device type does not support; another may
        return [(f"scan on {device}", f"none: {error}")]
    forced = f", forced by {dispatch.VARIABLE}" if dispatch.requested_kernel() != "auto" else ""
    return [
        (f"scan on {device}", choice.label + forced),
        *((f"not {engine} on {device}", why) for engine, why in choice.passed_over.items()),
    ]
