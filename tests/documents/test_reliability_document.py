"""Every claim of docs/reliability.md names tests, and these exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_\w+)`")


def list_claims(title: str) -> list[str]:
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.split(r"^- ", section, flags=re.MULTILINE)[1:]


SECTIONS = ("Guarantees", "Results from elsewhere", "Security")


@pytest.mark.parametrize("claim", [claim for title in SECTIONS for claim in list_claims(title)])
def test_every_claim_names_a_test(claim: str) -> None:
    assert NAMED.search(claim)


def test_every_row_of_faults_names_a_test() -> None:
    rows = [line for line in TEXT.partition("## Fault injection")[2].splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [row for row in rows[1:] if not NAMED.search(row)] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(TEXT))))
def test_every_named_test_exists(file: str, name: str) -> None:
    assert re.search(rf"^ *def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)
