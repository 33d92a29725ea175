"""Learning to say what is on an image."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TrainingConfig
from transduce.data.augmentation import Augmentation
from transduce.data.images import Images
from transduce.models.vit import ViT
from transduce.training.loss import Loss
from transduce.training.objectives.translation import Indices, Words

IMAGES = Words(
    "image",
    "image",
    perplexity=False,
    ignored="the model ignores its images: others would do as well. Are the labels right?",
)


class ImageClassification:
    """Look at an image, predict its class."""

    words = IMAGES
    longest: int | None = None

    def __init__(self, images: Images, training: TrainingConfig, tokens: int) -> None:
        """``tokens`` are those of an image: they decide how many are computed at once."""
        self.images, self.training, self.tokens = images, training, tokens
        self._augment = Augmentation(len(images), crop=training.crop, flip=training.flip, seed=training.seed)

    def steps(self, epoch: int) -> list[list[Indices]]:
        """See `Objective`: ``batch_images`` a step, in as many parts as ``max_tokens`` asks for."""
        order = np.random.default_rng((self.training.seed, epoch)).permutation(len(self.images))
        at_once = max(1, self.training.max_tokens // self.tokens)
        size = self.training.batch_images
        whole = [order[begin : begin + size] for begin in range(0, len(order), size)]
        return [np.array_split(step, -(-len(step) // at_once)) for step in whole]

    def pieces(self, model: ViT, indices: Indices, epoch: int) -> list[Indices]:
        """See `Objective`."""
        return [indices]

    def loss(self, model: ViT, indices: Indices, epoch: int) -> Loss:
        """See `Objective`."""
        pixels = self.images.pixels[indices]
        if model.training:
            pixels = self._augment(pixels, indices, epoch)
        return self._loss(model, torch.from_numpy(pixels), indices)

    def blind_loss(self, model: ViT, indices: Indices) -> Loss | None:
        """See `Objective`."""
        if len(self.images) < 2:
            return None
        others = np.roll(indices, 1) if len(indices) > 1 else (indices + 1) % len(self.images)
        return self._loss(model, torch.from_numpy(self.images.pixels[others]), indices)

    def _loss(self, model: ViT, pixels: Tensor, indices: Indices) -> Loss:
        labels = torch.from_numpy(self.images.labels[indices]).to(model.device)
        logits = model(pixels.to(model.device)).float()
        smoothed = F.cross_entropy(
            logits, labels, reduction="sum", label_smoothing=self.training.label_smoothing
        )
        with torch.no_grad():
            nll = float(F.cross_entropy(logits, labels, reduction="sum"))
            correct = int((logits.argmax(dim=-1) == labels).sum())
        return Loss(smoothed, nll, correct, len(indices))
