"""All that a page needs to follow one sentence through a model: `walk_data`."""

from dataclasses import asdict, replace
from typing import Any

import torch

from transduce.data.readable import has_words, readable
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.settings import SearchSettings
from transduce.decoding.trace import Trace
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.inspection.capture import possible_branches
from transduce.inspection.walk.attribution import attributions
from transduce.inspection.walk.model import (
    MOST_PARAMETERS,
    count_parameters,
    on_cpu,
    page_config,
    parameters_of,
    rounded_model,
    walkable,
)
from transduce.inspection.walk.stored import stored_sentence
from transduce.inspection.walk.tensors import pack_floats, pack_tensors
from transduce.inspection.walk.tokenizers import tokenizer_data
from transduce.models.transformer import Transformer

MOST_TOKENS = 256  # on a side: the page computes and shows a number for every pair of them
MOST_REFERENCE = 50_000  # logits of the check; of larger vocabularies, some columns are compared


def walk_data(translator: Translator, sentence: str) -> dict[str, Any]:
    """Translate a sentence and return what the page shows and computes with, ready for JSON.

    Up to `MOST_PARAMETERS`, the page has the model's weights, rounded to float16; beyond, the products of all
    linear layers for this sentence. The reference logits are computed with just these weights.
    """
    given, tokenizer = walkable(translator), translator.tokenizer
    parameters = count_parameters(given)
    computes = parameters <= MOST_PARAMETERS
    model = rounded_model(given) if computes else on_cpu(given)
    source = _source_ids(tokenizer, sentence, model.max_length)
    settings, trace = _settings(translator.settings), Trace()
    plain = replace(translator, model=model, settings=settings, glossary=None, prefix="", shortlist=None)
    hypotheses = plain.search(sentence, trace)
    if not hypotheses:
        raise DataError(
            "the search found no translation", "give another sentence, or relax the length limits"
        )
    prefix = tokenizer.target_prefix
    target = [*prefix, *_with_eos(hypotheses[0], model.vocabulary.eos)]
    inputs = [model.vocabulary.bos, *target[:-1]]
    found = attributions(model, source, inputs, target)
    data: dict[str, Any] = {
        "version": 1,
        "computes": computes,
        "parameters": parameters,
        "mostParameters": MOST_PARAMETERS,
        "config": page_config(model.config),
        "vocabulary": model.vocabulary.model_dump(),
        "sentence": {
            "source": sentence,
            "target": tokenizer.decode(hypotheses[0].tokens),
            "sourceIds": source,
            "inputIds": inputs,
            "targetIds": target,
        },
        "frame": {
            "sourcePrefix": tokenizer.source_prefix,
            "sourceSuffix": tokenizer.source_suffix,
            "targetPrefix": prefix,
        },
        "search": _search_data(settings, model, len(prefix), hypotheses, trace),
        "attributions": {"source": pack_floats(found.source), "target": pack_floats(found.target)},
        "names": _names(tokenizer, {*source}, {*inputs, *target, *_traced(trace)}, everything=computes),
        "hasWords": {"source": has_words(tokenizer.source), "target": has_words(tokenizer.target)},
        "tokenizers": _tokenizers(tokenizer) if computes else None,
    }
    return data | _numbers(model, computes, source, inputs, target, tokenizer)


@torch.no_grad()
def _numbers(
    model: Transformer,
    computes: bool,
    source: list[int],
    inputs: list[int],
    target: list[int],
    tokenizer: TokenizerPair,
) -> dict[str, Any]:
    """Return the tensors of the page and the logits that it checks itself against."""
    logits = model(torch.tensor([source]), torch.tensor([inputs]))[0]
    if computes:
        columns = _compared_columns(logits)
        return {
            "tensors": pack_tensors(parameters_of(model)),
            "reference": {
                "columns": columns,
                "logits": pack_floats(logits if columns is None else logits[:, columns]),
            },
        }
    stored = stored_sentence(model, source, inputs, target)
    return {
        "tensors": pack_tensors(stored.tensors),
        "stored": {
            "columns": stored.columns,
            "shares": stored.shares,
            "columnNames": readable(tokenizer.target, stored.columns),
        },
        "reference": {"columns": stored.columns, "logits": pack_floats(logits[:, stored.columns])},
    }


