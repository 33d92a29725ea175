"""A model that cannot learn to copy is broken."""

import pytest
import torch

from transduce.config import RNNConfig, TransformerConfig, Vocabulary, preset
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.models.build import build
from transduce.nn.dropout import use_generator
from transduce.training.loss import label_smoothed_cross_entropy

PAD, BOS, EOS, TOKENS = 0, 1, 2, 12
SHORTEST, LONGEST = 2, 6


@pytest.fixture(autouse=True)
def _one_thread():
    """Models this small are slower on two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draw(task: str, count: int, generator: torch.Generator):
    """Sources, targets as read, targets as predicted, each (count, length)."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (count, 1), generator=generator)
    source = torch.randint(3, TOKENS, (count, LONGEST), generator=generator)
    positions = torch.arange(LONGEST)
    outside = positions >= lengths
    source = source.masked_fill(outside, PAD)
    wanted = source
    if task == "reverse":
        wanted = source.gather(1, (lengths - 1 - positions).clamp(min=0)).masked_fill(outside, PAD)
    read = torch.cat((torch.full((count, 1), BOS), wanted), dim=1)
    predicted = torch.cat((wanted, torch.full((count, 1), PAD)), dim=1).scatter(1, lengths, EOS)
    return source, read, predicted


def train(model, task: str, *, steps: int, peak: float = 5e-3, warmup: int = 30):
    generator = torch.Generator().manual_seed(0)
    use_generator(model, generator)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = peak * min(step / warmup, (steps + 1 - step) / (steps + 1 - warmup))
        source, read, predicted = draw(task, 64, generator)
        loss = label_smoothed_cross_entropy(model(source, read), predicted, pad=PAD, smoothing=0.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@torch.no_grad()
def accuracy(model, task: str) -> float:
    """Share of tokens right when the model reads its own output, token by token."""
    source, _, wanted = draw(task, 512, torch.Generator().manual_seed(1))
    state = model.start(model.encode(source), capacity=LONGEST + 1)
    tokens, said = torch.full((len(source),), BOS), []
    for _ in range(LONGEST + 1):
        tokens = model.step(tokens, state).argmax(-1)
        said.append(tokens)
    return (torch.stack(said, dim=1) == wanted)[wanted != PAD].float().mean().item()


@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize("variant", [{"norm": "post"}, {"norm": "pre"}])
def test_a_tiny_model_learns(task, variant):
    config = TransformerConfig(
        encoder_layers=2, decoder_layers=2, d_model=32, d_ff=64, heads=4, dropout=0.0, **variant
    )
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    assert accuracy(model.eval(), task) < 0.2
    assert accuracy(train(model.train(), task, steps=300), task) > 0.99


@pytest.mark.parametrize(
    "variant",
    [
        {"attention": WindowAttention(radius=2, global_tokens=1)},
        {"attention": HashedAttention(buckets=2, rounds=2, chunk=4)},
        {"attention": LowRankAttention(rank=4), "max_length": 16},
    ],
    ids=lambda variant: variant["attention"].kind,
)
def test_a_tiny_model_learns_with_other_attention(variant):
    config = TransformerConfig(
        encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0, norm="pre", **variant
    )
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    assert accuracy(model.eval(), "copy") < 0.2
    assert accuracy(train(model.train(), "copy", steps=300), "copy") > 0.95


@pytest.mark.parametrize(
    ("task", "variant"),
    [
        ("reverse", {"attention": "additive", "cell": "lstm"}),
        ("copy", {"attention": "multiplicative", "cell": "lstm"}),
        ("copy", {"attention": "additive", "cell": "gru"}),
    ],
)
def test_a_tiny_rnn_learns(task, variant):
    config = RNNConfig(encoder_layers=1, decoder_layers=1, d_model=32, d_hidden=32, dropout=0.0, **variant)
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    assert accuracy(model.eval(), task) < 0.2
    assert accuracy(train(model.train(), task, steps=200, peak=1e-2), task) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_the_tiny_preset_learns_with_its_dropout(task):
    model = build(preset("tiny").model, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    assert accuracy(train(model, task, steps=1200, peak=2e-3, warmup=100), task) > 0.99
