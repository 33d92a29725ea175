import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.nn.recurrent import Recurrent, RecurrentEncoder, RecurrentEncoderLayer, RecurrentMemory
from transduce.nn.recurrent_attention import AdditiveAttention, MultiplicativeAttention
from transduce.nn.recurrent_decoder import AttentiveLayer, ProjectedSource, RecurrentState

WIDTH, HIDDEN = 5, 7
KERNELS = {"lstm": nn.LSTM, "gru": nn.GRU}


def make_encoder(cell, layers, bidirectional, dropout=0.0):
    torch.manual_seed(0)
    inputs = [WIDTH] + [HIDDEN * (1 + bidirectional)] * (layers - 1)
    encoder = RecurrentEncoder(
        [RecurrentEncoderLayer(cell, width, HIDDEN, bidirectional=bidirectional) for width in inputs], dropout
    )
    for parameter in encoder.parameters():  # biases of 0 would hide a mistake about them
        nn.init.normal_(parameter, std=0.4)
    return encoder


def twin_of(encoder, cell, layers, bidirectional):
    """torch's own stack, with the same weights."""
    twin = KERNELS[cell](WIDTH, HIDDEN, layers, batch_first=True, bidirectional=bidirectional)
    for number, layer in enumerate(encoder.layers):
        for direction, suffix in ((layer.forward_layer, ""), (layer.backward_layer, "_reverse")):
            if direction is not None:
                for name, parameter in direction.kernel.named_parameters():
                    twin.get_parameter(name.replace("_l0", f"_l{number}{suffix}")).data.copy_(parameter)
    return twin


@given(
    cell=st.sampled_from(["lstm", "gru"]),
    layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    extra=st.integers(0, 3),
)
@settings(max_examples=40)
def test_the_encoder_is_torchs_with_packed_sequences(cell, layers, bidirectional, lengths, extra):
    encoder = make_encoder(cell, layers, bidirectional)
    twin = twin_of(encoder, cell, layers, bidirectional)
    longest = max(lengths) + extra
    x, sizes = torch.randn(len(lengths), longest, WIDTH), torch.tensor(lengths)
    mask = torch.arange(longest) < sizes[:, None]
    memory = encoder(x, mask)
    packed, final = twin(pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True, total_length=longest)
    torch.testing.assert_close(memory.states[mask], expected[mask], atol=1e-5, rtol=0)
    last = final[0] if cell == "lstm" else final
    directions = last[-2:] if bidirectional else last[-1:]
    torch.testing.assert_close(memory.final, torch.cat([*directions], dim=-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_the_encoder_are_torchs(cell):
    encoder = make_encoder(cell, 2, True)
    twin = twin_of(encoder, cell, 2, True)
    x, sizes = torch.randn(3, 6, WIDTH), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < sizes[:, None]
    look = torch.randn(int(mask.sum()), 2 * HIDDEN)
    (encoder(x, mask).states[mask] * look).sum().backward()
    packed, _ = twin(pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False))
    (pad_packed_sequence(packed, batch_first=True)[0][mask] * look).sum().backward()
    for number, layer in enumerate(encoder.layers):
        for direction, suffix in ((layer.forward_layer, ""), (layer.backward_layer, "_reverse")):
            for name, parameter in direction.kernel.named_parameters():
                expected = twin.get_parameter(name.replace("_l0", f"_l{number}{suffix}")).grad
                torch.testing.assert_close(parameter.grad, expected, atol=1e-4, rtol=1e-4)


def test_a_source_of_nothing_but_padding_is_finite():
    memory = make_encoder("lstm", 2, True)(torch.randn(2, 4, WIDTH), torch.zeros(2, 4, dtype=torch.bool))
    assert memory.states.isfinite().all()
    assert memory.final.isfinite().all()


def test_dropout_is_between_the_layers_and_nowhere_else():
    x, mask = torch.randn(2, 5, WIDTH), torch.ones(2, 5, dtype=torch.bool)
    one, two = (make_encoder("gru", layers, True, dropout=0.5).train() for layers in (1, 2))
    assert torch.equal(one(x, mask).states, one(x, mask).states)
    assert not torch.equal(two(x, mask).states, two(x, mask).states)


def test_initialisation():
    layer = Recurrent("lstm", WIDTH, HIDDEN)
    weights = layer.weights()
    for gate in weights.from_state.split(HIDDEN):
        torch.testing.assert_close(gate @ gate.T, torch.eye(HIDDEN), atol=1e-5, rtol=0)
    forget = weights.input_bias.split(HIDDEN)
    assert [bias.mean().item() for bias in forget] == [0, 1, 0, 0]
    assert (weights.state_bias == 0).all()
    bound = (6 / (WIDTH + HIDDEN)) ** 0.5
    assert 0.7 * bound < weights.from_input.abs().max() <= bound
    assert (Recurrent("gru", WIDTH, HIDDEN).weights().input_bias == 0).all()


def softmax_by_hand(scores, mask):
    powers = [
        torch.exp(score) if seen else torch.tensor(0.0) for score, seen in zip(scores, mask, strict=True)
    ]
    return torch.stack(powers) / sum(powers)


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_attention_scores_are_the_equations(kind):
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 6)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    attention = AdditiveAttention(4, 6, 8) if kind == "additive" else MultiplicativeAttention(4, 6)
    if kind == "additive":
        nn.init.normal_(attention.query.bias)
    found = attention(query, key, key, mask[:, None])
    again = attention.attend(query, attention.project_keys(key), key, mask[:, None])
    assert torch.equal(found.values, again.values)
    for row in range(2):
        for q in range(3):
            scores = []
            for k in range(5):
                if kind == "additive":
                    inner = attention.query.weight @ query[row, q] + attention.query.bias
                    inner = torch.tanh(inner + attention.key.weight @ key[row, k])
                    scores.append(attention.score.weight[0] @ inner)
                else:
                    scores.append(query[row, q] @ attention.key.weight @ key[row, k])
            weights = softmax_by_hand(scores, mask[row])
            torch.testing.assert_close(found.weights[row, q], weights, atol=1e-5, rtol=0)
            torch.testing.assert_close(found.values[row, q], weights @ key[row], atol=1e-5, rtol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["additive", "multiplicative", "none"])
