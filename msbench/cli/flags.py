"""Arguments and options that verbs share, as types of their parameters, and default folders."""

from pathlib import Path
from typing import Annotated

import typer

from msbench.cli.completion import complete_models, complete_runs, complete_suites, complete_tasks

MOST = 2**16
"""Limit of processes, devices and threads: more than any machine has, and accepted by each library."""

Results = Annotated[Path, typer.Option(help="Folder of the runs.")]
Json = Annotated[bool, typer.Option("--json/--no-json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Only this model, or a,b, or a pattern such as 'msssm-*'; repeatable.",
        autocompletion=complete_models,
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", help="Only this task, likewise; repeatable.", autocompletion=complete_tasks),
]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", help="This seed instead of the suite's; repeatable.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override, such as train.lr=1e-3; repeatable."),
]
Scan = Annotated[
    str | None, typer.Option(help="Scan kernel: auto, triton, cpp, torch, mamba-ssm or reference.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        envvar="MSBENCH_DETERMINISTIC",
        help="Give the same bits on the same machine, or an error that names what cannot.",
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Start of a run's id, suite:task:model[:seed], or its folder.",
        autocompletion=complete_runs,
    ),
]
SuiteFile = Annotated[
    Path | None, typer.Option("--suite", help="The suite's file, if its name does not find it.")
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="A suite's name or the path of its YAML file.",
        autocompletion=complete_suites,
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE...",
        help="Suites' names or YAML files; paper: those of all its tables.",
        autocompletion=complete_suites,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Devices = Annotated[
    int, typer.Option(min=1, max=MOST, metavar="N", help="Train each run on N devices, a process each.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", min=1, max=MOST, metavar="N", help="Train N runs at a time, a process each."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        metavar="N",
        envvar="MSBENCH_THREADS",
        help="Threads of a process on the CPU; their number changes last digits.  [default: all cores]",
    ),
]
Loggers = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="LOGGER", help="Log to tensorboard or wandb too; repeatable."),
]
Launcher = Annotated[str, typer.Option(help="local: this process; slurm: one array of jobs")]
Profile = Annotated[
    Path | None,
    typer.Option(help="Limits of Slurm's jobs; default slurm.yaml, here or in the user's settings."),
]
Wait = Annotated[bool, typer.Option(help="With slurm: return when all have ended.")]
Container = Annotated[str | None, typer.Option(help="Run inside a container: docker, podman or apptainer.")]
Image = Annotated[str | None, typer.Option(help="Its image, instead of msbench:cpu or msbench:cuda.")]
Out = Annotated[Path, typer.Option(help="Folder for files; created if absent.")]
RESULTS = Path("results")
REPORTS = Path("reports")
