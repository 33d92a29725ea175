"""Record what a model does with one sentence: every attention weight, and every branch of the search."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.data.readable import has_words, readable
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.trace import Branch, Trace
from transduce.decoding.translation import Candidate
from transduce.decoding.translator import Translator
from transduce.engine.packed_transformer import PackedTransformer
from transduce.errors import DataError, TransduceError
from transduce.inspection.inspection import Inspection
from transduce.models.evaluation_mode import evaluating
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer

MAX_TOKENS = 512  # on a side: the page grows with their square


@torch.no_grad()
def inspect(translator: Translator | str | Path, source: str, target: str | None = None) -> Inspection:
    """Translate a sentence with a translator or the model of a folder, and record its attention and search.

    If a ``target`` is given, weights and probabilities are those of that target instead of the translation.
    """
    if not isinstance(translator, Translator):
        translator = Translator.load(translator)
    model, tokenizer = translator.model, translator.tokenizer
    if isinstance(model, PackedTransformer):
        model = model.transformer  # the same weights, layer by layer
    if not isinstance(model, Transformer | RNN):
        raise TransduceError(f"a {type(model).__name__} cannot be inspected", "inspect a single model")
    eos, limit = model.vocabulary.eos, model.max_length
    prefix, sizes = tokenizer.target_prefix, (sum(tokenizer.source_frame), sum(tokenizer.target_frame))
    source_ids = _encode(tokenizer.encode_source, source, "the sentence", sizes[0], limit)
    given = None
    if target is not None:
        given = _encode(tokenizer.encode_target, target, "the target", sizes[1], limit)
    source_row = torch.tensor([source_ids], device=model.device)
    trace: Trace = []
    with evaluating(model):
        hypotheses = translator.search(source, trace)
        if not hypotheses:
            raise DataError(
                "the search found no translation", "relax the prefix, the constraints or the length limits"
            )
        target_ids = [*prefix, *_with_eos(hypotheses[0], eos)] if given is None else given
        decoder_input = [model.vocabulary.bos, *target_ids[:-1]]
        target_row = torch.tensor([decoder_input], device=model.device)
        weights = model.attention(source_row, target_row)
        log_probabilities = model(source_row, target_row)[0].float().log_softmax(dim=-1)
    trace = [possible_branches(step) for step in trace]
    branch_tokens = sorted({branch.token for step in trace for branch in step})
    side = tokenizer.target
    return Inspection(
        source=source,
        target=tokenizer.decode(hypotheses[0].tokens) if target is None else target,
        target_was_given=target is not None,
        source_tokens=readable(tokenizer.source, source_ids),
        input_tokens=readable(side, decoder_input),
        target_tokens=readable(side, target_ids),
        log_probabilities=log_probabilities[range(len(target_ids)), target_ids].tolist(),
        encoder=_stack(weights.encoder, len(source_ids), len(source_ids)),
        decoder=_stack(weights.decoder, len(target_ids), len(target_ids)),
        encoder_decoder=_stack(weights.encoder_decoder, len(target_ids), len(source_ids)),
        candidates=[_candidate(hypothesis, tokenizer) for hypothesis in hypotheses],
        trace=trace,
        best_path=best_path(trace, _with_eos(hypotheses[0], eos)),
        token_names=dict(zip(branch_tokens, readable(side, branch_tokens), strict=True)),
        has_words=has_words(side),
    )


def possible_branches(step: list[Branch]) -> list[Branch]:
    """Return the branches without those that a rule forbids, which are the last of their step."""
    return [branch for branch in step if branch.score > -math.inf]


def best_path(trace: list[list[Branch]], tokens: list[int]) -> list[int]:
    """Return the index of each token among the branches of its step; empty if the tokens are no path."""
    paths = [([index], branch) for index, branch in enumerate(trace[0])] if trace else []
    for step, token in enumerate(tokens):
        paths = [(path, branch) for path, branch in paths if branch.token == token]
        if step == len(tokens) - 1:
            break
        paths = [
            ([*path, index], branch)
            for path, _ in paths
            for index, branch in enumerate(trace[step + 1] if step + 1 < len(trace) else [])
            if branch.parent == path[-1]
        ]
    return paths[0][0] if paths else []


def _encode(
    encode: Callable[[Sequence[str]], list[list[int]]], text: str, name: str, frame: int, limit: int | None
) -> list[int]:
    """Return the ids of a text, which must have more than the ``frame`` of tokens around it."""
    require_utf8(text, name)
    (ids,) = encode([text])
    if len(ids) <= frame:
        raise DataError(f"{name} is empty", "give at least one word")
    for maximum, reason in ((limit, "the model reads"), (MAX_TOKENS, "a page shows")):
        if maximum is not None and len(ids) > maximum:
            raise DataError(
                f"{name} has {len(ids):,} tokens, but {reason} at most {maximum:,}", "give a shorter text"
            )
    return ids


def _with_eos(hypothesis: Hypothesis, eos: int) -> list[int]:
    has_ended = len(hypothesis.log_probabilities) > len(hypothesis.tokens)
    return [*hypothesis.tokens, eos] if has_ended else hypothesis.tokens


def _candidate(hypothesis: Hypothesis, tokenizer: TokenizerPair) -> Candidate:
    tokens = readable(tokenizer.target, hypothesis.tokens)
    text = tokenizer.decode(hypothesis.tokens)
    return Candidate(text, hypothesis.score, tokens, hypothesis.log_probabilities)


def _stack(layers: list[Tensor], rows: int, columns: int) -> Tensor:
    """Stack the layers' weights for one sentence: (layers, heads, rows, columns); empty without any layer."""
    if not layers:
        return torch.zeros(0, 0, rows, columns)
    return torch.stack([layer[0] for layer in layers]).float().cpu()
