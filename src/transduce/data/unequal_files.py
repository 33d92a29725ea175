"""Two files of unequal length, and the line at which they part."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transduce.data.corpus import AlignedFiles
from transduce.data.text_files import raw_lines

Lengths = npt.NDArray[np.float64]
_WORST = 2.0  # a misfit counts no more than this, so that a few odd pairs do not decide


@dataclass(frozen=True)
class Parting:
    """The first line at which two files no longer fit each other."""

    where: str
    line: int
    description: str


def parting_line(files: AlignedFiles) -> Parting | None:
    """``None`` if the files are equally long."""
    if _count(files.source) == _count(files.target):
        return None
    source, target = _lengths(files.source), _lengths(files.target)
    line = best_cut(source, target) + 1
    longer = files.target if len(target) > len(source) else files.source
    return Parting(
        str(longer),
        line,
        f"{_line(longer, line)} (here {len(source):,} source and {len(target):,} target lines stop fitting)",
    )


def best_cut(source: Lengths, target: Lengths) -> int:
    """How many lines fit as they stand, if the rest is taken to fit counted from the end.

    Lines that belong together have like lengths, so the cut is where the misfit of the first part, line by
    line, and of the second part, moved by the difference, add up to least.
    """
    count, moved = min(len(source), len(target)), len(target) - len(source)
    usual = np.median(np.log(source[:count] / target[:count])) if count else 0.0

    def misfit(one: Lengths, other: Lengths) -> Lengths:
        return np.minimum(np.abs(np.log(one / other) - usual), _WORST)

    from_start = misfit(source[:count], target[:count])
    from_end = misfit(source[max(0, -moved) :], target[max(0, moved) :])
    before = np.concatenate(([0.0], np.cumsum(from_start)))
    after = np.concatenate((np.cumsum(from_end[::-1])[::-1], [0.0]))
    return int(np.argmin(before + after))


def _count(path: Path) -> int:
    return sum(1 for _ in raw_lines(path))


def _lengths(path: Path) -> Lengths:
    """Of every line, in bytes, and at least 1."""
    return np.fromiter((max(len(line), 1) for line in raw_lines(path)), np.float64)


def _line(path: Path, number: int) -> str:
    text = next(islice(raw_lines(path), number - 1, None), b"")
    return text.decode(errors="replace").strip()[:60]
