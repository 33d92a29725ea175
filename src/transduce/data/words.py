"""Words: no subword spans a space, so that a word has the same ids wherever it stands."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from threading import Lock
from typing import cast

import numpy as np
import numpy.typing as npt

from transduce.data.rows import Ids, Numbers, Rows

# Limits of memory, however many words there are
MAX_CACHED_IDS = 1_000_000
MAX_COUNTED_BYTES = 4_000_000  # of different words: the trainers need up to 100 times as much memory
MAX_TRAINING_WORDS = 20_000_000  # of more words, the trainers read an even share
_BATCH_CHARACTERS = 2_000_000
_COPIES_PER_TEXT = 1000
_WORDS_PER_TEXT = 50

Encode = Callable[[list[str]], Rows]


def words_of(text: str) -> list[str]:
    """Return the words of a normalized text; the whole text if they are not separated by single spaces."""
    words = text.split(" ")
    # White space other than a space is not printable, but not everything unprintable is white space.
    single_spaces = "  " not in text and (text.isprintable() or words == text.split())
    return words if single_spaces else [text]


def words_of_all(texts: list[str]) -> tuple[list[str], list[int]]:
    """Return the words of normalized texts, and the number of words of each text."""
    words = words_of(" ".join(texts))
    counts = [text.count(" ") + 1 for text in texts]
    if len(words) != sum(counts):  # some text has other white space
        by_text = [words_of(text) for text in texts]
        words, counts = list(chain.from_iterable(by_text)), list(map(len, by_text))
    return words, counts


class WordCache:
    """Encodes texts word by word, and caches the ids of each word up to a limit."""

    def __init__(self, encode: Encode, begins_word: npt.NDArray[np.bool_]) -> None:
        self._encode, self._begins_word = encode, begins_word  # the latter for each id
        self._lock = Lock()  # words are numbered one after the other
        self._numbers: dict[str, int]
        self._ids: Ids  # of all cached words, end to end
        self._ends: Numbers
        self._lengths: Numbers
        self._clear()

    def encode(self, texts: list[str]) -> Rows:
        """Return the ids of each normalized text."""
        words, counts = words_of_all(texts)
        with self._lock:
            ids, per_word = self._look_up(words)
        ends = np.concatenate(([0], np.cumsum(per_word)))
        return Rows(ids, np.diff(ends[np.cumsum([0, *counts])]))

    def _look_up(self, words: list[str]) -> tuple[Ids, Numbers]:
        """Return the ids of these words end to end, and the number of ids of each word."""
        if len(self._ids) > MAX_CACHED_IDS:
            self._clear()
        numbers = np.array(self._numbers_of(words), np.int64)
        lengths = self._lengths[numbers]
        # The index of every id in the cache: from the beginning of its word onwards.
        ends = np.cumsum(lengths)
        places = np.repeat(self._ends[numbers] - ends, lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self._ids[places], lengths

    def _numbers_of(self, words: list[str]) -> list[int]:
        numbers = list(map(self._numbers.get, words))
        new = [place for place, number in enumerate(numbers) if number is None]
        if new:
            self._add(list(dict.fromkeys(words[place] for place in new)))
        for place in new:
            numbers[place] = self._numbers[words[place]]
        return cast("list[int]", numbers)

    def _add(self, words: list[str]) -> None:
        whole = [word for word in words if len(word.split()) > 1]  # texts with other white space
        if whole:
            words = [word for word in words if len(word.split()) <= 1]
        for new, rows in ((words, self._encode_words(words)), (whole, self._encode(whole))):
            self._numbers.update((word, number) for number, word in enumerate(new, len(self._numbers)))
            self._ends = np.concatenate((self._ends, np.cumsum(rows.lengths) + len(self._ids)))
            self._ids = np.concatenate((self._ids, rows.ids))
            self._lengths = np.concatenate((self._lengths, rows.lengths))

    def _encode_words(self, words: list[str]) -> Rows:
        """Encode many words as one text, which is faster: the library has a large overhead per text."""
        together = range(0, len(words), _WORDS_PER_TEXT)
        ids = self._encode([" ".join(words[begin : begin + _WORDS_PER_TEXT]) for begin in together]).ids
        begins = np.flatnonzero(self._begins_word[ids])
        if len(begins) != len(words):  # some word does not begin with a space token
            return self._encode(words)
        return Rows(ids, np.diff(begins, append=len(ids)))

    def _clear(self) -> None:
        self._numbers = {"": 0}
        self._ids = np.empty(0, np.uint32)
        self._ends, self._lengths = np.zeros(1, np.int64), np.zeros(1, np.int64)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count every word; beyond `MAX_COUNTED_BYTES`, the rarest words are dropped along the way."""
    counts: Counter[str] = Counter()
    pending: list[str] = []
    characters = 0
    for text in texts:
        pending.append(text)
        characters += len(text)
        if characters >= _BATCH_CHARACTERS:
            counts.update(words_of_all(pending)[0])
            counts = _most_frequent(counts)
            pending, characters = [], 0
    counts.update(words_of_all(pending)[0])
    del counts[""]
    return _most_frequent(counts)


def count_characters(words: Counter[str]) -> Counter[str]:
    """Count the characters of counted words."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return characters


def _most_frequent(counts: Counter[str]) -> Counter[str]:
    """Return all words, or the most frequent ones in half of `MAX_COUNTED_BYTES` if they need more."""
    if _bytes(counts) <= MAX_COUNTED_BYTES:
        return counts
    kept: Counter[str] = Counter()
    room = MAX_COUNTED_BYTES // 2
    for word, count in counts.most_common():
        room -= len(word.encode()) + 1
        if room < 0:
            break
        kept[word] = count
    return kept


def _bytes(words: Iterable[str]) -> int:
    return len(" ".join(words).encode())


def repeated(counts: Counter[str]) -> Iterator[str]:
    """Yield texts with these words as often as counted; an even share if there are too many."""
    step = max(1.0, counts.total() / MAX_TRAINING_WORDS)
    seen = taken = 0
    for word, count in counts.items():
        seen += count
        copies = int(seen / step) - taken
        taken += copies
        for _ in range(copies // _COPIES_PER_TEXT):
            yield " ".join([word] * _COPIES_PER_TEXT)
        if copies % _COPIES_PER_TEXT:
            yield " ".join([word] * (copies % _COPIES_PER_TEXT))