def test_the_loop_is_torchs_cell_one_position_after_the_other(cell, kind):
    """The products outside of the loop change nothing, gradients included."""
    attention = {
        "additive": AdditiveAttention(HIDDEN, 6, 8),
        "multiplicative": MultiplicativeAttention(HIDDEN, 6),
        "none": None,
    }[kind]
    layer = AttentiveLayer(cell, WIDTH, 6, HIDDEN, attention)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    memory = RecurrentMemory(
        torch.randn(2, 5, 6), torch.arange(5) < torch.tensor([[5], [3]]), torch.randn(2, 6)
    )
    x, state = torch.randn(2, 4, WIDTH), torch.randn(2, layer.d_state)
    looked = layer(x, state, memory)
    kernel = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[cell](WIDTH + 6, HIDDEN)
    for name, parameter in layer.kernel.named_parameters():
        kernel.get_parameter(name.removesuffix("_l0")).data.copy_(parameter)
    states, contexts, held = [], [], state.split(HIDDEN, dim=-1)
    for t in range(4):
        if attention is None:
            context = memory.final
        else:
            query = held[0][:, None]
            context = attention(query, memory.states, memory.states, memory.mask[:, None]).values[:, 0]
        both = torch.cat((x[:, t], context), dim=-1)
        held = kernel(both, held) if cell == "lstm" else (kernel(both, held[0]),)
        states.append(held[0])
        contexts.append(context)
    expected, seen = torch.stack(states, dim=1), torch.stack(contexts, dim=1)
    torch.testing.assert_close(looked.states, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(looked.contexts, seen, atol=1e-5, rtol=0)
    look = torch.randn(2, 4, HIDDEN)
    (looked.states * look).sum().backward()
    (expected * look).sum().backward()
    for name, parameter in layer.kernel.named_parameters():
        other = kernel.get_parameter(name.removesuffix("_l0")).grad
        torch.testing.assert_close(parameter.grad, other, atol=1e-4, rtol=1e-4)


def test_a_selection_within_sources_copies_no_source():
    seen = ProjectedSource(torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.ones(2, 3, dtype=torch.bool))
    state = RecurrentState(seen, [torch.arange(2.0)[:, None]])
    state.select(torch.tensor([[0, 0, 0], [1, 1, 1]]))
    state.select(torch.tensor([[2, 0, 1], [3, 3, 5]]))
    assert state.source is seen
    assert (state.width, len(state.layers[0])) == (3, 6)
    state.select(torch.tensor([[5, 4, 3]]))
    assert torch.equal(state.source.values, seen.values[1:])
    state.select(torch.tensor([1, 0]))  # each target by itself again
    assert torch.equal(state.source.values, seen.values[[1, 1]])
    assert state.width == 1
