"""Image classification: predict the class of an image."""

import numpy as np
import torch
from torch import Tensor

from transduce.config import TrainingConfig
from transduce.data.augmentation import Augmentation
from transduce.data.images import Images
from transduce.models.vit import ViT
from transduce.training.loss import Loss, classification_loss
from transduce.training.objectives.objective import Indices, other_examples


class ImageClassesObjective:
    """Predict the class of an image, augmented in training."""

    example = "image"
    ignored_source = "the model ignores its images: other images give the same classes. Check the labels."
    longest_source: int | None = None

    def __init__(self, images: Images, training: TrainingConfig, tokens: int) -> None:
        """``tokens``, the number of patches per image, decides how many images are computed at once."""
        self.images, self.training, self.tokens = images, training, tokens
        self.shortest = tokens
        self._augment = Augmentation(len(images), crop=training.crop, flip=training.flip, seed=training.seed)

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Return steps of ``batch_images`` images each, in batches of at most ``max_tokens`` patches."""
        order = np.random.default_rng((self.training.seed, epoch)).permutation(len(self.images))
        at_once = max(1, self.training.max_tokens // self.tokens)
        size = self.training.batch_images
        steps = [order[begin : begin + size] for begin in range(0, len(order), size)]
        return [np.array_split(step, -(-len(step) // at_once)) for step in steps]

    def microbatches(self, model: ViT, indices: Indices, epoch: int) -> list[Indices]:
        """Return the batch as it is: it is never larger than planned."""
        return [indices]

    def loss(self, model: ViT, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of these images."""
        pixels = self.images.pixels[indices]
        if model.training:
            pixels = self._augment(pixels, indices, epoch)
        return self._loss(model, torch.from_numpy(pixels), indices)

    def shuffled_source_loss(self, model: ViT, indices: Indices) -> Loss | None:
        """Return the loss when each label gets the image of another one."""
        if len(self.images) < 2:
            return None
        others = other_examples(indices, len(self.images))
        return self._loss(model, torch.from_numpy(self.images.pixels[others]), indices)

    def _loss(self, model: ViT, pixels: Tensor, indices: Indices) -> Loss:
        labels = torch.from_numpy(self.images.labels[indices]).to(model.device)
        logits = model(pixels.to(model.device))
        return classification_loss(logits, labels, smoothing=self.training.label_smoothing)
