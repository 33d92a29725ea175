import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TOKENS, random_tokens, small_config, small_rnn, small_rnn_config
from transduce.config import PRESETS, RNNConfig, Vocabulary, preset
from transduce.decoding.beam import beam_search
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.models.rnn import RNN
from transduce.nn.dropout import use_generator

variants = st.fixed_dictionaries(
    {
        "cell": st.sampled_from(["lstm", "gru"]),
        "attention": st.sampled_from(["additive", "multiplicative", "none"]),
        "bidirectional": st.booleans(),
        "encoder_layers": st.integers(1, 3),
        "decoder_layers": st.integers(1, 3),
        "share": st.sampled_from(["all", "target", "none"]),
        "seed": st.integers(0, 5),
    }
)


@given(variant=variants, cut=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_causality(variant, cut, seed):
    """What comes after a position cannot change it, not in one bit."""
    model = small_rnn(**variant)
    source, target, other = (random_tokens(2, 8, seed=seed + i) for i in range(3))
    changed = torch.cat((target[:, :cut], other[:, cut:]), dim=1)
    assert torch.equal(model(source, target)[:, :cut], model(source, changed)[:, :cut])


@given(
    variant=variants,
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    extra=st.integers(0, 4),
)
@settings(max_examples=40)
def test_padding_and_neighbours_change_nothing(variant, lengths, extra):
    model = small_rnn(**variant)
    longest = [max(pair[side] for pair in lengths) + extra for side in (0, 1)]
    source, target = (torch.zeros(len(lengths), length).long() for length in longest)
    for row, (n, m) in enumerate(lengths):
        source[row, :n], target[row, :m] = random_tokens(n, seed=row), random_tokens(m, seed=row + 50)
    together = model(source, target)
    for row, (n, m) in enumerate(lengths):
        alone = model(source[row : row + 1, :n], target[row : row + 1, :m])
        torch.testing.assert_close(together[row, :m], alone[0], atol=1e-5, rtol=0)


@given(variant=variants, seed=st.integers(0, 9))
@settings(max_examples=20)
def test_every_token_of_the_source_matters(variant, seed):
    model = small_rnn(**variant)
    source, target = random_tokens(1, 6, seed=seed), random_tokens(1, 3, seed=seed + 1)
    before = model(source, target)
    for position in range(6):
        changed = source.clone()
        changed[0, position] = 3 + (changed[0, position] - 2) % (TOKENS - 3)
        assert not torch.allclose(model(changed, target), before, atol=1e-7)


moves = st.lists(
    st.none() | st.tuples(st.integers(1, 3), st.lists(st.integers(0, 99), min_size=1, max_size=6)),
    min_size=1,
    max_size=8,
)


@given(variant=variants, moves=moves)
@settings(max_examples=80)
def test_step_by_step_equals_the_whole_after_any_selection(variant, moves):
    """A move is a step (None), or a selection: of rows, or of groups of rows that have one source each."""
    model = small_rnn(**variant)
    source, target, owner = random_tokens(3, 6), torch.empty(3, 0).long(), torch.arange(3)
    source[1, 4:] = 0
    sentences = source
    state = model.start(model.encode(source))
    for index, move in enumerate([None, *moves, None]):
        if move is None:
            tokens = random_tokens(len(owner), seed=index)
            target = torch.cat((target, tokens[:, None]), dim=1)
            record = []
            logits = model.step(tokens, state, record)
            torch.testing.assert_close(logits, model(sentences, target)[:, -1], atol=1e-5, rtol=0)
            whole = model.attention(sentences, target).encoder_decoder
            assert len(record) == len(whole) == (variant["attention"] != "none")
            for now, all_of_it in zip(record, whole, strict=True):
                torch.testing.assert_close(now, all_of_it[:, :, -1], atol=1e-5, rtol=0)
        else:
            width, numbers = move
            rows = torch.tensor(numbers) % len(owner)
            if width > 1:  # each row is joined by others of its source
                mates = [(owner == owner[row]).nonzero()[:, 0] for row in rows]
                rows = torch.stack([one[torch.arange(width) % len(one)] for one in mates])
            state.select(rows)
            rows = rows.flatten()
            sentences, target, owner = sentences[rows], target[rows], owner[rows]
        assert state.length == target.size(1)


def test_a_batch_that_has_become_empty():
    model = small_rnn()
    none = torch.empty(0).long()
    for rows in (none, none.view(0, 3)):
        state = model.start(model.encode(random_tokens(2, 4)))
        model.step(random_tokens(2), state)
        state.select(rows)
        assert model.step(none, state).shape == (0, TOKENS)
    assert model(none[:, None], none[:, None]).shape == (0, 1, TOKENS)


def test_the_wrong_number_of_rows_is_refused_and_spoils_nothing():
    model = small_rnn()
    source, tokens = random_tokens(2, 4), random_tokens(2)
    state = model.start(model.encode(source))
    for wrong in (random_tokens(3), random_tokens(1), tokens[:, None]):
        with pytest.raises(ValueError, match="2 hypotheses"):
            model.step(wrong, state)
    torch.testing.assert_close(model.step(tokens, state), model(source, tokens[:, None])[:, 0])
    with pytest.raises(ValueError, match="1 sources, but 3 targets"):
        model(random_tokens(1, 3), random_tokens(3, 2))


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_attention_weights(kind):
    model = small_rnn(attention=kind)
    source, target = random_tokens(2, 6), random_tokens(2, 4, seed=1)
    source[0, 4:] = 0
    weights = model.attention(source, target)
    assert (weights.encoder, weights.decoder) == ([], [])
    (found,) = weights.encoder_decoder
    assert found.shape == (2, 1, 4, 6)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 1, 4))
    assert (found[0, :, :, 4:] == 0).all()
    assert not found.requires_grad


