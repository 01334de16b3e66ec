"""``run.log``, plain text for people: the attempts at a run, their progress, warnings and failures.

Attempts append to it, and nothing reads it. An entry begins with its time, its further lines are indented.
"""

from datetime import UTC, datetime
from pathlib import Path

from msbench.console import printable
from msbench.results.files import open_regular

FILE = "run.log"


class RunLog:
    """The log of one attempt. Entries are held back until it begins, as one that is refused writes nothing.

    Every method raises OSError with the name of the file if it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.begun = False
        self._held: list[str] = []

    def begin(self, text: str) -> None:
        """Write the first entry, and then those held back."""
        # As other files of a run, it takes the place of a link or a pipe, and is not written through it.
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            self.path.unlink()
        held, self._held, self.begun = self._held, [], True
        self._append([_format_entry(text), *held])

    def write(self, text: str) -> None:
        """Append an entry, with the present time."""
        if self.begun:
            self._append([_format_entry(text)])
        else:
            self._held.append(_format_entry(text))

    def _append(self, entries: list[str]) -> None:
        try:
            with open(self.path, "ab", opener=open_regular) as stream:
                stream.write("".join(entries).encode())
        except OSError as error:
            error.filename = str(self.path)
            raise


def _format_entry(text: str) -> str:
    lines = "\n    ".join(map(printable, text.rstrip().split("\n")))
    return f"{datetime.now(UTC).isoformat(timespec='seconds')} {lines}\n"
