"""Words: subword models never look across a space, so that a word's ids are the same wherever it stands."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import cast

import numpy as np
import numpy.typing as npt

from transduce.data.rows import Ids, Numbers, Rows

# What is remembered of words has a bound, however many there are.
MOST_REMEMBERED = 1_000_000  # ids of words
MOST_COUNTED = 4_000_000  # bytes of different words: the trainers need up to 100 times as much memory
MOST_READ = 20_000_000  # words: of more, the trainers read an even share
_AT_ONCE = 2_000_000  # characters
_COPIES = 1000
_TOGETHER = 50

Encode = Callable[[list[str]], Rows]


def words_of(text: str) -> list[str]:
    """The words of a normalised text; all of it if they do not stand one space apart."""
    words = text.split(" ")
    # Any other white space is not printable; what is not printable need not be white space.
    apart = "  " not in text and (text.isprintable() or words == text.split())
    return words if apart else [text]


def words_of_all(texts: list[str]) -> tuple[list[str], list[int]]:
    """The words of normalised texts, and how many each has."""
    words = words_of(" ".join(texts))
    counts = [text.count(" ") + 1 for text in texts]
    if len(words) != sum(counts):  # there is odd space somewhere
        each = [words_of(text) for text in texts]
        words, counts = [word for found in each for word in found], [len(found) for found in each]
    return words, counts


class WordMemory:
    """Encodes texts word by word, and each word once, until there are too many of them."""

    def __init__(self, encode: Encode, begins_word: npt.NDArray[np.bool_]) -> None:
        self._encode, self._begins_word = encode, begins_word  # the latter by id
        self._lock = Lock()  # words get their numbers one after the other
        self._numbers: dict[str, int]
        self._ids: Ids  # of all words, end to end
        self._ends: Numbers
        self._lengths: Numbers
        self._forget()

    def encode(self, texts: list[str]) -> Rows:
        """Ids of each normalised text."""
        words, counts = words_of_all(texts)
        with self._lock:
            ids, per_word = self._recall(words)
        ends = np.concatenate(([0], np.cumsum(per_word)))
        return Rows(ids, np.diff(ends[np.cumsum([0, *counts])]))

    def _recall(self, words: list[str]) -> tuple[Ids, Numbers]:
        """The ids of these words end to end, and how many each has."""
        if len(self._ids) > MOST_REMEMBERED:
            self._forget()
        numbers = np.array(self._numbers_of(words), np.int64)
        lengths = self._lengths[numbers]
        # Where each id of each word stands in memory: words' beginnings, and on from there.
        ends = np.cumsum(lengths)
        places = np.repeat(self._ends[numbers] - ends, lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self._ids[places], lengths

    def _numbers_of(self, words: list[str]) -> list[int]:
        numbers = list(map(self._numbers.get, words))
        new = [place for place, number in enumerate(numbers) if number is None]
        if new:
            self._learn(list(dict.fromkeys(words[place] for place in new)))
        for place in new:
            numbers[place] = self._numbers[words[place]]
        return cast("list[int]", numbers)

    def _learn(self, words: list[str]) -> None:
        whole = [word for word in words if len(word.split()) > 1]  # texts with odd space
        if whole:
            words = [word for word in words if len(word.split()) <= 1]
        for new, rows in ((words, self._encode_words(words)), (whole, self._encode(whole))):
            self._numbers.update((word, number) for number, word in enumerate(new, len(self._numbers)))
            self._ends = np.concatenate((self._ends, np.cumsum(rows.lengths) + len(self._ids)))
            self._ids = np.concatenate((self._ids, rows.ids))
            self._lengths = np.concatenate((self._lengths, rows.lengths))

    def _encode_words(self, words: list[str]) -> Rows:
        """Many in one text, which is faster: the library has much to do for each text."""
        together = range(0, len(words), _TOGETHER)
        ids = self._encode([" ".join(words[begin : begin + _TOGETHER]) for begin in together]).ids
        begins = np.flatnonzero(self._begins_word[ids])
        if len(begins) != len(words):  # some word is unknown as a whole
            return self._encode(words)
        return Rows(ids, np.diff(begins, append=len(ids)))

    def _forget(self) -> None:
        self._numbers = {"": 0}
        self._ids = np.empty(0, np.uint32)
        self._ends, self._lengths = np.zeros(1, np.int64), np.zeros(1, np.int64)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs; beyond `MOST_COUNTED`, the rarest are forgotten as they come."""
    counts: Counter[str] = Counter()
    waiting: list[str] = []
    characters = 0
    for text in texts:
        waiting.append(text)
        characters += len(text)
        if characters >= _AT_ONCE:
            counts.update(words_of_all(waiting)[0])
            counts = _commonest(counts)
            waiting, characters = [], 0
    counts.update(words_of_all(waiting)[0])
    del counts[""]
    return _commonest(counts)


def count_characters(words: Counter[str]) -> Counter[str]:
    """Count the characters of counted words."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return characters


def _commonest(counts: Counter[str]) -> Counter[str]:
    """All, if they are not too many; else half as many as may be, and among equals the earlier ones."""
    if _bytes(counts) <= MOST_COUNTED:
        return counts
    kept: Counter[str] = Counter()
    room = MOST_COUNTED // 2
    for word, count in counts.most_common():
        room -= len(word.encode()) + 1
        if room < 0:
            break
        kept[word] = count
    return kept


def _bytes(words: Iterable[str]) -> int:
    return len(" ".join(words).encode())


def repeated(counts: Counter[str]) -> Iterator[str]:
    """Texts with these words as often as counted; of more than `MOST_READ`, an even share of them."""
    step = max(1.0, counts.total() / MOST_READ)
    seen = taken = 0
    for word, count in counts.items():
        seen += count
        copies = int(seen / step) - taken
        taken += copies
        for _ in range(copies // _COPIES):
            yield " ".join([word] * _COPIES)
        if copies % _COPIES:
            yield " ".join([word] * (copies % _COPIES))
