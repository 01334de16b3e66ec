"""Definitions of the paper's seven tables and of a suite's own table: the source of each column.

Rows are those of ``results/reported``, whose ``model`` is the model that is measured for a row.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msbench.reporting.tables.cells import Column, Part, Place
from msbench.runs.suite import Suite
from msbench.runs.suite_file import Claim


@dataclass(frozen=True)
class TableDefinition:
    """A table: name, title and caption, its table in ``results/reported``, and its columns.

    `columns` have no unit yet. `number` is the paper's, and None for a suite's own table. With `others`,
    models without a row in the paper are listed too. A table of a `claim` has the rows of `reported`, and
    none of its numbers; one of the `part` validation shows the scores that settings are chosen by.
    """

    id: str
    title: str
    caption: str
    reported: str
    columns: tuple[Column, ...]
    number: int | None = None
    protocol: str = "paper"
    notes: tuple[str, ...] = ()
    others: bool = True
    claim: Claim | None = None
    part: Part = "test"

    @property
    def places(self) -> tuple[Place, ...]:
        """The suites and tasks whose runs it needs, each once."""
        return tuple(dict.fromkeys(place for column in self.columns for place in column.places))

    @property
    def own_places(self) -> tuple[Place, ...]:
        """Those of `places` whose results are a column, not just part of an average or another measure."""
        return tuple(dict.fromkeys(each.places[0] for each in self.columns if each.source == "run"))

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites whose runs it needs, each once."""
        return tuple(dict.fromkeys(suite for suite, _ in self.places))

    @property
    def where(self) -> str:
        """The name of the table in messages."""
        if self.claim is not None:
            return f"suite {self.suites[0]}: claims: {self.claim.table}"
        return f"suite {self.id}" if self.number is None else f"table {self.id}"


def define_paper_table(
    number: int,
    name: str,
    title: str,
    caption: str,
    *columns: Column,
    notes: tuple[str, ...] = (),
    others: bool = True,
) -> TableDefinition:
    """Return a table of the paper, named as its file in ``results/reported``."""
    return TableDefinition(name, title, caption, name, columns, number, "paper", notes, others)


ABLATED = (Column("all", "PTB-XL", suite="ptbxl"), Column("listops", "ListOps", suite="listops"))
WHICH_PTBXL = "PTB-XL: measured is task all; the paper does not say which of its six tasks it shows"
LRA = tuple(("lra", task) for task in ("text", "retrieval", "image", "pathfinder", "pathx"))
LISTOPS = ("listops", "listops")
AVERAGES = (
    "AVG.: reported is as printed, a mean without ListOps and without a missing Path-X; measured is the mean"
    " of the five tasks of this table",
    "Avg. of 6: HGRN2's average, the mean of these five and ListOps (suite listops). HGRN2 counts a missing"
    " Path-X as 0; measured averages need every task",
    "± of an average: its tasks' deviations taken as independent, the root of their squares' sum over their"
    " number; that of one run a task. (k/n) is that of the task with the fewest seeds",
)
TRAINED_SHORTLY = (
    "reported: Transformer, Local Attention, Linear Trans., Sparse Transformer, Performer, Sinkhorn"
    " Transformer, Longformer, BigBird and Reformer are from Long Range Arena, whose code trains for 5,000"
    " steps; always answering the most common class gives 17.0"
)
SPREAD = (
    "± of a mixing distance is over layers, channels and examples of a run, not over seeds; of several seeds"
    " the mean of their means, and the root mean square of their ±"
)

