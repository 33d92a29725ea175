"""The prepared corpus: token ids in memory-mapped files, written once, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np
import numpy.typing as npt

from transduce.data.mixture import MIXTURE, Mixture
from transduce.data.rows import Rows
from transduce.errors import DataError, reason_of

Offsets = npt.NDArray[np.int64]
_FACTOR = "factor"  # followed by a number; a side of its own
RESTORE = "restore the file, or start a new run in another folder"


class Sequences:
    """Sequences of ids, end to end in one file; a second file has the end of each."""

    def __init__(self, folder: Path, side: str) -> None:
        ends = folder / f"{side}.offsets"
        files = sorted(folder.glob(f"{side}.uint*"))
        if len(files) != 1 or files[0].suffix not in (".uint16", ".uint32"):
            raise DataError(f"{folder} has no file {side}.uint16 or .uint32, or both", RESTORE)
        self.path = files[0]
        self.offsets = cast("Offsets", _mapped(ends, np.dtype(np.int64)))
        self._ids = _mapped(self.path, np.dtype(self.path.suffix[1:]))
        if np.any(self.lengths < 0):
            raise DataError(f"{ends} is damaged: a sequence ends before it begins", RESTORE)
        end = int(self.offsets[-1]) if len(self.offsets) else 0
        if end != len(self._ids):
            raise DataError(f"{self.path} is damaged: it has {len(self._ids):,} ids, not {end:,}", RESTORE)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> npt.NDArray[np.generic]:
        begin = self.offsets[index - 1] if index else 0
        return self._ids[begin : self.offsets[index]]

    @property
    def lengths(self) -> Offsets:
        """The number of ids in every sequence."""
        return np.diff(self.offsets, prepend=0)

    def check(self, vocabulary: int, lengths: range) -> None:
        """Raise a `DataError` if an id is not in the vocabulary, or the length of a sequence not allowed."""
        if len(self._ids) and (largest := int(self._ids.max())) >= vocabulary:
            raise DataError(
                f"{self.path} is damaged: the id {largest} is outside the vocabulary of {vocabulary}", RESTORE
            )
        found = self.lengths
        for length in (int(found.min()), int(found.max())) if len(found) else ():
            if length not in lengths:
                raise DataError(
                    f"{self.path.with_suffix('.offsets')} is damaged: a sequence has {length:,} ids, not "
                    f"{lengths.start:,} to {lengths.stop - 1:,}",
                    RESTORE,
                )


@dataclass(frozen=True)
class Pairs:
    """Prepared sources and targets, in the same order."""

    source: Sequences
    target: Sequences
    factors: tuple[Sequences, ...] = ()  # of the source, each with an id for every source token
    mixture: Mixture | None = None  # the weights of training pairs that are not all seen once in an epoch

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def open(cls, folder: Path) -> "Pairs":
        """Open what a `PairWriter` wrote."""
        names = sorted(path.stem for path in folder.glob(f"{_FACTOR}*.offsets"))
        factors = tuple(Sequences(folder, name) for name in names)
        source, target = Sequences(folder, "source"), Sequences(folder, "target")
        pairs = cls(source, target, factors, Mixture.load(folder, len(source)))
        if len(pairs.source) != len(pairs.target):
            raise DataError(
                f"{folder} is damaged: sources: {len(pairs.source):,}, targets: {len(pairs.target):,}",
                RESTORE,
            )
        if any(not np.array_equal(factor.offsets, pairs.source.offsets) for factor in factors):
            raise DataError(f"{folder} is damaged: its factors do not fit the sources", RESTORE)
        return pairs

    def source_row(self, index: int) -> npt.NDArray[np.generic]:
        """Return the ids of a source, (source,), or with factors (source, 1 + factors)."""
        tokens = self.source[index]
        if not self.factors:
            return tokens
        return np.stack([tokens, *(factor[index] for factor in self.factors)], axis=1)


class SequenceWriter:
    """Writes the sequences of one side; `Sequences` reads them."""

    def __init__(self, folder: Path, side: str, vocabulary: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        for previous in folder.glob(f"{side}.uint*"):  # a vocabulary of another size may have another type
            previous.unlink()
        self._ids = (folder / f"{side}.{self._dtype.name}").open("wb")
        self._offsets = (folder / f"{side}.offsets").open("wb")
        self._end = 0

    def write(self, rows: Rows) -> None:
        """Append sequences."""
        ends = np.cumsum(rows.lengths) + self._end
        self._offsets.write(ends.tobytes())
        self._ids.write(rows.ids.astype(self._dtype).tobytes())
        self._end += len(rows.ids)

    def close(self) -> None:
        """Close the files."""
        self._ids.close()
        self._offsets.close()


class PairWriter:
    """Writes pairs; `Pairs.open` reads them."""

    def __init__(
        self, folder: Path, source_vocabulary: int, target_vocabulary: int, factors: Sequence[int] = ()
    ) -> None:
        """``factors`` are the vocabulary sizes of the source factors."""
        # An interrupted preparation may have had more factors, or weights.
        for previous in (*folder.glob(f"{_FACTOR}*"), *folder.glob(MIXTURE)):
            previous.unlink()
        self._factors = [
            SequenceWriter(folder, f"{_FACTOR}{number:02}", size) for number, size in enumerate(factors, 1)
        ]
        self._source = SequenceWriter(folder, "source", source_vocabulary)
        self._target = SequenceWriter(folder, "target", target_vocabulary)

    def write(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        """Append pairs."""
        self.write_rows(Rows.of(sources), Rows.of(targets))

    def write_rows(self, sources: Rows, targets: Rows, factors: Sequence[Rows] = ()) -> None:
        """Append pairs that are in arrays already."""
        self._source.write(sources)
        self._target.write(targets)
        for writer, rows in zip(self._factors, factors, strict=True):
            writer.write(rows)

    def __enter__(self) -> "PairWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (self._source, self._target, *self._factors):
            writer.close()


def _mapped(path: Path, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    try:
        # An empty file cannot be mapped.
        return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}", RESTORE) from error
    except ValueError as error:  # its size is not a multiple of the size of an id
        raise DataError(f"{path} is damaged: {error}", RESTORE) from error
