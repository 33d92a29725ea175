"""One sentence through a model: every attention weight, and every branch of the search."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.data.readable import has_words, readable
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.trace import Branch, Trace
from transduce.decoding.translation import Candidate
from transduce.decoding.translator import Translator
from transduce.errors import DataError, TransduceError
from transduce.inspection.heads import evaluating
from transduce.inspection.inspection import Inspection
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer

MOST = 512  # tokens on a side: a page grows with their square, and nobody looks at more


@torch.no_grad()
def inspect(translator: Translator, source: str, target: str | None = None) -> Inspection:
    """Translate a sentence and keep what happened; the weights are those of a given ``target``, if any."""
    model, tokenizer = translator.model, translator.tokenizer
    if not isinstance(model, Transformer | RNN):
        raise TransduceError(f"a {type(model).__name__} cannot be looked into", "inspect one of its models")
    ids = _ids(tokenizer.encode_source, source, "the sentence", model.max_length)
    given = None if target is None else _ids(tokenizer.encode_target, target, "the target", model.max_length)
    rows = torch.tensor([ids], device=model.device)
    trace: Trace = []
    with evaluating(model):
        found = translator.search(source, trace)
        if not found:
            raise DataError(
                "the search found nothing", "ask less of it: a prefix or a rule forbids all there is"
            )
        said = _said(found[0], model.vocabulary.eos) if given is None else given
        read = [model.vocabulary.bos, *said[:-1]]
        target_rows = torch.tensor([read], device=model.device)
        weights = model.attention(rows, target_rows)
        steps = model(rows, target_rows)[0].float().log_softmax(dim=-1)
    trace = [possible(step) for step in trace]
    tried = sorted({branch.token for step in trace for branch in step})
    side = tokenizer.target
    return Inspection(
        source=source,
        target=tokenizer.decode(found[0].tokens) if target is None else target,
        target_was_given=target is not None,
        source_tokens=readable(tokenizer.source, ids),
        read_tokens=readable(side, read),
        said_tokens=readable(side, said),
        log_probabilities=steps[range(len(said)), said].tolist(),
        encoder=_together(weights.encoder, len(ids), len(ids)),
        decoder=_together(weights.decoder, len(read), len(read)),
        encoder_decoder=_together(weights.encoder_decoder, len(read), len(ids)),
        candidates=[_candidate(one, tokenizer) for one in found],
        trace=trace,
        winner=winning_branches(trace, _said(found[0], model.vocabulary.eos)),
        token_names=dict(zip(tried, readable(side, tried), strict=True)),
        has_words=has_words(side),
    )


def possible(step: list[Branch]) -> list[Branch]:
    """Without those that a rule forbids: the last of their step, as is all that comes of them."""
    return [branch for branch in step if branch.score > -math.inf]


def winning_branches(trace: list[list[Branch]], tokens: list[int]) -> list[int]:
    """The way to these tokens: the place of each among its step's branches; none if it is not there."""
    ways = [([place], branch) for place, branch in enumerate(trace[0])] if trace else []
    for step, token in enumerate(tokens):
        ways = [(way, branch) for way, branch in ways if branch.token == token]
        if step == len(tokens) - 1:
            break
        ways = [
            ([*way, place], branch)
            for way, _ in ways
            for place, branch in enumerate(trace[step + 1] if step + 1 < len(trace) else [])
            if branch.parent == way[-1]
        ]
    return ways[0][0] if ways else []


def _ids(
    encode: Callable[[Sequence[str]], list[list[int]]], text: str, what: str, most: int | None
) -> list[int]:
    require_utf8(text, what)
    (ids,) = encode([text])
    if len(ids) < 2:
        raise DataError(f"{what} is empty", "give one with words in it")
    if most is not None and len(ids) > most:
        raise DataError(f"{what} has {len(ids)} tokens, but the model reads {most}", "give a shorter one")
    if len(ids) > MOST:
        raise DataError(f"{what} has {len(ids):,} tokens, and {MOST} can be shown", "give a part of it")
    return ids


def _said(found: Hypothesis, eos: int) -> list[int]:
    ended = len(found.log_probabilities) > len(found.tokens)
    return [*found.tokens, eos] if ended else found.tokens


def _candidate(found: Hypothesis, tokenizer: TokenizerPair) -> Candidate:
    tokens = readable(tokenizer.target, found.tokens)
    return Candidate(tokenizer.decode(found.tokens), found.score, tokens, found.log_probabilities)


def _together(layers: list[Tensor], rows: int, columns: int) -> Tensor:
    """(layers, heads, rows, columns), of one sentence; none of them where there is no such attention."""
    if not layers:
        return torch.zeros(0, 0, rows, columns)
    return torch.stack([layer[0] for layer in layers]).float().cpu()
