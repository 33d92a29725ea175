import numpy as np
import pytest
import torch
from torch.nn import functional

from builders import TOKENS, random_tokens, small_gpt
from transduce import artifact
from transduce.config import GPTConfig, Vocabulary
from transduce.decoding.beam import beam_search
from transduce.decoding.sampling import Sampling, sample
from transduce.models.build import build

ONE_SPECIAL = Vocabulary(source=TOKENS, target=TOKENS, pad=19, bos=19, eos=19)  # as GPT-2 has it


def padded(*lengths, pad=0):
    tokens = random_tokens(len(lengths), max(lengths))
    return tokens.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], pad)


@torch.no_grad()
def test_causality_to_the_bit():
    model, tokens = small_gpt(), random_tokens(3, 12)
    for end in range(1, 12):
        changed = tokens.clone()
        changed[:, end:] = 5
        assert torch.equal(model(tokens)[:, :end], model(changed)[:, :end])


@torch.no_grad()
def test_padding_changes_nothing():
    model, tokens = small_gpt(), padded(9, 4, 1)
    together = model(tokens)
    for row, length in enumerate((9, 4, 1)):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("vocabulary", "lengths"), [(None, [7, 1, 4]), (ONE_SPECIAL, [5, 5, 5])])
def test_steps_give_what_the_whole_pass_gives(vocabulary, lengths):
    """Prompts of different lengths, and a change of rows on the way."""
    model = small_gpt(vocabulary=vocabulary)
    prompts = padded(*lengths, pad=model.vocabulary.pad)
    texts = [prompts[row, :length].tolist() for row, length in enumerate(lengths)]
    state = model.start(model.encode(prompts), capacity=2)
    said = random_tokens(3, 6, seed=1)
    for step in range(6):
        if step:
            texts = [[*text, int(token)] for text, token in zip(texts, said[:, step], strict=True)]
        logits = model.step(said[:, step], state)
        for text, found in zip(texts, logits, strict=True):
            with torch.no_grad():
                wanted = model(torch.tensor([text]))[0, -1]
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        if step == 2:
            state.select(torch.tensor([[2], [0], [0]]))
            texts = [texts[2], texts[0], texts[0]]
    assert state.length == 6


def test_a_prompt_can_be_used_twice():
    model, prompts = small_gpt(), padded(5, 3)
    memory = model.encode(prompts)
    begin = torch.full((2,), 1)
    first, second = model.start(memory), model.start(memory)
    wanted = model.step(begin, first)
    first.select(torch.tensor([1, 1]))
    model.step(begin + 4, first)
    assert torch.equal(model.step(begin, second), wanted)


def slow_greedy(model, prompt, most):
    """The oracle: everything is read again for every token."""
    said = []
    never = {model.vocabulary.pad, model.vocabulary.bos} - {model.vocabulary.eos}
    while len(said) < most:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *said]]))[0, -1]
        logits[list(never)] = -torch.inf
        if (token := int(logits.argmax())) == model.vocabulary.eos:
            break
        said.append(token)
    return said


@pytest.mark.parametrize(("vocabulary", "lengths"), [(None, [6, 1, 3]), (ONE_SPECIAL, [1, 1, 1])])
def test_greedy_search_and_cold_samples_are_the_slow_ones(vocabulary, lengths):
    model = small_gpt(vocabulary=vocabulary, seed=3)
    prompts = padded(*lengths, pad=model.vocabulary.pad)
    prompts[:, 0] = model.vocabulary.bos
    wanted = [slow_greedy(model, prompts[row, :n].tolist(), 10) for row, n in enumerate(lengths)]
    searched = beam_search(model, prompts, [10] * 3, beam=1)
    assert [found[0].tokens for found in searched] == wanted
    drawn = sample(model, prompts, [10] * 3, Sampling(top_k=1), [np.random.default_rng(1)] * 3, count=2)
    assert [[one.tokens for one in found] for found in drawn] == [[row, row] for row in wanted]


def test_beam_scores_are_the_models_own():
    model, prompts = small_gpt(seed=1), padded(5, 2)
    for row, found in enumerate(beam_search(model, prompts, [6] * 2, beam=4)):
        prompt = prompts[row, : (5, 2)[row]].tolist()
        for one in found:
            text = [*prompt, *one.tokens, model.vocabulary.eos][: len(prompt) + len(one.log_probabilities)]
            with torch.no_grad():
                all_steps = model(torch.tensor([text[:-1]]))[0].log_softmax(-1)
            steps = [float(all_steps[place - 1, text[place]]) for place in range(len(prompt), len(text))]
            assert one.log_probabilities == pytest.approx(steps, abs=1e-4)


@torch.no_grad()
def test_post_norm_gpt():
    """Norms behind the sub-layers, and none at the end; steps and the whole pass agree."""
    model, tokens = small_gpt(norm="post"), random_tokens(2, 6)
    x = model.positions(model.output(tokens))
    for layer in model.decoder.layers:
        x = layer.around_self_attention.norm(x + layer.self_attention(x))
        x = layer.around_feed_forward.norm(x + layer.feed_forward(x))
    torch.testing.assert_close(model.decode(tokens), x, atol=1e-5, rtol=1e-5)
    state = model.start(model.encode(tokens))
    torch.testing.assert_close(model.step(tokens[:, 0], state), model(tokens)[:, -1], atol=1e-5, rtol=1e-5)


def test_saved_is_loaded(tmp_path):
    model = small_gpt(vocabulary=ONE_SPECIAL)
    artifact.save(model, tmp_path)
    tokens = random_tokens(2, 5)
    assert torch.equal(artifact.load_as(tmp_path, "gpt")(tokens), model(tokens))


def test_tanh_gelu_is_the_formula():
    from transduce.nn.feed_forward import FeedForward

    layer, x = FeedForward(4, 8, activation="gelu_tanh"), torch.randn(2, 3, 4)
    inner = layer.inner(x)
    active = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(layer(x), layer.outer(active))


def test_beyond_the_context_is_refused():
    model = small_gpt(max_length=4)
    with pytest.raises(ValueError, match=r"5 positions.*4"):
        model(random_tokens(1, 5))
    state = model.start(model.encode(random_tokens(1, 4)))
    model.step(torch.tensor([1]), state)
    with pytest.raises(ValueError, match="5 positions, but max_length is 4"):
        model.step(torch.tensor([1]), state)


def test_a_tiny_gpt_learns_a_repeating_text():
    torch.manual_seed(0)
    config = GPTConfig(layers=2, d_model=32, d_ff=64, heads=4, max_length=16, dropout=0.0)
    model = build(config, Vocabulary(source=12, target=12), seed=0)
    text = torch.tensor([3, 4, 5, 3, 6, 7, 3, 8, 9, 10] * 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        begins = torch.randint(0, len(text) - 17, (16,))
        block = torch.stack([text[begin : begin + 17] for begin in begins])
        loss = functional.cross_entropy(model(block[:, :-1])[:, 6:].transpose(1, 2), block[:, 7:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
