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


@pytest.mark.parametrize("claim", [*list_claims("Guarantees"), *list_claims("Security")])
def test_every_claim_names_a_test(claim: str) -> None:
    assert NAMED.search(claim)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(TEXT))))
def test_every_named_test_exists(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)
