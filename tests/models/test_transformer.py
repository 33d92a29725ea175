import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TOKENS, random_tokens, small_config, small_model
from transduce.config import PRESETS, TransformerConfig, Vocabulary, preset
from transduce.config.attention import FullAttention, HashedAttention, LowRankAttention, WindowAttention
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.models.transformer import Transformer
from transduce.nn.dropout import Dropout, use_generator
from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.multi_head_attention import EncoderDecoderAttention, FullSelfAttention
from transduce.nn.window_attention import Window, WindowSelfAttention
from transduce.paper.parameters import LIKE_BASE, MILLIONS, count_parameters

TRANSFORMERS = {name: c for name, c in PRESETS.items() if isinstance(c.model, TransformerConfig)}
variants = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["post", "pre"]),
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
        "activation": st.sampled_from(["relu", "gelu", "gelu_tanh", "swish", "swiglu"]),
        "share": st.sampled_from(["all", "target", "none"]),
        "d_k": st.sampled_from([None, 3, 8]),
        "d_v": st.sampled_from([None, 2, 5]),
        "attention": st.one_of(
            st.just(FullAttention()),
            st.builds(WindowAttention, radius=st.integers(1, 4), global_tokens=st.integers(0, 2)),
            st.builds(LowRankAttention, rank=st.integers(1, 9)),
            st.builds(HashedAttention, buckets=st.sampled_from([2, 4]), chunk=st.integers(1, 4)),
        ),
        "seed": st.integers(0, 5),
    }
)


