"""Small corpora and tokenizers for the tests of the data room."""

import gzip
import random
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import strategies as st

from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import DataError

KINDS = ("bpe", "unigram", "wordpiece", "char", "byte", "symbols")
# No line feed; no CR at the end, where it would be half a line end; no byte order mark.
line_texts = st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"])).filter(
    lambda text: not text.endswith("\r")
)
_WORDS = ["the", "a", "dog", "cat", "man", "house", "green", "runs", "sees", "under", "bridge", "water,"]
_WORDS += ["children's", "play;", "über", "große", "7", "Straße"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Return sentences, no two of them alike."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(_WORDS, k=generator.randint(3, 9))) + f" {i}." for i in range(count)]


@lru_cache
def tokenizer(kind: str = "bpe", form: str = "nfc") -> TokenizerPair:
    return train_tokenizer(sentences(200), sentences(200, seed=1), kind=kind, size=600, normalize=form)


def write(path: Path, lines, end: bytes = b"\n") -> Path:
    """Write a file of these lines, texts or bytes; gzip if its name ends in .gz."""
    content = b"".join((line if isinstance(line, bytes) else line.encode()) + end for line in lines)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def corpus(folder: Path, pairs, name: str = "train") -> Corpus:
    """Write two aligned files."""
    source = write(folder / f"{name}.source", [source for source, _ in pairs])
    return Corpus((AlignedFiles(source, write(folder / f"{name}.target", [target for _, target in pairs])),))


def refused(call, *arguments, **options) -> str:
    """Return the one line that says why a call is refused."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pairs_of(part, size: int = 3) -> list[tuple[str, str]]:
    """Return the pairs of a corpus as texts, after checking that its chunks count lines correctly."""
    expected: dict[str, int] = {}
    pairs = []
    for chunk in part.chunks(size):
        count = len(chunk.sources)
        first = expected.setdefault(chunk.where, 1)
        assert len(chunk.targets) == count <= size
        assert list(chunk.lines) == list(range(first, first + count))
        expected[chunk.where] += count
        sources, targets = ([line.decode() for line in side] for side in (chunk.sources, chunk.targets))
        pairs += list(zip(sources, targets, strict=True))
    return pairs
