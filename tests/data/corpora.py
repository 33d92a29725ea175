"""Small corpora and tokenizers for the tests of the data room."""

import gzip
import random
from functools import lru_cache
from pathlib import Path

import pytest

from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.tokenizer import TokenizerPair, train
from transduce.errors import DataError

KINDS = ("bpe", "unigram", "wordpiece", "char", "byte")
_WORDS = ["the", "a", "dog", "cat", "man", "house", "green", "runs", "sees", "under", "bridge", "water,"]
_WORDS += ["children's", "play;", "über", "große", "7", "Straße"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """No two alike."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(_WORDS, k=generator.randint(3, 9))) + f" {i}." for i in range(count)]


@lru_cache
def tokenizer(kind: str = "bpe") -> TokenizerPair:
    return train(sentences(200), sentences(200, seed=1), kind=kind, size=600)


def write(path: Path, lines, end: bytes = b"\n") -> Path:
    """A file of these lines, texts or bytes; gzip if its name says so."""
    content = b"".join((line if isinstance(line, bytes) else line.encode()) + end for line in lines)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def corpus(folder: Path, pairs, name: str = "train") -> Corpus:
    """Two aligned files."""
    source = write(folder / f"{name}.source", [source for source, _ in pairs])
    return Corpus((AlignedFiles(source, write(folder / f"{name}.target", [target for _, target in pairs])),))


def refused(call, *arguments, **options) -> str:
    """The one line that says why."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