@given(variant=variants, cut=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_causality(variant, cut, seed):
    """What comes after a position cannot change it, not in one bit."""
    model = small_model(**variant)
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
    model = small_model(**variant)
    longest = [max(pair[side] for pair in lengths) + extra for side in (0, 1)]
    source, target = (
        torch.zeros(len(lengths), longest[0]).long(),
        torch.zeros(len(lengths), longest[1]).long(),
    )
    for row, (n, m) in enumerate(lengths):
        source[row, :n], target[row, :m] = random_tokens(n, seed=row), random_tokens(m, seed=row + 50)
    together = model(source, target)
    for row, (n, m) in enumerate(lengths):
        alone = model(source[row : row + 1, :n], target[row : row + 1, :m])
        torch.testing.assert_close(together[row, :m], alone[0], atol=1e-5, rtol=0)


def test_padding_before_a_sentence_is_hidden_too():
    model = small_model(positions="none")
    source, target = random_tokens(1, 4), random_tokens(1, 3, seed=1)
    pad = torch.zeros(1, 2).long()
    padded = model(torch.cat((pad, source), 1), torch.cat((pad, target), 1))[:, 2:]
    torch.testing.assert_close(padded, model(source, target), atol=1e-5, rtol=0)


moves = st.lists(st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=8)


@given(variant=variants, moves=moves, capacity=st.integers(0, 9))
@settings(max_examples=60)
def test_step_by_step_equals_the_whole_after_any_selection(variant, moves, capacity):
    """A move is a step (None) or a selection of rows."""
    model = small_model(**variant)
    source, target = random_tokens(3, 6), torch.empty(3, 0).long()
    source[1, 4:] = 0
    state = model.start(model.encode(source), capacity)
    for index, rows in enumerate([None, *moves, None]):
        if rows is None:
            tokens = random_tokens(len(source), seed=index)
            target = torch.cat((target, tokens[:, None]), dim=1)
            logits = model.step(tokens, state)
            whole = model(source, target)[:, -1]
            torch.testing.assert_close(logits, whole, atol=1e-5, rtol=0)
        else:
            chosen = torch.tensor(rows) % len(source)
            source, target = source[chosen], target[chosen]
            state.select(chosen)
        assert state.length == target.size(1)


@given(variant=variants, widths=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_targets_that_share_a_source_are_like_targets_that_do_not(variant, widths, seed):
    """Beams: any number of targets a source, sources that leave, targets taken several times."""
    model, generator = small_model(**variant), torch.Generator().manual_seed(seed)
    memory = model.encode(random_tokens(3, 6))
    together, apart = model.start(memory), model.start(memory)
    sources, old = 3, 1
    for step, width in enumerate(widths):
        tokens = random_tokens(sources * old, seed=step)
        torch.testing.assert_close(model.step(tokens, together), model.step(tokens, apart), atol=1e-5, rtol=0)
        kept = torch.randperm(sources, generator=generator)[: max(1, sources - step % 2)]
        grid = kept[:, None] * old + torch.randint(old, (len(kept), width), generator=generator)
        together.select(grid)
        apart.select(grid.flatten())
        sources, old = len(kept), width
    tokens = random_tokens(sources * old)
    record: list[torch.Tensor] = []
    logits = model.step(tokens, together, record)
    torch.testing.assert_close(logits, model.step(tokens, apart), atol=1e-5, rtol=0)
    assert [layer.shape for layer in record] == [(sources * old, model.config.heads, 6)] * len(record)
    assert len(record) == model.config.decoder_layers
    torch.testing.assert_close(record[0].sum(-1), torch.ones(sources * old, model.config.heads))


def test_a_state_leaves_the_memory_it_started_from_alone():
    model = small_model()
    source = random_tokens(3, 6)
    source[0, 3:] = 0
    memory = model.encode(source)
    before = memory.mask.clone(), memory.states.clone()
    state = model.start(memory)
    model.step(random_tokens(3), state)
    state.select(torch.tensor([2, 1]))
    assert torch.equal(memory.mask, before[0])
    assert torch.equal(memory.states, before[1])


def test_a_batch_that_has_become_empty():
    model = small_model()
    state = model.start(model.encode(random_tokens(2, 4)))
    model.step(random_tokens(2), state)
    none = torch.empty(0).long()
    state.select(none)
    assert model.step(none, state).shape == (0, TOKENS)
    assert model(none[:, None], none[:, None]).shape == (0, 1, TOKENS)


def test_the_wrong_number_of_rows_is_refused_and_spoils_nothing():
    model = small_model()
    source, tokens = random_tokens(2, 4), random_tokens(2)
    state = model.start(model.encode(source))
    for wrong in (random_tokens(3), random_tokens(1), tokens[:, None]):
        with pytest.raises(ValueError, match="2 hypotheses"):
            model.step(wrong, state)
    torch.testing.assert_close(model.step(tokens, state), model(source, tokens[:, None])[:, 0])
    with pytest.raises(ValueError, match="1 sources, but 3 targets"):
        model(random_tokens(1, 3), random_tokens(3, 2))


def test_a_whole_preset_is_not_a_model_configuration():
    with pytest.raises(TypeError, match="TransformerConfig"):
        Transformer(preset("small"), Vocabulary(source=5, target=5))


def test_selecting_before_the_first_step():
    model = small_model()
    source = random_tokens(2, 5)
    state = model.start(model.encode(source))
    state.select(torch.tensor([1, 1, 0]))
    tokens = random_tokens(3)
    expected = model(source[[1, 1, 0]], tokens[:, None])[:, 0]
    torch.testing.assert_close(model.step(tokens, state), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_positions_the_encoder_is_permutation_equivariant(norm):
    source, order = random_tokens(2, 9), torch.randperm(9)
    blind = small_model(positions="none", norm=norm)
    torch.testing.assert_close(
        blind.encode(source[:, order]).states, blind.encode(source).states[:, order], atol=1e-5, rtol=0
    )
    for positions in ("sinusoidal", "learned", "rotary"):
        seeing = small_model(positions=positions, norm=norm)
        moved = seeing.encode(source[:, order]).states - seeing.encode(source).states[:, order]
        assert moved.abs().max() > 0.01


def test_attention_weights_of_every_layer_and_head():
    model = small_model(encoder_layers=3, decoder_layers=2, d_k=5, d_v=3)
    source, target = random_tokens(2, 6), random_tokens(2, 4, seed=1)
    source[0, 4:], target[1, 2:] = 0, 0
    weights = model.attention(source, target)
    assert [tuple(w.shape) for w in weights.encoder] == [(2, 4, 6, 6)] * 3
    assert [tuple(w.shape) for w in weights.decoder] == [(2, 4, 4, 4)] * 2
    assert [tuple(w.shape) for w in weights.encoder_decoder] == [(2, 4, 4, 6)] * 2
    for w in (*weights.encoder, *weights.decoder, *weights.encoder_decoder):
        torch.testing.assert_close(w.sum(-1), torch.ones(w.shape[:-1]))
    assert all((w[0, :, :, 4:] == 0).all() for w in (*weights.encoder, *weights.encoder_decoder))
    assert all((w.triu(1) == 0).all() for w in weights.decoder)


@pytest.mark.parametrize(
    "attention",
    [WindowAttention(radius=1), LowRankAttention(rank=3), HashedAttention(buckets=2, chunk=2)],
    ids=lambda attention: attention.kind,
)
def test_attention_weights_of_the_variants_have_the_same_shapes(attention):
    model = small_model(attention=attention)
    source, target = random_tokens(2, 6), random_tokens(2, 4, seed=1)
    source[0, 4:] = 0
    weights = model.attention(source, target)
    assert [tuple(w.shape) for w in weights.encoder] == [(2, 4, 6, 6)] * 2
    assert [tuple(w.shape) for w in weights.decoder] == [(2, 4, 4, 4)] * 2
    real = [weights.encoder[0][0, :, :4], weights.encoder[1][1], *weights.decoder]
    for w in real:
        torch.testing.assert_close(w.sum(-1), torch.ones(w.shape[:-1]))
    assert (weights.encoder[0][0, :, :, 4:] == 0).all()
    assert all((w.triu(1) == 0).all() for w in weights.decoder)


def test_every_kind_of_attention_is_built_where_it_belongs():
    for attention, encoder, decoder in (
        (FullAttention(), FullSelfAttention, FullSelfAttention),
        (WindowAttention(radius=3, global_tokens=1), WindowSelfAttention, WindowSelfAttention),
        (LowRankAttention(rank=5), LowRankSelfAttention, FullSelfAttention),
        (HashedAttention(), HashedSelfAttention, HashedSelfAttention),
    ):
        model = small_model(attention=attention, max_length=99)
        for layer in model.encoder.layers:
            assert type(layer.self_attention) is encoder
        for layer in model.decoder.layers:
            assert type(layer.self_attention) is decoder
            assert type(layer.memory_attention) is EncoderDecoderAttention
        assert model.max_length == (99 if attention.kind == "low_rank" else None)
        if attention.kind == "window":
            stacks = model.encoder.layers[0].self_attention, model.decoder.layers[0].self_attention
            assert [one.window for one in stacks] == [Window(3, 1, False), Window(3, 1, True)]


def test_a_window_of_a_few_positions_is_another_model_than_a_full_one():
    source, target = random_tokens(2, 12), random_tokens(2, 12, seed=1)
    wide, near = (small_model(attention=WindowAttention(radius=radius)) for radius in (128, 2))
    full = small_model()
    torch.testing.assert_close(wide(source, target), full(source, target), atol=1e-5, rtol=0)
    assert (near(source, target) - full(source, target)).abs().max() > 0.01


def test_sinusoids_go_past_the_length_seen():
    model = small_model()
    short, long = model.encode(random_tokens(1, 5)), model.encode(random_tokens(1, 3000))
    assert long.states.isfinite().all()
    assert short.states.shape == (1, 5, 16)


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_sharing(share, matrices):
    model = small_model(share=share)
    used = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
    assert len(used) == matrices


def test_sharing_everything_needs_one_vocabulary():
    with pytest.raises(ConfigError, match="share = 'target'"):
        Transformer(small_config(share="all"), Vocabulary(source=5, target=6))


def test_special_pad_ids():
    vocabulary = Vocabulary(source=TOKENS, target=TOKENS, pad=7)
    model = build(small_config(), vocabulary, seed=0).eval()
    source, target = torch.tensor([[3, 4, 7, 7]]), torch.tensor([[3]])
    torch.testing.assert_close(model(source, target), model(source[:, :2], target), atol=1e-5, rtol=0)


def test_a_seed_gives_the_same_weights_and_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    one, other = (build(small_config(), Vocabulary(source=9, target=9), seed=4) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_training_is_reproducible_from_the_generators_state():
    model = small_model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1).train()
    generator = torch.Generator().manual_seed(1)
    use_generator(model, generator)
    source, target = random_tokens(2, 5), random_tokens(2, 6)
    state, elsewhere = generator.get_state(), torch.get_rng_state()
    first, second = model(source, target), model(source, target)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(model(source, target), first)
    assert torch.equal(torch.get_rng_state(), elsewhere)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_untrained_logits_are_sane(norm):
    config = preset("small").model.model_copy(update={"norm": norm})
    model = build(config, Vocabulary(source=1000, target=1000), seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(3, 1000, (8, 20), generator=generator) for _ in range(2))
    logits = model(source, target)
    assert 0.5 < logits.std() < 1.5
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    assert all((bias == 0).all() for bias in biases)


def size_by_hand(config, vocabulary):
    """What Figure 1 adds up to, with a bias for every projection."""
    d, h = config.d_model, config.heads
    d_k, d_v = config.d_k or d // h, config.d_v or d // h
    attention = 2 * (d + 1) * h * d_k + (d + 1) * h * d_v + (h * d_v + 1) * d
    feed_forward = (d + 1) * config.d_ff + (config.d_ff + 1) * d
    norm = 2 * d
    encoder = config.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    learned = 2 * config.max_length * d if config.positions == "learned" else 0
    return encoder + decoder + vocabulary * d + learned


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_preset_has_its_size(name):
    counted = count_parameters(name, 41_000)
    assert counted == size_by_hand(PRESETS[name].model, 41_000)
    if name in MILLIONS:
        # big is the paper's exception: no vocabulary makes it agree together with the other rows
        assert round(counted / 1e6) == {**MILLIONS, "big": 218}[name]
    if name in LIKE_BASE:
        assert counted == count_parameters("base", 41_000)


@pytest.mark.parametrize("which", ["dropout", "attention_dropout", "activation_dropout"])
def test_every_dropout_has_an_effect(which):
    model = small_model(**{which: 0.5}).train()
    source, target = random_tokens(2, 5), random_tokens(2, 6)
    assert not torch.equal(model(source, target), model(source, target))


def test_dropout_is_on_embeddings_and_on_every_sublayer():
    model = small_model(dropout=0.25, attention_dropout=0.5, activation_dropout=0.125)
    places = {name: module.p for name, module in model.named_modules() if isinstance(module, Dropout)}
    assert places["dropout"] == 0.25
    around = [p for name, p in places.items() if ".around_" in name]
    assert around == [0.25] * (2 * 2 + 2 * 3)
    assert [p for name, p in places.items() if "attention.dropout" in name and "around" not in name] == [
        0.5
    ] * 6
    assert [p for name, p in places.items() if name.endswith(".feed_forward.dropout")] == [0.125] * 4
    x = torch.ones(1, 50)
    model.train()
    assert (model.encode(random_tokens(1, 50)).states != model.encode(random_tokens(1, 50)).states).any()
    assert (model.dropout(x) == 0).any()


def test_options_reach_the_blocks():
    model = small_model(d_k=5, d_v=3, norm_epsilon=0.01, norm="pre")
    layer = model.decoder.layers[0]
    for attention in (layer.self_attention, layer.memory_attention, model.encoder.layers[1].self_attention):
        assert (attention.d_k, attention.d_v, attention.output.in_features) == (5, 3, 4 * 3)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    assert {norm.eps for norm in norms} == {0.01}


def test_max_length():
    assert small_model().max_length is None
    assert small_model(positions="learned", max_length=9).max_length == 9


def test_decoding_builds_no_autograd_graph():
    model = small_model()
    source, target = random_tokens(2, 3), random_tokens(2, 3)
    assert not any(w.requires_grad for w in model.attention(source, target).encoder)
    assert not model.step(target[:, 0], model.start(model.encode(source))).requires_grad


def test_presets_say_what_table_3_says():
    assert (PRESETS["base"].training.steps, PRESETS["base"].training.warmup) == (100_000, 4000)
    assert PRESETS["base"].training.label_smoothing == 0.1
    sizes = {
        name: (c.model.encoder_layers, c.model.d_model, c.model.d_ff, c.model.heads, c.model.dropout)
        for name, c in TRANSFORMERS.items()
    }
    assert sizes["tiny"] == (4, 128, 256, 4, 0.1)
    assert sizes["small"] == (3, 256, 1024, 4, 0.1)
    assert sizes["base"] == (6, 512, 2048, 8, 0.1)
    assert sizes["big"] == (6, 1024, 4096, 16, 0.3)
    assert sizes["C3"] == (8, 512, 2048, 8, 0.1)
    assert [PRESETS[f"A{i}"].model.heads for i in range(1, 5)] == [1, 4, 16, 32]
    assert [PRESETS[f"B{i}"].model.d_k for i in (1, 2)] == [16, 32]
    assert [PRESETS[f"D{i}"].model.dropout for i in (1, 2)] == [0.0, 0.2]
    assert [PRESETS[f"D{i}"].training.label_smoothing for i in (3, 4)] == [0.0, 0.2]
    assert PRESETS["E"].model.positions == "learned"
    assert PRESETS["big"].training.steps == 300_000
    assert all(c.model.encoder_layers == c.model.decoder_layers for c in TRANSFORMERS.values())