PAPER_TABLES = (
    define_paper_table(
        1,
        "classification",
        "sCIFAR and ImageNet-1K",
        "Accuracy on the test split of CIFAR-10 pixel by pixel, and on the validation images of ImageNet-1K.",
        Column("scifar", "sCIFAR", suite="scifar"),
        Column("imagenet", "ImageNet-1K", suite="imagenet"),
    ),
    define_paper_table(
        2,
        "listops",
        "Long ListOps",
        "Accuracy on the test split of ListOps (Long Range Arena).",
        Column("listops", "Accuracy (%)", suite="listops"),
        notes=(TRAINED_SHORTLY,),
    ),
    define_paper_table(
        3,
        "ptbxl",
        "PTB-XL",
        "Macro AUROC on the test fold of PTB-XL at 100 Hz, for each of its six sets of labels.",
        Column("all", "All", suite="ptbxl"),
        Column("diagnostic", "Diag", suite="ptbxl"),
        Column("subdiagnostic", "Sub-diag", suite="ptbxl"),
        Column("superdiagnostic", "Super-diag", suite="ptbxl"),
        Column("form", "Form", suite="ptbxl"),
        Column("rhythm", "Rhythm", suite="ptbxl"),
    ),
    define_paper_table(
        4,
        "lra",
        "Long Range Arena",
        "Accuracy on the test split of Long Range Arena. AVG. is the paper's average, over the five tasks"
        " shown; Avg. of 6 is HGRN2's, with ListOps.",
        Column("text", "Text", suite="lra"),
        Column("retrieval", "Retrieval", suite="lra"),
        Column("image", "Image", suite="lra"),
        Column("pathfinder", "Pathfinder", suite="lra"),
        Column("pathx", "Path-X", suite="lra"),
        Column("average-of-5", "AVG.", suite="lra", source="average", of=LRA),
        Column("average-of-6", "Avg. of 6", suite="lra", source="average", of=(*LRA, LISTOPS), printed=False),
        notes=AVERAGES,
    ),
    define_paper_table(
        5,
        "ablation",
        "Ablation of the architecture",
        "MS-SSM with parts removed or replaced: macro AUROC on PTB-XL, accuracy on ListOps.",
        *ABLATED,
        notes=(WHICH_PTBXL,),
        others=False,
    ),
    define_paper_table(
        6,
        "mixing-distance",
        "Mean mixing distance",
        "How far back the layers of trained models look on ListOps, averaged over layers and channels.",
        Column("listops", "Mean Mixing Distance", suite="listops", source="mixing"),
        notes=(f"{SPREAD}. What the paper's ± is over is not stated",),
    ),
    define_paper_table(
        7,
        "ablation-initialisation",
        "Ablation of the initialisation",
        "MS-SSM from its own and from Mamba's initial decays: macro AUROC on PTB-XL, accuracy on ListOps.",
        *ABLATED,
        notes=(WHICH_PTBXL,),
        others=False,
    ),
)

PAPER_SUITES = tuple(dict.fromkeys(suite for table in PAPER_TABLES for suite in table.suites))
"""The suites whose runs are in the paper's tables."""


def define_suite_table(suite: Suite, mixed: Collection[str] = ()) -> TableDefinition:
    """Return the table of one suite: a column per task, under the paper's heading where the suite names it.

    Tasks in `mixed` have a column for the mean mixing distance of their runs too.
    """
    labels = suite.reported.columns if suite.reported else {}
    columns = [
        Column(task, labels.get(task, task), suite=suite.name, printed=task in labels) for task in suite.tasks
    ]
    for task in suite.tasks:
        if task in mixed:
            label = f"{labels.get(task, task)}: mixing distance"
            columns.append(Column(task, label, suite=suite.name, source="mixing", printed=False))
    table = suite.reported.table if suite.reported else ""
    notes = (SPREAD,) if mixed else ()
    return TableDefinition(
        suite.name, suite.title, suite.caption, table, tuple(columns), protocol=suite.protocol, notes=notes
    )


def define_validation_table(suite: Suite) -> TableDefinition:
    """Return the table of one suite for the validation split, without the paper's numbers."""
    columns = tuple(Column(task, task, suite=suite.name, printed=False) for task in suite.tasks)
    return TableDefinition(
        f"{suite.name}-validation",
        f"{suite.title}: validation",
        f"{suite.caption} On the validation split, to choose settings by: no results",
        "",
        columns,
        protocol=suite.protocol,
        part="validation",
    )


def define_claim_tables(suite: Suite) -> list[TableDefinition]:
    """Return a table for each claim of the paper that the suite tests."""
    return [_define_claim_table(suite, claim) for claim in suite.claims]


def _define_claim_table(suite: Suite, claim: Claim) -> TableDefinition:
    numbers = {each.id: each.number for each in PAPER_TABLES}
    where = f"Table {numbers[claim.table]}" if claim.table in numbers else f"table {claim.table}"
    name = f"{suite.name}-{claim.table}"
    if sum(each.table == claim.table for each in suite.claims) > 1:
        name = f"{name}-{claim.task}"
    return TableDefinition(
        name,
        f"{suite.title}: the order of the paper's {where}",
        f"{suite.caption} The rows of the paper's {where}, column {claim.column}, for which a model was"
        f" measured here; a verdict says whether a row is above or below {claim.base} as it is there",
        claim.table,
        (Column(claim.task, claim.task, suite=suite.name, source=claim.measure),),
        protocol=suite.protocol,
        notes=(SPREAD,) if claim.measure == "mixing" else (),
        others=False,
        claim=claim,
    )


def list_paper_names(table: TableDefinition) -> Sequence[str]:
    """Return the accepted names of a table of the paper: its id, ``table-5`` and ``5``."""
    return (table.id, f"table-{table.number}", str(table.number))
