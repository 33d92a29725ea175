"""What is learned from plain text: the next token, the masked ones, or the class of a text."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TrainingConfig
from transduce.data.batching import Row, group_steps, plan_batches
from transduce.data.masking import IGNORED, mask_tokens
from transduce.data.prepared import Pairs, Sequences
from transduce.data.text_pairs import segments_of
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.models.bert import BERT
from transduce.models.gpt import GPT
from transduce.training.loss import Loss, chunked_loss
from transduce.training.objectives.translation import Indices, Words

PLAIN_TEXT = Words("text", "token", perplexity=True, ignored="the model ignores what it reads.")
CLASSES = Words(
    "text", "text", perplexity=False, ignored="the model ignores its texts. Are the labels right?"
)


class _OneText:
    """Examples of one text each, in batches of like length; nothing to exchange for a blind loss."""

    words = PLAIN_TEXT
    longest: int | None = None

    def __init__(self, texts: Sequences, training: TrainingConfig) -> None:
        self.texts, self.training = texts, training
        self.lengths: Indices = texts.lengths

    def steps(self, epoch: int) -> list[list[Indices]]:
        """See `Objective`."""
        batches = plan_batches(
            self.lengths,
            self.lengths,
            max_tokens=self.training.max_tokens,
            seed=self.training.seed,
            epoch=epoch,
        )
        return group_steps(batches, self.lengths, self.training.batch_tokens or 1)

    def pieces(self, model: Any, indices: Indices, epoch: int) -> list[Indices]:
        """See `Objective`."""
        return [indices]

    def blind_loss(self, model: Any, indices: Indices) -> Loss | None:
        """See `Objective`."""
        return None


class LanguageModel(_OneText):
    """Read a text, predict each next token. What begins a text, ``bos``, is given and not predicted."""

    def loss(self, model: GPT, indices: Indices, epoch: int) -> Loss:
        """See `Objective`."""
        special = model.vocabulary
        rows = [self.texts[index] for index in indices]
        read = _padded([row[:-1] for row in rows], special.pad)
        labels = _padded([row[1:] for row in rows], IGNORED)
        if special.bos != special.eos:
            labels[labels == special.bos] = IGNORED
        return chunked_loss(
            model.read(read.to(model.device)),
            model.output.weight,
            labels.to(model.device),
            pad=IGNORED,
            smoothing=self.training.label_smoothing,
        )


class MaskedTokens(_OneText):
    """Guess what was masked. What is masked depends on seed, epoch and example alone."""

    def __init__(self, texts: Sequences, training: TrainingConfig, tokenizer: TokenizerPair) -> None:
        super().__init__(texts, training)
        self.mask = mask_of(tokenizer)
        side = tokenizer.source
        self.ordinary = np.array([id_ for id_ in range(side.size) if id_ not in side.special])

    def read(self, model: BERT, indices: Indices, epoch: int) -> tuple[Tensor, Tensor]:
        """Tokens and labels, (batch, length) each: ``[CLS] … [SEP]``, padded."""
        special = model.vocabulary
        found = [
            mask_tokens(
                self.texts[index],
                self.mask,
                self.ordinary,
                np.random.default_rng([self.training.seed, epoch, int(index)]),
            )
            for index in indices
        ]
        tokens = _padded([np.array([special.bos, *one.tokens, special.eos]) for one in found], special.pad)
        labels = _padded([np.array([IGNORED, *one.labels, IGNORED]) for one in found], IGNORED)
        return tokens.to(model.device), labels.to(model.device)

    def loss(self, model: BERT, indices: Indices, epoch: int) -> Loss:
        """See `Objective`."""
        tokens, labels = self.read(model, indices, epoch)
        chosen = labels != IGNORED
        hidden, matrix, bias = model.guesses(model.encode(tokens)[chosen])
        # A bias is one more column of the matrix, for a dimension that is always 1.
        return chunked_loss(
            torch.cat((hidden, torch.ones_like(hidden[:, :1])), dim=1),
            torch.cat((matrix, bias[:, None]), dim=1),
            labels[chosen],
            pad=IGNORED,
            smoothing=self.training.label_smoothing,
        )


class TextClasses(_OneText):
    """Tell the class of a text, or of two: sources are rows of `encode_lines`, targets numbers of classes."""

    words = CLASSES

    def __init__(self, pairs: Pairs, training: TrainingConfig) -> None:
        super().__init__(pairs.source, training)
        self.classes = pairs.target

    def loss(self, model: BERT, indices: Indices, epoch: int) -> Loss:
        """See `Objective`."""
        special = model.vocabulary
        rows = [np.array([special.bos, *self.texts[index], special.eos]) for index in indices]
        labels = torch.tensor([int(self.classes[index][0]) for index in indices], device=model.device)
        tokens = _padded(rows, special.pad).to(model.device)
        logits = model.classify(model.encode(tokens, segments_of(tokens, special))).float()
        smoothed = F.cross_entropy(
            logits, labels, reduction="sum", label_smoothing=self.training.label_smoothing
        )
        nll = F.cross_entropy(logits.detach(), labels, reduction="sum")
        return Loss(smoothed, float(nll), int((logits.argmax(dim=1) == labels).sum()), len(labels))


def mask_of(tokenizer: TokenizerPair) -> int:
    """The token that stands for a missing one."""
    found = tokenizer.source.id_of("[MASK]", "<mask>")
    if found is None:
        raise DataError(
            "the tokenizer has no [MASK]", "train one (--tokenizer wordpiece), or give BERT's vocab.txt"
        )
    return found


def _padded(rows: list[Row], pad: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)
