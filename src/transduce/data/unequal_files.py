"""Files of unequal length: the line from which they no longer match."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transduce.data.corpus import AlignedFiles
from transduce.data.text_files import count_lines, raw_lines

Lengths = npt.NDArray[np.float64]
_LARGEST_MISFIT = 2.0  # limits the weight of a few odd pairs


@dataclass(frozen=True)
class Difference:
    """The first line at which two files no longer match."""

    where: str
    line: int
    description: str


def first_difference(files: AlignedFiles) -> Difference | None:
    """Estimate where a line is missing or extra; ``None`` if the files are equally long."""
    if count_lines(files.source) == count_lines(files.target):
        return None
    source, target = _lengths(files.source), _lengths(files.target)
    line = best_cut(source, target) + 1
    longer = files.target if len(target) > len(source) else files.source
    counts = f"{len(source):,} source lines, {len(target):,} target lines"
    return Difference(str(longer), line, f"{_line(longer, line)} ({counts}; they match up to about here)")


def best_cut(source: Lengths, target: Lengths) -> int:
    """Return how many lines match from the start if the remaining ones match when counted from the end.

    Lines that belong together have similar lengths: the cut is where the misfit of the first part, line by
    line, plus the misfit of the second part, shifted by the difference, is smallest.
    """
    count, shift = min(len(source), len(target)), len(target) - len(source)
    usual = np.median(np.log(source[:count] / target[:count])) if count else 0.0

    def misfit(first: Lengths, second: Lengths) -> Lengths:
        return np.minimum(np.abs(np.log(first / second) - usual), _LARGEST_MISFIT)

    from_start = misfit(source[:count], target[:count])
    from_end = misfit(source[max(0, -shift) :], target[max(0, shift) :])
    before = np.concatenate(([0.0], np.cumsum(from_start)))
    after = np.concatenate((np.cumsum(from_end[::-1])[::-1], [0.0]))
    return int(np.argmin(before + after))


def _lengths(path: Path) -> Lengths:
    """Return the length of every line in bytes, at least 1."""
    return np.fromiter((max(len(line), 1) for line in raw_lines(path)), np.float64)


def _line(path: Path, number: int) -> str:
    text = next(islice(raw_lines(path), number - 1, None), b"")
    return text.decode(errors="replace").strip()[:60]
