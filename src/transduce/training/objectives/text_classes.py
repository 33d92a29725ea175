"""Text classification: predict the class of a text, or of a pair of texts."""

import numpy as np
import torch

from transduce.config import TrainingConfig
from transduce.data.batching import pad_rows
from transduce.data.prepared import Pairs
from transduce.data.text_pairs import segments_of
from transduce.models.bert import BERT
from transduce.training.loss import Loss, classification_loss
from transduce.training.objectives.objective import Indices
from transduce.training.objectives.single_text import SingleTextObjective


class TextClassesObjective(SingleTextObjective):
    """Predict classes. Sources are rows of `encode_lines`, targets are class numbers."""

    def __init__(self, pairs: Pairs, training: TrainingConfig) -> None:
        super().__init__(pairs.source, training)
        self.classes = pairs.target

    def loss(self, model: BERT, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of these texts."""
        special = model.vocabulary
        rows = [np.array([special.bos, *self.texts[index], special.eos]) for index in indices]
        labels = torch.tensor([int(self.classes[index][0]) for index in indices], device=model.device)
        tokens = pad_rows(rows, special.pad).to(model.device)
        logits = model.classify(model.encode(tokens, segments_of(tokens, special)))
        return classification_loss(logits, labels, smoothing=self.training.label_smoothing)
