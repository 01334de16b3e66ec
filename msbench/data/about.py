"""What a dataset is, under which licence it stands, and where it is to be had."""

from dataclasses import dataclass

GENERATED = "that of msbench itself, which made these data"
"""The licence of data that were read from nowhere."""


@dataclass(frozen=True)
class About:
    """Of published data, in words for who has to bring them: what, and where it is and what to run then.

    `licence` stands in every manifest too; where none is stated it says so.
    """

    what: str
    licence: str
    where: str

    def __str__(self) -> str:
        """Three lines, or more where one of them is a few."""
        named = {"what:": self.what, "licence:": self.licence, "where:": self.where}
        return "\n".join(f"  {name:<8} {text}".replace("\n", "\n" + " " * 11) for name, text in named.items())
