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


def sampled(seed=1, count=1, sampling=Sampling(), max_length=5, model=None, **options):  # noqa: B008
    generators, model = [np.random.default_rng([seed, line]) for line in range(2)], model or Toy(8, 1)
    return sample(model, SOURCE, [max_length] * 2, sampling, generators, count=count, **options)


def test_tokens_are_sampled_with_their_probability():
    model = Toy(8, 1)
    results = sampled(count=2000, max_length=1, model=model)[0]
    probabilities = model.logits((3, 4, 5), (1,)).softmax(-1)
    probabilities[:2] = 0
    probabilities /= probabilities.sum()  # padding and bos are never sampled
    tokens = torch.tensor([each.tokens[0] if each.tokens else 2 for each in results])
    counts = torch.bincount(tokens, minlength=8)
    spread = (2000 * probabilities * (1 - probabilities)).sqrt()
    assert ((counts - 2000 * probabilities).abs() <= 4 * spread + 1e-9).all()


def test_scores_are_the_models_own():
    model = Toy(8, 1)
    for each in sampled(count=5, sampling=Sampling(temperature=0.3, top_k=3), model=model)[1]:
        history, total = (1,), 0.0
        for token in [*each.tokens, 2][: len(each.log_probabilities)]:
            total += model.logits((5, 4, 3), history).log_softmax(-1)[token].item()
            history = (*history, token)
        assert each.score == pytest.approx(total, rel=1e-4)


def test_the_seed_decides():
    assert sampled(seed=1, count=8) == sampled(seed=1, count=8)
    assert sampled(seed=1, count=8) != sampled(seed=2, count=8)


def test_logits_that_are_nan_are_an_error():
    model = small_model()
    model.decoder.layers[0].feed_forward.inner.weight.data.fill_(1e38)
    with pytest.raises(TransduceError):
        sampled(model=model)


def test_a_narrow_distribution_is_greedy_decoding():
    narrow = Sampling(temperature=1e-3), Sampling(top_k=1), Sampling(top_p=1e-6)
    results = [sampled(sampling=sampling, seed=seed) for seed, sampling in enumerate(narrow)]
    assert len({str([row[0].tokens for row in each]) for each in results}) == 1


def test_samples_do_not_depend_on_the_batch():
    together = sampled(count=3)
    for line in range(2):
        alone = sample(
            Toy(8, 1),
            SOURCE[line : line + 1],
            [5],
            Sampling(),
            [np.random.default_rng([1, line])],
            count=3,
        )
        assert [each.tokens for each in alone[0]] == [each.tokens for each in together[line]]


def test_a_target_without_a_possible_next_token_is_dropped():
    def forbid_all(scores, beams):
        scores[0 if beams.length == 2 else slice(0)] = -torch.inf

    assert [len(results) for results in sampled(count=2, model=Toy(30, 1), rules=[forbid_all])] == [1, 2]


def test_rules_apply_to_samples():
    assert all(len(each.tokens) >= 3 for each in sampled(count=20, rules=[min_length(3, eos=2)])[0])


@given(
    values=st.lists(st.integers(-500, 500).map(lambda n: n / 100), min_size=2, max_size=8, unique=True),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.05, 1.0),
)
def test_top_k_and_top_p_keep_the_most_likely_tokens(values, top_k, top_p):
    left = Sampling(top_k=top_k, top_p=top_p).narrow(torch.tensor([values]))[0]
    order = sorted(range(len(values)), key=lambda token: -values[token])[: top_k or None]
    probabilities = torch.tensor([values[token] for token in order]).softmax(0).tolist()
    kept, before = set(), 0.0
    for token, probability in zip(order, probabilities, strict=True):
        if before < top_p - 1e-6:
            kept.add(token)
        elif before < top_p + 1e-6:
            return  # on the edge: rounding decides
        before += probability
    assert {token for token in range(len(values)) if left[token] > -torch.inf} == kept
