"""Findings: what can be wrong with a parallel corpus, how often it was found, and where."""

from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES = 3  # shown per finding
LONG = 1000  # characters; sentences are shorter


class Example(NamedTuple):
    """One place where a problem was found."""

    where: str
    line: int
    text: str


@dataclass
class Finding:
    """One kind of problem."""

    problem: str
    remedy: str
    dropped: bool = False  # such pairs are left out of training
    fatal: bool = False  # training is refused
    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, where: str, line: int, text: str, count: int = 1) -> None:
        """Count an occurrence, and keep the first few as examples."""
        self.count += count
        if len(self.examples) < EXAMPLES:
            shown = text if len(text) <= 160 else f"{text[:157]}..."
            self.examples.append(Example(where, line, shown))


@dataclass(frozen=True)
class Report:
    """The problems found in a corpus, by the names of their kinds."""

    pairs: int
    findings: dict[str, Finding]
    # For validation and test data: the share of characters that are never seen in training.
    unseen_characters: dict[str, float] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """The number of pairs that training leaves out."""
        return sum(finding.count for finding in self.findings.values() if finding.dropped)

    @property
    def fatal(self) -> list[Finding]:
        """The findings that make training impossible."""
        return [finding for finding in self.findings.values() if finding.fatal]


def all_kinds() -> dict[str, Finding]:
    """Return every kind of problem, not found yet, by name and in the order of the report."""
    return {
        "unequal": Finding(
            "files with different numbers of lines",
            "remove the extra line, or restore the missing one",
            fatal=True,
        ),
        "misaligned": Finding(
            "pairs whose sides do not belong together",
            "align the files again: a line may be missing or extra before these, or one file was reordered",
        ),
        "byte_order_mark": Finding(
            "files that start with a byte order mark",
            "nothing to do here: the mark is not read as text; other tools may not accept it",
        ),
        "not_utf8": Finding(
            "lines that are not UTF-8", "convert the file to UTF-8, for example with iconv", dropped=True
        ),
        "empty": Finding(
            "pairs with an empty side",
            "remove the line from both sides, or add the missing text",
            dropped=True,
        ),
        "ignored_columns": Finding(
            "lines with more columns than source and target",
            "remove the other columns, or ignore this: only the first two are read",
        ),
        "nul": Finding(
            "lines with NUL characters", "remove them: they often come from text that was saved as UTF-16"
        ),
        "line_breaks": Finding(
            "lines that contain CR, U+2028, U+2029 or U+0085",
            "replace them by spaces: other tools split lines there",
        ),
        "spaces": Finding(
            "lines with no-break spaces (U+00A0, U+2007, U+202F) beside plain ones",
            "use --normalize nfkc to read them as plain spaces, or replace them",
        ),
        "long": Finding(f"lines longer than {LONG:,} characters", "split them into sentences"),
        "uneven": Finding(
            "pairs with one side far longer than usual", "check that these lines belong together"
        ),
        "copies": Finding(
            "pairs with the same text on both sides", "remove them, or the model learns to copy its source"
        ),
        "repeated": Finding("repeated pairs", "keep one of each, or they count several times in training"),
        "leaked": Finding(
            "validation or test pairs that are also training pairs", "remove them from the training data"
        ),
        "leaked_sources": Finding(
            "validation or test sources that training has with another target",
            "remove them from the training data, or expect scores that are too good",
        ),
        "unusable": Finding(
            "validation or test lines that are empty or not UTF-8",
            "correct them: they are left out, or refused by other commands",
        ),
        "unseen": Finding(
            "validation or test lines with characters that are never seen in training",
            "train on more text, or use --tokenizer byte",
        ),
    }
