"""Perplexity of a text under a language model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from transduce import artifact
from transduce.data.batching import batches_by_length, pad_rows
from transduce.data.blocks import Cutter
from transduce.data.masking import IGNORED
from transduce.data.plain_text import read_texts
from transduce.data.rows import Rows
from transduce.data.tokenizer import TokenizerPair
from transduce.engine.precision import for_inference
from transduce.errors import DataError
from transduce.models.gpt import GPT
from transduce.models.perplexity import perplexity

BATCH_TOKENS = 2048  # blocks × the longest block


@dataclass(frozen=True)
class Perplexity:
    """The negative log-likelihood of a text; the end of a line counts as a token and as a byte."""

    nats: float
    tokens: int
    bytes: int

    @property
    def per_token(self) -> float:
        """The exponential of the mean negative log-likelihood per token: comparable for one vocabulary."""
        return perplexity(self.nats / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """The negative log-likelihood in bits per byte: comparable between all models."""
        return self.nats / math.log(2) / self.bytes


def file_perplexity(
    folder: str | Path, paths: Sequence[Path], *, packed: bool = True, device: str = "auto"
) -> Perplexity:
    """Measure the perplexity of files under the model in a folder, in float32; see `text_perplexity`."""
    model = for_inference(artifact.load_as(folder, "gpt"), "float32", device)
    tokenizer = artifact.load_tokenizer(folder)
    texts = list(read_texts(paths))
    if not texts:
        raise DataError(f"{' and '.join(map(str, paths))}: no text", "give a file with text")
    return text_perplexity(model, tokenizer, texts, packed=packed)


@torch.inference_mode()
def text_perplexity(
    model: GPT, tokenizer: TokenizerPair, texts: list[str], *, packed: bool = True
) -> Perplexity:
    """Measure the perplexity of texts, in blocks of the model's context length.

    Every token is predicted once, from the tokens before it in its block. If ``packed``, the texts form one
    sequence; otherwise each is a sequence of its own.
    """
    special = model.vocabulary
    rows = tokenizer.target_rows(texts)
    one_token_for_both = special.bos == special.eos  # it ends one text and begins the next, as in GPT-2
    rows = rows if one_token_for_both and packed else rows.started(special.bos)
    cutter = Cutter(model.config.max_length + 1, overlap=1, packed=packed)
    first = cutter.cut(Rows.of([[special.bos]] if one_token_for_both and packed else []))
    blocks = [*first.tolist(), *cutter.cut(rows).tolist(), *cutter.rest().tolist()]
    nats, tokens = 0.0, 0
    for batch in batches_by_length([len(block) for block in blocks], BATCH_TOKENS):
        padded = pad_rows([blocks[row] for row in batch], IGNORED).to(model.device)
        labels = padded[:, 1:].clone()
        if not one_token_for_both:  # the beginning of a text is given, not predicted
            labels[labels == special.bos] = IGNORED
        logits = model(padded[:, :-1].clamp(min=0)).float()
        nats += float(
            F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        )
        tokens += int((labels != IGNORED).sum())
    normalized = tokenizer.target.normalized(texts)
    return Perplexity(nats, tokens, sum(len(text.encode()) + 1 for text in normalized))
