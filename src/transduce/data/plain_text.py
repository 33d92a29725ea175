"""Preparation of plain text: the lines that are not blank, tokenized, cut into blocks, written as ids."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transduce.data.blocks import Cutter
from transduce.data.normalization import DEFAULT, Normalization
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Sequences, SequenceWriter
from transduce.data.rows import Rows
from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError

SIDE = "text"  # the name of the prepared files
_BATCH = 20_000  # lines


def read_texts(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of these files that are not blank; they must be UTF-8."""
    for path in paths:
        lines = decode_lines(raw_lines(path), str(path))
        yield from (line for line in lines if line and not line.isspace())


def prepare_text(
    folder: Path,
    encode: Callable[[list[str]], Rows],
    vocabulary: int,
    cutter: Cutter,
    train: Sequence[Path],
    valid: Sequence[Path] = (),
    *,
    hold_out: float = 0.02,
    begin: Rows | None = None,
    form: Normalization | None = None,
) -> None:
    """Write ``folder/train`` and ``folder/valid``; ``begin`` is put before the text of each.

    Without validation files, a share of the lines is held out: the last lines if the text is packed, so that
    the rest stays one text; otherwise a hash of each line, in this normalization form, decides, so that
    repetitions stay together.
    """
    split = None if valid else _Split.of(train, hold_out, packed=cutter.packed, form=form or DEFAULT)
    parts = {"train": train, "valid": valid or train}
    for part, paths in parts.items():
        texts = split.texts(paths, held_out=part == "valid") if split else read_texts(paths)
        with closing(SequenceWriter(folder / part, SIDE, vocabulary)) as writer:
            first = next(texts, None)
            if first is None:
                break
            writer.write(cutter.cut(begin) if begin is not None else Rows.of([]))
            writer.write(cutter.cut(encode([first])))
            while chunk := list(islice(texts, _BATCH)):
                writer.write(cutter.cut(encode(chunk)))
            writer.write(cutter.rest())
    for part, paths in parts.items():
        if not (folder / part / f"{SIDE}.offsets").exists() or not len(Sequences(folder / part, SIDE)):
            raise _empty(part, paths, given=part == "train" or bool(valid))


@dataclass(frozen=True)
class _Split:
    """Which lines of a text are held out."""

    share: float
    form: Normalization
    first: int | None  # the first line held out, if lines are not chosen by their hashes

    @classmethod
    def of(cls, paths: Sequence[Path], share: float, *, packed: bool, form: Normalization) -> "_Split":
        if not packed:
            return cls(share, form, None)
        count = sum(1 for _ in read_texts(paths))
        return cls(share, form, count - max(1, round(share * count)))

    def texts(self, paths: Sequence[Path], *, held_out: bool) -> Iterator[str]:
        """Yield the lines that are held out, or the others."""
        for number, text in enumerate(read_texts(paths)):
            if self._is_held_out(number, text) == held_out:
                yield text

    def _is_held_out(self, number: int, text: str) -> bool:
        if self.first is None:
            return is_held_out(text, self.share, self.form)
        return number >= self.first


def _empty(part: str, paths: Sequence[Path], *, given: bool) -> DataError:
    names = " and ".join(map(str, paths))
    if given and next(read_texts(paths), None) is None:
        return DataError(f"{names} contains no text", "give a file with lines that are not blank")
    purpose = "training" if part == "train" else "validation"
    return DataError(
        f"{names} is so short that no text is left for {purpose}",
        "give more text or a validation file (--valid), or change --hold-out",
    )
