"""Parallel corpora: aligned files, and files that hold both sides; several of them in a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.data.chunks import CHUNK_PAIRS, Chunk, aligned_chunks, decode_texts
from transduce.data.factors import FactorLines
from transduce.data.mixture import split_weight
from transduce.data.pair_files import PairFile, pair_file
from transduce.data.text_files import count_lines, decode_lines, raw_lines, require_files
from transduce.errors import ConfigError, DataError


@dataclass(frozen=True)
class AlignedFiles:
    """Two files; each line of one is the translation of the same line of the other."""

    source: Path
    target: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """Both files."""
        return self.source, self.target

    def chunks(self, size: int = CHUNK_PAIRS) -> Iterator[Chunk]:
        """Yield all pairs; if one file is longer, raise a `DataError` that names both lengths."""
        pairs = zip(raw_lines(self.source), raw_lines(self.target), strict=True)
        try:
            yield from aligned_chunks(pairs, size, self.source, self.target)
        except ValueError as error:
            raise self._unequal() from error

    def _unequal(self) -> DataError:
        source_lines, target_lines = map(count_lines, self.paths)
        return DataError(
            f"{self.source} has {source_lines:,} lines and {self.target} has {target_lines:,}",
            f"run: transduce check --source {self.source} --target {self.target}",
        )


Part = AlignedFiles | PairFile


@dataclass(frozen=True)
class Corpus:
    """Several parts, one after the other.

    A file of source factors has a line for each pair of all parts. ``weights`` has a number for each part, or
    none if all parts have the weight 1; see `transduce.data.mixture`.
    """

    parts: tuple[Part, ...]
    factors: tuple[Path, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        sources: Sequence[Path],
        targets: Sequence[Path],
        pairs: Sequence[Path],
        purpose: str,
        factors: Sequence[Path] = (),
        *,
        weighted: bool = False,
    ) -> "Corpus | None":
        """Combine aligned files, then files that hold both sides; ``None`` if no files are given.

        ``purpose`` is the word that errors use: training, validation or test. If the files may be
        ``weighted``, ``a.tsv:3`` is the file ``a.tsv`` with the weight 3.
        """
        if len(sources) != len(targets):
            raise DataError(
                f"{len(sources)} source and {len(targets)} target files were given for {purpose}",
                "give one target file for each source file",
            )
        weights: tuple[float, ...] = ()
        if weighted:
            sources, targets, pairs, weights = _split_weights(sources, targets, pairs)
        aligned = [AlignedFiles(source, target) for source, target in zip(sources, targets, strict=True)]
        require_files((*sources, *targets, *pairs, *factors))
        parts: tuple[Part, ...] = (*aligned, *map(pair_file, pairs))
        return cls(parts, tuple(factors), weights) if parts else None

    def chunks(self, size: int = CHUNK_PAIRS) -> Iterator[Chunk]:
        """Yield all pairs of all parts; factors that do not fit their sources are a `DataError`."""
        names = [str(path) for path in self.factors]
        factors = FactorLines([decode_lines(raw_lines(Path(name)), name) for name in names], names)
        for number, part in enumerate(self.parts):
            for chunk in part.chunks(size):
                values = factors.take(decode_texts(chunk.sources)) if names else ()
                yield chunk._replace(factors=values, part=number)
        factors.finish()


def _split_weights(
    sources: Sequence[Path], targets: Sequence[Path], pairs: Sequence[Path]
) -> tuple[list[Path], list[Path], list[Path], tuple[float, ...]]:
    """Return the files without their weights, and the weight of every part of the corpus."""
    split = [[split_weight(path) for path in paths] for paths in (sources, targets, pairs)]
    weights = [weight or 1.0 for _, weight in split[2]]
    aligned: list[float] = []
    for (source, one), (target, other) in zip(split[0], split[1], strict=True):
        if one is not None and other is not None and one != other:
            raise ConfigError(
                f"{source} has the weight {one:g}, but {target} has {other:g}", "give only one of them"
            )
        aligned.append(one or other or 1.0)
    files = [[path for path, _ in side] for side in split]
    return files[0], files[1], files[2], (*aligned, *weights)
