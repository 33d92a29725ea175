"""Masked language modelling (BERT): predict the tokens that were masked."""

import numpy as np
from torch import Tensor

from transduce.config import TrainingConfig
from transduce.data.batching import pad_rows
from transduce.data.masking import IGNORED, mask_tokens
from transduce.data.prepared import Sequences
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.models.bert import BERT
from transduce.training.loss import Loss, chunked_loss
from transduce.training.objectives.objective import Indices
from transduce.training.objectives.single_text import SingleTextObjective


class MaskedLanguageModelObjective(SingleTextObjective):
    """Predict masked tokens. The masks depend on seed, epoch and example alone."""

    def __init__(self, texts: Sequences, training: TrainingConfig, tokenizer: TokenizerPair) -> None:
        super().__init__(texts, training)
        self.mask_id = find_mask_id(tokenizer)
        side = tokenizer.source
        self.ordinary = np.array([id_ for id_ in range(side.size) if id_ not in side.special])

    def read(self, model: BERT, indices: Indices, epoch: int) -> tuple[Tensor, Tensor]:
        """Return tokens and labels, (batch, length) each: ``[CLS] … [SEP]``, padded."""
        special = model.vocabulary
        masked = [
            mask_tokens(
                self.texts[index],
                self.mask_id,
                self.ordinary,
                np.random.default_rng([self.training.seed, epoch, int(index)]),
            )
            for index in indices
        ]
        tokens = pad_rows([np.array([special.bos, *row.tokens, special.eos]) for row in masked], special.pad)
        labels = pad_rows([np.array([IGNORED, *row.labels, IGNORED]) for row in masked], IGNORED)
        return tokens.to(model.device), labels.to(model.device)

    def loss(self, model: BERT, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of the masked tokens."""
        tokens, labels = self.read(model, indices, epoch)
        is_masked = labels != IGNORED
        hidden, matrix, bias = model.masked_token_projection(model.encode(tokens)[is_masked])
        return chunked_loss(
            hidden,
            matrix,
            labels[is_masked],
            pad=IGNORED,
            bias=bias,
            smoothing=self.training.label_smoothing,
        )


def find_mask_id(tokenizer: TokenizerPair) -> int:
    """Return the id of the tokenizer's mask token."""
    mask_id = tokenizer.source.mask_id
    if mask_id is None:
        raise DataError(
            "the tokenizer has no [MASK] token",
            "use --tokenizer wordpiece, which trains one, or give BERT's vocab.txt",
        )
    return mask_id
