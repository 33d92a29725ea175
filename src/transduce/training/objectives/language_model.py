"""Language modelling: predict each next token of a text."""

from transduce.data.batching import pad_rows
from transduce.data.masking import IGNORED
from transduce.models.gpt import GPT
from transduce.training.loss import Loss, chunked_loss
from transduce.training.objectives.objective import Indices
from transduce.training.objectives.single_text import SingleTextObjective


class LanguageModelObjective(SingleTextObjective):
    """Predict each next token; ``bos``, which starts a text, is given and never predicted."""

    def loss(self, model: GPT, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of these texts."""
        special = model.vocabulary
        rows = [self.texts[index] for index in indices]
        inputs = pad_rows([row[:-1] for row in rows], special.pad)
        labels = pad_rows([row[1:] for row in rows], IGNORED)
        if special.bos != special.eos:
            labels[labels == special.bos] = IGNORED
        return chunked_loss(
            model.decode(inputs.to(model.device)),
            model.output.weight,
            labels.to(model.device),
            pad=IGNORED,
            bias=model.output.bias,
            smoothing=self.training.label_smoothing,
        )
