"""How well a language model predicts a text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from transduce import artifact
from transduce.data.batching import batches_by_length
from transduce.data.blocks import Cutter
from transduce.data.masking import IGNORED
from transduce.data.plain_text import read_texts
from transduce.data.rows import Rows
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.models.gpt import GPT

TOKENS = 2048  # in a batch: blocks × the longest


@dataclass(frozen=True)
class Perplexity:
    """Of a text; the end of a line counts as a token, and as a byte."""

    nats: float
    tokens: int
    bytes: int

    @property
    def a_token(self) -> float:
        """e to the mean negative log-likelihood of a token: comparable between models of one vocabulary."""
        return math.exp(min(self.nats / self.tokens, 100))

    @property
    def bits_a_byte(self) -> float:
        """Comparable between all models."""
        return self.nats / math.log(2) / self.bytes


def measure_files(folder: str | Path, paths: Sequence[Path], *, packed: bool = True) -> Perplexity:
    """Of a model in a folder, on these files; the lines end to end, or each by itself."""
    model, tokenizer = artifact.load_gpt(folder), artifact.load_tokenizer(folder)
    texts = list(read_texts(paths))
    if not texts:
        raise DataError(f"{' and '.join(map(str, paths))} holds no text", "give a file with text")
    return measure(model, tokenizer, texts, packed=packed)


@torch.inference_mode()
def measure(model: GPT, tokenizer: TokenizerPair, texts: list[str], *, packed: bool = True) -> Perplexity:
    """Every token is predicted once, from what stands before it in its block of the model's context."""
    special = model.vocabulary
    rows = tokenizer.target_rows(texts)
    one = special.bos == special.eos
    rows = rows if one and packed else rows.started(special.bos)
    cutter = Cutter(model.config.max_length + 1, overlap=1, packed=packed)
    begin = cutter.cut(Rows.of([[special.bos]] if one and packed else []))
    blocks = [*begin.tolist(), *cutter.cut(rows).tolist(), *cutter.rest().tolist()]
    nats, tokens = 0.0, 0
    for batch in batches_by_length([len(block) for block in blocks], TOKENS):
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(blocks[row]) for row in batch], batch_first=True, padding_value=IGNORED
        )
        labels = padded[:, 1:].clone()
        if not one:  # what begins a line is given
            labels[labels == special.bos] = IGNORED
        logits = model(padded[:, :-1].clamp(min=0)).float()
        nats += float(
            F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        )
        tokens += int((labels != IGNORED).sum())
    read = tokenizer.target.normalized(texts)
    return Perplexity(nats, tokens, sum(len(text.encode()) + 1 for text in read))
