import numpy as np

from transduce.data.masking import IGNORED, mask_tokens

ORDINARY = np.arange(10, 1000)
MASK = 4


def draw(seed, length=200):
    text = np.random.default_rng(99).integers(10, 1000, length).astype(np.uint16)
    return text, mask_tokens(text, MASK, ORDINARY, np.random.default_rng(seed))


def test_statistics():
    masked = exchanged = kept = chosen = total = 0
    for seed in range(500):
        text, found = draw(seed)
        where = found.labels != IGNORED
        assert (found.labels[where] == text[where]).all()
        assert (found.tokens[~where] == text[~where]).all()
        assert np.isin(found.tokens[where], [MASK, *ORDINARY]).all()
        total, chosen = total + len(text), chosen + where.sum()
        masked += (found.tokens[where] == MASK).sum()
        kept += (found.tokens[where] == text[where]).sum()
        exchanged += ((found.tokens[where] != MASK) & (found.tokens[where] != text[where])).sum()
    assert chosen == 0.15 * total
    # 15,000 samples: three standard deviations are 0.01
    assert abs(masked / chosen - 0.8) < 0.01
    assert abs(exchanged / chosen - 0.1) < 0.01
    assert abs(kept / chosen - 0.1) < 0.01


def test_every_token_is_chosen_sometimes():
    seen = sum((draw(seed)[1].labels != IGNORED).astype(int) for seed in range(500))
    assert seen.min() > 30
    assert seen.max() < 130


def test_segmentation_depends_on_the_generator_alone():
    (_, one), (_, same), (_, other) = draw(1), draw(1), draw(2)
    assert (one.tokens == same.tokens).all()
    assert (one.labels == same.labels).all()
    assert (one.labels != other.labels).any()


def test_special_tokens_are_never_chosen():
    text = np.array([*range(10), *range(10, 30)] * 10)
    for seed in range(50):
        found = mask_tokens(text, MASK, ORDINARY, np.random.default_rng(seed))
        assert (found.labels[text < 10] == IGNORED).all()
        assert (found.labels != IGNORED).sum() == 30  # 15% of the others
    unknown = mask_tokens(np.full(20, 1), MASK, ORDINARY, np.random.default_rng(0))
    assert (unknown.labels != IGNORED).sum() == 3  # no other tokens


def test_at_least_one_token_is_predicted():
    for length in range(1, 4):
        assert (draw(0, length)[1].labels != IGNORED).sum() == 1
