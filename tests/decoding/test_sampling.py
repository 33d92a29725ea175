import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy

from builders import small_model
from transduce.decoding.rules import min_length
from transduce.decoding.sampling import Sampling, sample
from transduce.errors import TransduceError

SOURCE = torch.tensor([[3, 4, 5], [5, 4, 3]])


def draw(seed=1, count=1, sampling=Sampling(), max_length=5, model=None, **options):  # noqa: B008
    draws, model = [np.random.default_rng([seed, line]) for line in range(2)], model or Toy(8, 1)
    return sample(model, SOURCE, [max_length] * 2, sampling, draws, count=count, **options)


def test_draws_are_as_frequent_as_they_are_likely():
    model = Toy(8, 1)
    found = draw(count=4000, max_length=1, model=model)[0]
    chances = model.logits((3, 4, 5), (1,)).softmax(-1)
    chances[:2] = 0
    chances /= chances.sum()  # padding and bos are never drawn
    said = torch.tensor([one.tokens[0] if one.tokens else 2 for one in found])
    counts = torch.bincount(said, minlength=8)
    spread = (4000 * chances * (1 - chances)).sqrt()
    assert ((counts - 4000 * chances).abs() <= 4 * spread + 1e-9).all()


def test_scores_are_the_models_own():
    model = Toy(8, 1)
    for one in draw(count=5, sampling=Sampling(temperature=0.3, top_k=3), model=model)[1]:
        history, total = (1,), 0.0
        for token in [*one.tokens, 2][: len(one.log_probabilities)]:
            total += model.logits((5, 4, 3), history).log_softmax(-1)[token].item()
            history = (*history, token)
        assert one.score == pytest.approx(total, rel=1e-4)


def test_the_seed_decides():
    assert draw(seed=1, count=8) == draw(seed=1, count=8)
    assert draw(seed=1, count=8) != draw(seed=2, count=8)


def test_a_model_without_numbers_is_named():
    model = small_model()
    model.decoder.layers[0].feed_forward.inner.weight.data.fill_(1e38)
    with pytest.raises(TransduceError, match="no numbers for the next token"):
        draw(model=model)


def test_cold_draws_are_greedy():
    narrow = Sampling(temperature=1e-3), Sampling(top_k=1), Sampling(top_p=1e-6)
    found = [draw(sampling=sampling, seed=seed) for seed, sampling in enumerate(narrow)]
    assert len({str([one[0].tokens for one in each]) for each in found}) == 1


def test_what_is_drawn_does_not_depend_on_neighbours():
    together = draw(count=3)
    for line in range(2):
        alone = sample(
            Toy(8, 1),
            SOURCE[line : line + 1],
            [5],
            Sampling(),
            [np.random.default_rng([1, line])],
            count=3,
        )
        assert [one.tokens for one in alone[0]] == [one.tokens for one in together[line]]


def test_what_cannot_go_on_is_dropped():
    def forbid_all(scores, beams):
        scores[0 if beams.length == 2 else slice(0)] = -torch.inf

    assert [len(found) for found in draw(count=2, model=Toy(30, 1), rules=[forbid_all])] == [1, 2]


def test_rules_hold():
    assert all(len(one.tokens) >= 3 for one in draw(count=20, rules=[min_length(3, eos=2)])[0])


@given(
    values=st.lists(st.integers(-500, 500).map(lambda n: n / 100), min_size=2, max_size=8, unique=True),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.05, 1.0),
)
def test_what_is_left_to_draw_from(values, top_k, top_p):
    left = Sampling(top_k=top_k, top_p=top_p).narrow(torch.tensor([values]))[0]
    order = sorted(range(len(values)), key=lambda token: -values[token])[: top_k or None]
    chances = torch.tensor([values[token] for token in order]).softmax(0).tolist()
    kept, before = set(), 0.0
    for token, chance in zip(order, chances, strict=True):
        if before < top_p - 1e-6:
            kept.add(token)
        elif before < top_p + 1e-6:
            return  # on the edge: rounding decides
        before += chance
    assert {token for token in range(len(values)) if left[token] > -torch.inf} == kept
