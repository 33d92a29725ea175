import pytest
import torch

from builders import TOKENS, padded, random_tokens, shaken, small_config, small_model, small_rnn_config
from transduce.config import Vocabulary
from transduce.engine.precision import to_precision
from transduce.models.build import build
from transduce.nn.factor_embeddings import FactorEmbeddings, tokens_of

SIZES = [5, 7]
CONFIGS = {"transformer": small_config, "rnn": small_rnn_config}


def factored_model(family: str = "transformer"):
    """A model with two factors whose embeddings are not zero."""
    config = CONFIGS[family](source_factors=SIZES)
    model = shaken(build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0))
    for embedding in model.factor_embeddings:
        torch.nn.init.normal_(embedding.weight, generator=torch.Generator().manual_seed(0))
    return model


def sources(lengths: list[int]) -> torch.Tensor:
    """Sources of these lengths with two factors, (sources, longest, 3)."""
    tokens, generator = padded(lengths), torch.Generator().manual_seed(1)
    factors = [torch.randint(1, size, tokens.shape, generator=generator) for size in SIZES]
    return torch.stack([tokens, *(values * (tokens != 0) for values in factors)], dim=-1)


def test_new_embeddings_add_nothing():
    source, target = sources([5, 3]), random_tokens(2, 4)
    config = small_config(source_factors=SIZES)
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0).eval()
    plain = build(small_config(), Vocabulary(source=TOKENS, target=TOKENS), seed=0).eval()
    assert torch.equal(model(source, target), plain(tokens_of(source), target))


def test_factors_are_added_to_the_embeddings():
    embeddings = FactorEmbeddings(SIZES, 4)
    for embedding in embeddings:
        torch.nn.init.normal_(embedding.weight)
    source, x = sources([3, 2]), torch.randn(2, 3, 4)
    expected = x + sum(2 * embedding.weight[source[..., i]] for i, embedding in enumerate(embeddings, 1))
    assert torch.allclose(embeddings(x, source), expected)  # 2 is the square root of d_model


@pytest.mark.parametrize("family", CONFIGS)
def test_padding_and_neighbours_change_nothing(family):
    model, target = factored_model(family), random_tokens(3, 4)
    batch = sources([6, 3, 4])
    together = model(batch, target)
    for row, length in enumerate([6, 3, 4]):
        alone = model(batch[row : row + 1, :length], target[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-5)
    batch[1, 0, 2] = batch[1, 0, 2] % 6 + 1
    changed = model(batch, target)
    assert not torch.allclose(changed[1], together[1], atol=1e-3)
    assert torch.equal(changed[[0, 2]], together[[0, 2]])


def test_the_engine_reads_factors():
    reference, packed = factored_model(), to_precision(factored_model(), "int8")
    batch = sources([6, 3, 4])
    states, mask = packed.encode(batch)
    exact = reference.encode(batch)
    assert torch.equal(mask, exact.mask)
    # Without VNNI, inputs have 7 bits.
    assert torch.allclose(states[mask], exact.states[mask], atol=0.2)
    without = batch.clone()
    without[..., 1:] = 0
    assert not torch.allclose(packed.encode(without).states[mask], states[mask], atol=0.1)


def test_a_source_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="2 factors"):
        factored_model().encode(random_tokens(2, 3))
    with pytest.raises(ValueError, match="0 factors"):
        small_model().encode(sources([3, 2]))
