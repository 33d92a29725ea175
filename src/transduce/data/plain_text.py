"""Plain text files to prepared blocks: the lines that are not blank, tokenised, cut, written as ids."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from transduce.data.blocks import Cutter
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Sequences, SequenceWriter
from transduce.data.rows import Rows
from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError

SIDE = "text"  # the name of its files
_AT_ONCE = 20_000  # lines


def read_texts(paths: Sequence[Path]) -> Iterator[str]:
    """The lines of these files that are not blank; they must be UTF-8."""
    for path in paths:
        yield from (line for line in decode_lines(raw_lines(path), str(path)) if line and not line.isspace())


def prepare_text(
    folder: Path,
    encode: Callable[[list[str]], Rows],
    vocabulary: int,
    cutter: Callable[[], Cutter],
    train: Sequence[Path],
    valid: Sequence[Path] = (),
    *,
    hold_out: float = 0.02,
    begin: Rows | None = None,
) -> None:
    """Write ``folder/train`` and ``folder/valid``. ``begin`` stands before the text of each.

    Without files for validation, a share of the lines is held out: the last ones if the text is packed, so
    that it stays one text; otherwise every line by itself decides, so that repetitions stay on one side.
    """
    is_held = (lambda number, text: False) if valid else _holding_out(train, cutter().packed, hold_out)
    parts = {"train": train, "valid": valid or train}
    for part, paths in parts.items():
        wanted = part == "valid" and not valid
        texts = (text for number, text in enumerate(read_texts(paths)) if is_held(number, text) == wanted)
        with closing(SequenceWriter(folder / part, SIDE, vocabulary)) as writer:
            cut = cutter()
            first = next(texts, None)
            if first is None:
                break
            writer.write(cut.cut(begin) if begin is not None else Rows.of([]))
            writer.write(cut.cut(encode([first])))
            while chunk := list(islice(texts, _AT_ONCE)):
                writer.write(cut.cut(encode(chunk)))
            writer.write(cut.rest())
    for part, paths in parts.items():
        if not (folder / part / f"{SIDE}.offsets").exists() or not len(Sequences(folder / part, SIDE)):
            _complain(part, paths, given=part == "train" or bool(valid))


def _holding_out(paths: Sequence[Path], packed: bool, share: float) -> Callable[[int, str], bool]:
    if not packed:
        return lambda number, text: is_held_out(text, share)
    count = sum(1 for _ in read_texts(paths))
    first = count - max(1, round(share * count))
    return lambda number, text: number >= first


def _complain(part: str, paths: Sequence[Path], *, given: bool) -> None:
    names = " and ".join(map(str, paths))
    if given and next(read_texts(paths), None) is None:
        raise DataError(f"{names} holds no text", "give a file with lines that are not blank")
    what = "training" if part == "train" else "validation"
    raise DataError(
        f"{names} is so short that nothing is left for {what}",
        "give more text, a file for validation (--valid), or another --hold-out",
    )