def test_an_rnn_without_attention_has_no_weights_to_show():
    assert (
        small_rnn(attention="none").attention(random_tokens(2, 6), random_tokens(2, 4)).encoder_decoder == []
    )


@pytest.mark.parametrize("kind", ["additive", "multiplicative", "none"])
def test_beam_search_finds_what_it_scores(kind):
    """The sum of a hypothesis is what the whole forward pass gives it."""
    model = small_rnn(attention=kind)
    source = random_tokens(3, 5)
    source[1, 3:] = 0
    for row, found in enumerate(beam_search(model, source, [6, 4, 5], beam=3)):
        for one in found:
            labels = torch.tensor([[*one.tokens, 2][: len(one.log_probabilities)]])
            read = torch.cat((torch.tensor([[1]]), labels[:, :-1]), dim=1)
            scores = model(source[row : row + 1], read).log_softmax(-1).gather(2, labels[:, :, None])
            assert sum(one.log_probabilities) == pytest.approx(scores.sum().item(), abs=1e-4)


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_sharing(share, matrices):
    model = small_rnn(share=share)
    used = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
    assert len(used) == matrices


def test_invalid_configurations_are_refused():
    with pytest.raises(ConfigError, match="share = 'target'"):
        RNN(small_rnn_config(share="all"), Vocabulary(source=5, target=6))
    with pytest.raises(TypeError, match=r"preset\('rnn'\)\.model"):
        RNN(small_config(), Vocabulary(source=5, target=5))
    with pytest.raises(ConfigError, match="family 'rnn' needs a vocabulary"):
        build(small_rnn_config(), None)


def test_special_pad_ids():
    model = build(small_rnn_config(), Vocabulary(source=TOKENS, target=TOKENS, pad=7), seed=0).eval()
    source, target = torch.tensor([[3, 4, 7, 7]]), torch.tensor([[3]])
    torch.testing.assert_close(model(source, target), model(source[:, :2], target), atol=1e-5, rtol=0)


def test_a_seed_gives_the_same_weights_and_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    one, other = (build(small_rnn_config(), Vocabulary(source=9, target=9), seed=4) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_training_is_reproducible_from_the_generators_state():
    model = small_rnn(dropout=0.3).train()
    generator = torch.Generator().manual_seed(1)
    use_generator(model, generator)
    source, target = random_tokens(2, 5), random_tokens(2, 6)
    state, elsewhere = generator.get_state(), torch.get_rng_state()
    first, second = model(source, target), model(source, target)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(model(source, target), first)
    assert torch.equal(torch.get_rng_state(), elsewhere)


@given(variant=variants)
@settings(max_examples=15)
def test_every_parameter_learns(variant):
    model = small_rnn(**variant)
    source, target = random_tokens(4, 5), random_tokens(4, 6)
    (model(source, target) * torch.randn(4, 6, TOKENS)).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []


def trains_lstm_in_bfloat16() -> bool:
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2))
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["additive", "multiplicative", "none"])
def test_bfloat16_products_are_close(cell, kind):
    if cell == "lstm" and not trains_lstm_in_bfloat16():
        pytest.skip("this processor lacks AVX-512, without which torch trains no LSTM in bfloat16")
    model = small_rnn(cell=cell, attention=kind).train()
    source, target = random_tokens(3, 6), random_tokens(3, 5)
    exact = model(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(source, target)
    rough.float().sum().backward()
    torch.testing.assert_close(rough.float(), exact, atol=0.1, rtol=0)
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_casting_and_copying():
    model = small_rnn()
    source, target = random_tokens(2, 5), random_tokens(2, 6)
    expected = model(source, target)
    assert torch.equal(copy.deepcopy(model)(source, target), expected)
    torch.testing.assert_close(copy.deepcopy(model).double()(source, target).float(), expected)


def test_an_rnn_has_no_maximum_length():
    model = small_rnn()
    assert model.max_length is None
    assert model(random_tokens(1, 2000), random_tokens(1, 3)).isfinite().all()


def test_untrained_logits_are_sane():
    model = build(preset("rnn").model, Vocabulary(source=1000, target=1000), seed=0).eval()
    source, target = (torch.randint(3, 1000, (8, 20)) for _ in range(2))
    assert 0.1 < model(source, target).std() < 1.5


def size_by_hand(config, vocabulary):
    d, h = config.d_model, config.d_hidden
    gates, parts = (4, 2) if config.cell == "lstm" else (3, 1)
    directions = 2 if config.bidirectional else 1
    memory = directions * h

    def layer(width):
        return gates * h * (width + h + 2)

    encoder = directions * (layer(d) + (config.encoder_layers - 1) * layer(memory))
    decoder = layer(d + memory) + (config.decoder_layers - 1) * layer(h)
    attention = {"additive": h * h + h + memory * h + h, "multiplicative": memory * h, "none": 0}
    bridge = (memory + 1) * config.decoder_layers * parts * h
    return encoder + decoder + attention[config.attention] + bridge + (h + memory + 1) * d + vocabulary * d


@pytest.mark.parametrize("name", [name for name, c in PRESETS.items() if isinstance(c.model, RNNConfig)])
def test_presets_have_their_size(name):
    with torch.device("meta"):
        model = build(PRESETS[name].model, Vocabulary(source=8000, target=8000))
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert counted == size_by_hand(PRESETS[name].model, 8000)
    assert 0.8 < counted / 7_570_000 < 1.2  # that of small