def _compared_columns(logits: torch.Tensor) -> list[int] | None:
    """Return tokens all over the vocabulary and the most likely ones; ``None`` if all are few enough."""
    if logits.numel() <= MOST_REFERENCE:
        return None
    step = -(-logits.numel() // MOST_REFERENCE)
    best = logits.topk(2, dim=1).indices.flatten().tolist()
    return sorted({*range(0, logits.size(1), step), *best})


def _source_ids(tokenizer: TokenizerPair, sentence: str, limit: int | None) -> list[int]:
    require_utf8(sentence, "the sentence")
    (ids,) = tokenizer.encode_source([sentence])
    if len(ids) <= sum(tokenizer.source_frame):
        raise DataError("the sentence is empty", "give at least one word")
    for maximum, reason in ((limit, "the model reads"), (MOST_TOKENS, "a walk shows")):
        if maximum is not None and len(ids) > maximum:
            raise DataError(
                f"the sentence has {len(ids):,} tokens, but {reason} at most {maximum:,}",
                "give a shorter text",
            )
    return ids


def _settings(settings: SearchSettings) -> SearchSettings:
    """Return the settings of a search that the page can do as well: no rules but the length."""
    longest = min(settings.max_length or MOST_TOKENS, MOST_TOKENS)
    return SearchSettings(
        beam=settings.width,
        length_penalty=settings.length_penalty,
        penalty=settings.penalty,
        extra_length=settings.extra_length,
        max_length=longest,
        stop=settings.stop,
    )


def _search_data(
    settings: SearchSettings, model: Transformer, prefix: int, hypotheses: list[Hypothesis], trace: Trace
) -> dict[str, Any]:
    eos = model.vocabulary.eos
    return {
        "beam": settings.beam,
        "alpha": settings.length_penalty,
        "penalty": settings.penalty,
        "exact": settings.stop == "exact",
        "extraLength": settings.extra_length,
        "maxLength": settings.max_length,
        "longest": None if model.max_length is None else model.max_length - prefix,
        "hypotheses": [
            {
                "tokens": hypothesis.tokens,
                "logProbabilities": hypothesis.log_probabilities,
                "score": hypothesis.score,
                "ended": len(_with_eos(hypothesis, eos)) > len(hypothesis.tokens),
            }
            for hypothesis in hypotheses
        ],
        "trace": [[_branch_data(asdict(branch)) for branch in possible_branches(step)] for step in trace],
    }


def _branch_data(branch: dict[str, Any]) -> dict[str, Any]:
    """Return a branch with the names that the page's own search gives its parts."""
    branch["logProbability"] = branch.pop("log_probability")
    return branch


def _traced(trace: Trace) -> set[int]:
    return {branch.token for step in trace for branch in step}


def _with_eos(hypothesis: Hypothesis, eos: int) -> list[int]:
    has_ended = len(hypothesis.log_probabilities) > len(hypothesis.tokens)
    return [*hypothesis.tokens, eos] if has_ended else hypothesis.tokens


def _names(
    tokenizer: TokenizerPair, source: set[int], target: set[int], *, everything: bool
) -> dict[str, dict[int, str] | list[str]]:
    """Return readable tokens of both sides: lists of all, or tables of those that occur."""

    def names(side: SideTokenizer, ids: set[int]) -> dict[int, str] | list[str]:
        if everything:
            return readable(side, range(side.size))
        used = sorted(ids)
        return dict(zip(used, readable(side, used), strict=True))

    return {"source": names(tokenizer.source, source), "target": names(tokenizer.target, target)}


def _tokenizers(tokenizer: TokenizerPair) -> dict[str, Any]:
    """Return the tokenizers of both sides; the target's is ``"source"`` if they share one."""
    source = tokenizer_data(tokenizer.source)
    return {"source": source, "target": "source" if tokenizer.joint else tokenizer_data(tokenizer.target)}
