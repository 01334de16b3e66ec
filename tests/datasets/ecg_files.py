"""WFDB records and a small PTB-XL, made by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archive import FileTree
from msbench.datasets.ptbxl.ecg import LEADS
from msbench.errors import DataError

STATEMENTS = """\
,description,diagnostic,form,rhythm,diagnostic_class,diagnostic_subclass
NORM,normal,1.0,,,NORM,NORM
NDT,non-diagnostic T,1.0,1.0,,STTC,STTC
IMI,inferior infarction,1.0,,,MI,IMI
LVOLT,low voltage,,1.0,,,
SR,sinus rhythm,,,1.0,,
AFIB,fibrillation,,,1.0,,
"""
COLUMNS = "ecg_id,patient_id,report,scp_codes,strat_fold,filename_lr,filename_hr"


@dataclass(frozen=True)
class Memory(FileTree):
    """Files that are only in memory."""

    content: dict[str, bytes]

    def names(self) -> list[str]:
        return list(self.content)

    def read(self, name: str) -> bytes:
        if name not in self.content:
            raise DataError(f"{name}: no such file")
        return self.content[name]


def header(
    name: str,
    leads: Sequence[str] = LEADS,
    *,
    rest: str = "100 1000",
    signals: int | None = None,
    gain: str = "1000.0(0)/mV",
    storage: str = "16",
    checksums: Sequence[int] | None = None,
    zero: int = 0,
    initial: Sequence[int] | None = None,
) -> str:
    """A header; `rest` is what follows the number of signals."""
    lines = [f"{name} {len(leads) if signals is None else signals} {rest}"]
    none = [0] * len(leads)
    lines += [
        f"{name}.dat {storage} {gain} 16 {zero} {first} {total} 0 {lead}"
        for lead, first, total in zip(leads, initial or none, checksums or none, strict=True)
    ]
    return "\n".join(lines) + "\n"


def signal(seed: int = 0, steps: int = 1000, leads: int = 12) -> NDArray[np.int16]:
    """Digital values (steps, leads); every lead has a level of its own."""
    noise = np.random.default_rng(seed).integers(-50, 50, (steps, leads))
    return (noise + 1000 * np.arange(leads)).astype("<i2")


def sums(digital: NDArray[Any]) -> list[int]:
    """Checksums as headers have them."""
    return [int(total) % 2**16 for total in digital.astype(np.int64).sum(axis=0)]


def memory(
    digital: NDArray[np.int16], text: str | bytes | None = None, name: str = "r", **options: Any
) -> Memory:
    """A record of 16-bit samples, with a header that fits it or the one given."""
    text = header(name, **{"checksums": sums(digital), **options}) if text is None else text
    content = text.encode() if isinstance(text, str) else text
    return Memory({f"{name}.hea": content, f"{name}.dat": digital.tobytes()})


def row(number: int, codes: str, fold: int, patient: int | None = None) -> str:
    """A line of the database."""
    names = f"records100/00000/{number:05d}_lr,records500/00000/{number:05d}_hr"
    return f'{number},{patient or number}.0,"ein, zwei",{codes!r},{fold},{names}'.replace("'{", '"{').replace(
        "}'", '}"'
    )


def database(*rows: str) -> bytes:
    return "\n".join([COLUMNS, *rows, ""]).encode()


SMALL = [
    (1, "{'NORM': 100.0, 'SR': 0.0}", 1),
    (2, "{'IMI': 35.0, 'SR': 0.0}", 2),
    (3, "{'SR': 0.0}", 3),
    (4, "{'NDT': 50.0, 'AFIB': 0.0}", 8),
    (5, "{'NORM': 80.0, 'SR': 0.0}", 9),
    (6, "{'IMI': 100.0, 'AFIB': 0.0}", 9),
    (7, "{'NORM': 100.0, 'LVOLT': 0.0, 'SR': 0.0}", 10),
    (8, "{'IMI': 100.0, 'AFIB': 0.0}", 10),
    (9, "{'AFIB': 0.0}", 10),
]


def write_small(
    folder: Path, *, gain: str = "1000.0(0)/mV", records: Sequence[tuple[int, str, int]] = SMALL
) -> Path:
    """A PTB-XL of records (number, codes, fold) at 100 Hz and the same at 500 Hz.

    Without `records` they are nine, of which two have no diagnosis.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scp_statements.csv").write_text(STATEMENTS, encoding="utf-8")
    (folder / "ptbxl_database.csv").write_bytes(database(*(row(*each) for each in records)))
    for number, _, _ in records:
        digital = signal(number)
        write_record(folder / f"records100/00000/{number:05d}_lr", digital, "100 1000", gain)
        write_record(
            folder / f"records500/00000/{number:05d}_hr", np.repeat(digital, 5, axis=0), "500 5000", gain
        )
    return folder


def write_record(path: Path, digital: NDArray[np.int16], rest: str, gain: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = header(path.name, rest=rest, gain=gain, checksums=sums(digital))
    path.with_suffix(".hea").write_text(text, encoding="utf-8")
    path.with_suffix(".dat").write_bytes(digital.tobytes())
