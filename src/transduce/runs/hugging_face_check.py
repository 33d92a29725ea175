"""Compare models that do not translate with what transformers loads: outputs, continuations and tokens."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError
from transduce.interop.hugging_face_peer import continue_greedily, library_version, load_peer, load_tokenizer
from transduce.interop.peer import Search
from transduce.models.bert import BERT
from transduce.models.gpt import GPT
from transduce.models.protocol import Model
from transduce.models.vit import ViT
from transduce.runs.parity import LINES, TOLERANCE, Parity, first_difference
from transduce.runs.text_parity import compare_continuations, mismatch, random_texts

_ROWS, _LONGEST = 4, 24


def verify_hugging_face(model: Model, tokenizer: TokenizerPair | None, folder: Path) -> Parity:
    """Compare all outputs of a model, and the tokens of lines, with those of a folder.

    A difference is an error, as is a folder that transformers cannot load.
    """
    theirs = None if tokenizer is None else load_tokenizer(folder)
    return compare_with(model, tokenizer, load_peer(folder), theirs)


@torch.inference_mode()
def compare_with(model: Model, tokenizer: TokenizerPair | None, twin: Any, their_tokenizer: Any) -> Parity:
    """Compare with a model and a tokenizer that transformers has loaded; a difference is an error."""
    library = f"transformers {library_version()}"
    findings = []
    if tokenizer is not None:
        findings.append(_compare_tokens(tokenizer, their_tokenizer, library))
    for what, ours, theirs in _outputs(model, twin):
        findings.append(_compare(what, ours, theirs, library))
    if isinstance(model, GPT):

        def search(prompts: Sequence[list[int]], search: Search) -> list[list[int]]:
            return [continue_greedily(twin, prompt, search.limit, model.vocabulary) for prompt in prompts]

        findings.append(compare_continuations(model, search, library, random_texts(model)))
    return Parity(findings, library)


def _outputs(model: Model, twin: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what both compute from random inputs, by name: every head that the model has."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, ViT):
        images = torch.rand(_ROWS, model.config.channels or 3, *model.config.size, generator=generator)
        yield "logits of random images", model(images), twin(pixel_values=images).logits
    elif isinstance(model, GPT):
        texts = _random_tokens(model, generator)
        yield "logits of random texts", model(texts), twin(texts).logits
    elif isinstance(model, BERT):
        yield from _bert_outputs(model, twin, generator)
    else:
        raise ConfigError(f"models of family {model.config.family!r} cannot be compared", "add --no-check")


def _bert_outputs(model: BERT, twin: Any, generator: torch.Generator) -> Iterator[tuple[str, Tensor, Tensor]]:
    tokens = _random_tokens(model, generator)
    segments = torch.randint(model.config.segments, tokens.shape, generator=generator)
    inputs = {
        "input_ids": tokens,
        "token_type_ids": segments,
        "attention_mask": torch.ones_like(tokens),
        "return_dict": True,
    }
    states, body, whole = model.encode(tokens, segments), twin.base_model(**inputs), twin(**inputs)
    yield "hidden states of random texts", states, body.last_hidden_state
    if model.pooler is not None and body.get("pooler_output") is not None:
        yield "pooled states", model.pool(states), body.pooler_output
    if model.masked_head is not None:
        logits = whole.get("prediction_logits")  # of a model for pre-training, which has two heads
        yield "logits of masked tokens", model(tokens, segments), whole.logits if logits is None else logits
    if model.classifier is not None:
        logits = whole.get("seq_relationship_logits")
        yield "logits of classes", model.classify(states), whole.logits if logits is None else logits


def _random_tokens(model: GPT | BERT, generator: torch.Generator) -> Tensor:
    vocabulary = model.vocabulary
    length = min(_LONGEST, model.config.max_length)
    tokens = torch.randint(vocabulary.target, (_ROWS, length), generator=generator)
    tokens[tokens == vocabulary.pad] = vocabulary.eos
    return tokens


def _compare(what: str, ours: Tensor, theirs: Tensor, library: str) -> str:
    if ours.shape != theirs.shape or not torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE):
        shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}" if ours.shape != theirs.shape else ""
        largest = shapes or f"by up to {float((ours - theirs).abs().max()):.1e}"
        raise mismatch(library, f"{what} differ, {largest}")
    return f"{what}: largest difference {float((ours - theirs).abs().max()):.1e}"


def _compare_tokens(tokenizer: TokenizerPair, theirs: Any, library: str) -> str:
    """Compare the tokens of lines without what stands around them, which the caller of a model adds."""
    for number, (line, our) in enumerate(zip(LINES, tokenizer.source.encode(LINES), strict=True), 1):
        their = list(map(int, theirs(line, add_special_tokens=False)["input_ids"]))
        if our != their:
            at = first_difference(our, their)
            raise mismatch(
                library, f"the tokenizer, line {number}, token {at + 1}: ours is {our}, theirs {their}"
            )
    return f"tokenizer: {len(LINES)} of {len(LINES)} lines have the same tokens"
