"""Lines of equally long files that do not belong together: shifted, shuffled or unrelated.

The two sides of a pair resemble each other: long sentences have long translations, questions stay questions,
numbers and names stay what they are. For every shift of the target lines against the source lines, the
resemblance is measured by phase correlation, which ignores trends and repeating patterns within a file. The
measure is given in standard deviations above chance: above 10 for as few as 300 aligned pairs of real text,
below 5 for pairs that do not belong together.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MINIMUM_PAIRS = 300  # fewer say too little
WINDOW = 500  # pairs that are judged together
ALIGNED = 7.0  # standard deviations above chance
SHIFTED = 10.0
RELATED = 6.0

_MARKS = ("?？", "!！", ":：", ";；", ",，、", "(（", '"“„«「')
_RARE = 0.02  # features in a smaller share of the lines are noise
_BUCKETS = 8  # for numbers and words
_PREFIX = 5  # letters in which cognates agree
_WORD = re.compile(r"\w+")
_FEATURES = 100  # frequent words and characters per side
_PERMUTATIONS = 20
_SAMPLE = 2000  # pairs


@dataclass(frozen=True)
class Misalignment:
    """Pairs in a row that do not belong together."""

    begin: int  # the first pair
    end: int  # the pair after the last one
    evidence: float  # that the pairs belong together, in standard deviations above chance
    shift: int | None = None  # source i belongs to target i + shift, if that could be found
    shift_evidence: float = 0.0


def find_misaligned(sources: Sequence[str], targets: Sequence[str]) -> list[Misalignment]:
    """Return the misaligned regions among pairs in a row; none if there are too few pairs to tell."""
    if len(sources) < MINIMUM_PAIRS:
        return []
    windows = _windows(len(sources))
    source, target = _shapes(sources, targets)
    suspicious = [
        window
        for window in windows
        if not _is_aligned(source[window], target[window])
        and not _is_aligned(_words(sources[window]), _words(targets[window]))
    ]
    regions = [
        misalignment
        for region in _joined(suspicious)
        if (misalignment := _judge(region, sources, targets)) is not None
    ]
    if not suspicious and len(windows) > 1:
        # Where neighboring lines resemble each other, a shift shows only in comparison with other shifts.
        whole = _shift_of(_resemblance(source, target), len(sources))
        regions += [whole] if whole else []
    return regions


def _windows(pairs: int) -> list[slice]:
    ends = np.linspace(0, pairs, max(1, pairs // WINDOW) + 1).astype(int).tolist()
    return [slice(begin, end) for begin, end in pairwise(ends)]


def _joined(windows: list[slice]) -> list[slice]:
    """Join windows that touch each other."""
    joined: list[slice] = []
    for window in windows:
        if joined and joined[-1].stop == window.start:
            joined[-1] = slice(joined[-1].start, window.stop)
        else:
            joined.append(window)
    return joined


def _is_aligned(source: Array, target: Array) -> bool:
    resemblance = _resemblance(source, target)
    return bool(resemblance[0] >= ALIGNED and resemblance.max() <= 2 * resemblance[0])


def _judge(region: slice, sources: Sequence[str], targets: Sequence[str]) -> Misalignment | None:
    """Look for the shift of a region whose lines do not resemble each other, or for any other relation."""
    words = _words(sources), _words(targets)
    for source, target in (_shapes(sources, targets), words):
        outside = np.ones(len(sources), bool)
        outside[region] = False
        source[outside] = source[region].mean(axis=0)
        shifted = _shift_of(_resemblance(source, target), len(sources))
        if shifted:
            return Misalignment(
                region.start, region.stop, shifted.evidence, shifted.shift, shifted.shift_evidence
            )
    sample = slice(region.start, min(region.stop, region.start + _SAMPLE))
    dependence = _dependence(sources[sample], targets[sample])
    if dependence is None or dependence >= RELATED:
        return None
    return Misalignment(region.start, region.stop, dependence)


def _shift_of(resemblance: Array, pairs: int) -> Misalignment | None:
    best = int(resemblance.argmax())
    if resemblance[best] < SHIFTED or resemblance[best] <= 2 * resemblance[0]:
        return None
    shift = best if best <= pairs // 2 else best - pairs
    return Misalignment(0, pairs, float(resemblance[0]), shift, float(resemblance[best]))


def _resemblance(source: Array, target: Array) -> Array:
    """Return for every circular shift of the target how much it resembles the source: (pairs,).

    The features of both sides, (pairs, features), are compared by phase correlation (Kuglin and Hines, 1975).
    """
    frequent = np.minimum((source != 0).mean(axis=0), (target != 0).mean(axis=0)) >= _RARE
    source, target = source[:, frequent], target[:, frequent]
    spectra = np.fft.rfft(source - source.mean(axis=0), axis=0).conj()
    spectra *= np.fft.rfft(target - target.mean(axis=0), axis=0)
    size = np.abs(spectra)
    phases = np.divide(spectra, size, out=np.zeros_like(spectra), where=size > 1e-9)
    correlation = np.fft.irfft(phases.sum(axis=1), len(source))
    typical = np.sort(correlation)[3:-3].std()
    # Identical sides leave no noise to compare with; a fifth of what random phases would give is then used.
    chance = 0.2 * np.sqrt(max(1, source.shape[1]) / len(source))
    return np.asarray(correlation / max(typical, chance), np.float64)


def _shapes(sources: Sequence[str], targets: Sequence[str]) -> tuple[Array, Array]:
    """Return length, number of words and punctuation of the texts of each side: (texts, features)."""
    whole_source, whole_target = "".join(sources), "".join(targets)
    frequent = [
        marks
        for marks in _MARKS
        if min(_count(whole_source, marks), _count(whole_target, marks)) >= _RARE * len(sources)
    ]
    return _shape(sources, whole_source, frequent), _shape(targets, whole_target, frequent)


def _shape(texts: Sequence[str], whole: str, frequent: list[str]) -> Array:
    columns = [[len(text) for text in texts], [text.count(" ") for text in texts]]
    for marks in frequent:
        first, *others = (mark for mark in marks if mark in whole)
        columns.append([text.count(first) for text in texts])
        if others:
            columns[-1] = [
                count + _count(text, others) for count, text in zip(columns[-1], texts, strict=True)
            ]
    features = np.array(columns, np.float64).T
    features[:, :2] = np.log1p(features[:, :2])
    return features


def _count(text: str, characters: Iterable[str]) -> int:
    return sum(map(text.count, characters))


def _words(texts: Sequence[str]) -> Array:
    """Return counts of numbers, and of long words by their beginnings, in hash buckets: (texts, buckets)."""
    counts = np.zeros((len(texts), _BUCKETS))
    for row, text in zip(counts, texts, strict=True):
        for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
            if word[0].isdigit() or len(word) >= _PREFIX:
                same = word if word[0].isdigit() else word[:_PREFIX]
                row[zlib.crc32(same.encode()) % _BUCKETS] += 1
    return counts


def _dependence(sources: Sequence[str], targets: Sequence[str]) -> float | None:
    """Return how much more often certain words and characters meet in pairs than in random pairings.

    This finds any relation between the sides, also one of texts that share nothing. The result is in standard
    deviations above chance; ``None`` if one side is the same everywhere.
    """
    source, target = _presence(sources), _presence(targets)
    if not source.shape[1] or not target.shape[1]:
        return None
    generator = np.random.default_rng(0)
    shuffled = [
        _association(source, target[generator.permutation(len(target))]) for _ in range(_PERMUTATIONS)
    ]
    return float((_association(source, target) - np.mean(shuffled)) / max(float(np.std(shuffled)), 1e-9))


def _association(source: Array, target: Array) -> float:
    """Return the sum of the squared correlations between all features of both sides."""
    return float(np.square(source.T @ target).sum())


def _presence(texts: Sequence[str]) -> Array:
    """Return which of the frequent words and characters are in each text, standardized: (texts, features)."""
    sets = [{*text.casefold().split(), *text} for text in texts]
    counts = Counter(feature for features in sets for feature in features)
    varying = [
        feature
        for feature, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if 0.01 * len(texts) <= count <= 0.95 * len(texts)
    ]
    columns = {feature: column for column, feature in enumerate(varying[:_FEATURES])}
    present = np.zeros((len(texts), len(columns)))
    for row, features in zip(present, sets, strict=True):
        row[[columns[feature] for feature in features if feature in columns]] = 1
    return np.asarray((present - present.mean(axis=0)) / present.std(axis=0))
