"""Preparation of plain text: the lines that are not blank, tokenized, cut into blocks, written as ids."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

from transduce.data.blocks import Cutter
from transduce.data.normalization import DEFAULT, Normalization
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Sequences, SequenceWriter
from transduce.data.rows import Rows
from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError

SIDE = "text"  # the name of the prepared files
Part = Literal["train", "valid"]
PARTS: tuple[Part, ...] = ("train", "valid")
_CHUNK = 20_000  # lines


def read_texts(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of these files that are not blank; they must be UTF-8."""
    for path in paths:
        lines = decode_lines(raw_lines(path), str(path))
        yield from (line for line in lines if line and not line.isspace())


@dataclass
class PlainText:
    """Training and validation text: files of lines, from which validation lines are held out if necessary.

    Of packed text, the last lines are held out, so that the rest stays one text. Otherwise a hash of each
    line, in the normalization ``form``, decides, so that repetitions stay together.
    """

    train: Sequence[Path]
    valid: Sequence[Path] = ()
    packed: bool = True
    hold_out: float = 0.02
    form: Normalization = DEFAULT

    def chunks(self, part: Part) -> Iterator[list[str]]:
        """Yield the lines of one part that are not blank, many at a time."""
        lines = read_texts(self.valid) if self.valid and part == "valid" else self._training_lines(part)
        chunk = list(islice(lines, _CHUNK))
        if not chunk:
            raise self._empty(part)
        while chunk:
            yield chunk
            chunk = list(islice(lines, _CHUNK))

    def write(self, folder: Path, part: Part, rows: Iterable[Rows], cutter: Cutter, vocabulary: int) -> None:
        """Cut the ids of one part into blocks and write them to ``folder/part``."""
        with closing(SequenceWriter(folder / part, SIDE, vocabulary)) as writer:
            for chunk in rows:
                writer.write(cutter.cut(chunk))
            writer.write(cutter.rest())
        if not len(Sequences(folder / part, SIDE)):
            raise self._empty(part)

    def _training_lines(self, part: Part) -> Iterator[str]:
        """Yield the lines of the training files that belong to this part."""
        for number, line in enumerate(read_texts(self.train)):
            if self._is_held_out(number, line) == (part == "valid"):
                yield line

    def _is_held_out(self, number: int, line: str) -> bool:
        if self.valid:
            return False
        if self.packed:
            return number >= self._first_held_out
        return is_held_out(line, self.hold_out, self.form)

    @cached_property
    def _first_held_out(self) -> int:
        count = sum(1 for _ in read_texts(self.train))
        return count - max(1, round(self.hold_out * count))

    def _empty(self, part: Part) -> DataError:
        paths = self.valid if self.valid and part == "valid" else self.train
        names = " and ".join(map(str, paths))
        if next(read_texts(paths), None) is None:
            return DataError(f"{names} contains no text", "give a file with lines that are not blank")
        purpose = "training" if part == "train" else "validation"
        return DataError(
            f"{names} is so short that no text is left for {purpose}",
            "give more text or a validation file (--valid), or change --hold-out",
        )
