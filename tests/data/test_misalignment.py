"""Shifted and shuffled files are found, whatever the languages; aligned ones never are."""

import random

import pytest

from transduce.data.misalignment import MINIMUM_PAIRS, find_misaligned
from transduce.data.text_files import decode_lines, raw_lines
from transduce.tasks.sequences import copy_pairs, reverse_pairs


def english(count, seed=0):
    """Return sentences and their renderings in another alphabet, longer and in another order."""
    generator = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(300)]
    sources = [" ".join(generator.choices(vocabulary, k=generator.randint(3, 20))) for _ in range(count)]
    targets = [" ".join(f"Ж{word[4:]}ль" for word in reversed(source.split())) for source in sources]
    return sources, targets


def labels(count):
    """Return texts and one of two labels of the same length: sides that share nothing."""
    generator = random.Random(1)
    pairs = []
    for _ in range(count):
        label = generator.choice(["good", "poor"])
        words = generator.choices(["the", "film", "was", {"good": "fine", "poor": "dull"}[label]], k=8)
        pairs.append((" ".join(words), label))
    return [source for source, _ in pairs], [target for _, target in pairs]


def columns(pairs):
    pairs = list(pairs)
    return [source for source, _ in pairs], [target for _, target in pairs]


def read(path):
    return list(decode_lines(raw_lines(path), str(path)))


def shared_corpora(shared):
    data = shared / "data"
    for source, target in (
        ("multi30k-en-de/train.en.gz", "multi30k-en-de/train.de.gz"),
        ("multi30k-en-de/val.en.gz", "multi30k-en-de/val.de.gz"),
        ("flores-en-pt/flores-test.en", "flores-en-pt/flores-test.pt"),
        ("flores-zh-en/flores-test.zh", "flores-zh-en/flores-test.en"),
    ):
        yield read(data / source)[:20_000], read(data / target)[:20_000]
    yield columns(line.split(maxsplit=1) for line in read(data / "cmudict" / "train.gz")[:20_000])


def rotated(texts, shift):
    return texts[shift:] + texts[:shift]


def shuffled(texts):
    return random.Random(2).sample(texts, len(texts))


@pytest.fixture(
    params=[english, labels, lambda n: columns(copy_pairs(n, 1)), lambda n: columns(reverse_pairs(n, 1))],
    ids=["words", "labels", "copy", "reverse"],
)
def make(request):
    return request.param


@pytest.mark.parametrize("count", [0, 1, 50, 300, 2000])
def test_aligned_texts_raise_no_alarm(make, count):
    assert find_misaligned(*make(count)) == []


@pytest.mark.parametrize("count", [300, 2000])
def test_shuffled_texts_are_found(make, count):
    sources, targets = make(count)
    (found,) = find_misaligned(sources, shuffled(targets))
    assert (found.begin, found.end, found.shift) == (0, count, None)
    assert found.evidence < 5


@pytest.mark.parametrize("shift", [1, 37, -500])
def test_shifted_texts_are_found_with_their_shift(shift):
    sources, targets = english(2000)
    (found,) = find_misaligned(sources, rotated(targets, shift))
    assert (found.begin, found.end, found.shift) == (0, 2000, -shift)
    assert found.shift_evidence > 10 > found.evidence


def test_a_part_that_is_misaligned_is_found():
    sources, targets = english(3000)
    targets = [*targets[:1500], "extra line", *targets[1500:-1]]
    (found,) = find_misaligned(sources, targets)
    assert (found.begin, found.end, found.shift) == (1500, 3000, 1)


def test_tiny_and_uniform_texts_raise_no_alarm():
    sources, targets = english(MINIMUM_PAIRS - 1)
    assert find_misaligned(sources, shuffled(targets)) == []
    assert find_misaligned(["same"] * 1000, ["gleich"] * 1000) == []
    assert find_misaligned(english(1000)[0], ["gleich"] * 1000) == []


def test_real_data_raise_no_alarm(shared):
    for sources, targets in shared_corpora(shared):
        assert find_misaligned(sources, targets) == []
        for begin in range(0, len(sources), 5000):
            part = slice(begin, begin + 350)
            assert find_misaligned(sources[part], targets[part]) == []


def test_real_data_out_of_order_are_found(shared):
    for sources, targets in shared_corpora(shared):
        shift = len(targets) // 20  # 1,000 of 20,000 lines
        (found,) = find_misaligned(sources, rotated(targets, shift))
        assert (found.begin, found.end, found.shift) == (0, len(sources), -shift)
        (found,) = find_misaligned(sources[:1000], shuffled(targets[:1000]))
        assert (found.begin, found.end, found.shift) == (0, 1000, None)
