"""Accuracy of an image classifier on labelled images."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from transduce import artifact
from transduce.data.image_files import read_images
from transduce.data.images import Images
from transduce.errors import DataError
from transduce.models.vit import ViT

BATCH = 128  # images


@dataclass(frozen=True)
class ImageEvaluation:
    """How often a model was right, in all and class by class."""

    classes: list[str]
    confusion: list[list[int]]  # [true class][predicted class]

    @property
    def images(self) -> int:
        """How many were looked at."""
        return sum(map(sum, self.confusion))

    @property
    def correct(self) -> int:
        """How many the model was right about."""
        return sum(row[number] for number, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of them."""
        return self.correct / self.images

    def by_class(self) -> list[dict[str, str | int | float | None]]:
        """Of each class: its images, the share recognised, and the share of right ones among its guesses."""
        guessed = np.array(self.confusion).sum(axis=0)
        return [
            {
                "class": name,
                "images": sum(row),
                "recall": row[number] / sum(row) if sum(row) else None,
                "precision": row[number] / int(guessed[number]) if guessed[number] else None,
            }
            for number, (name, row) in enumerate(zip(self.classes, self.confusion, strict=True))
        ]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        figures = {"images": self.images, "correct": self.correct, "accuracy": self.accuracy}
        return {**figures, "by_class": self.by_class(), **asdict(self)}


def evaluate_images(model: str | Path | ViT, path: str | Path | Images) -> ImageEvaluation:
    """A model's guesses about labelled images, whichever of `read_images`' kinds they are of."""
    vit = model if isinstance(model, ViT) else artifact.load_vit(model)
    names, size = vit.config.class_names, vit.config.size
    images = path if isinstance(path, Images) else read_images(path, size=size, channels=vit.channels)
    images = images.with_classes(names)
    if not len(images):
        raise DataError(f"{path} holds no images", "give some")
    confusion: npt.NDArray[np.int64] = np.zeros((len(names), len(names)), dtype=np.int64)
    for begin in range(0, len(images), BATCH):
        pixels = torch.tensor(images.pixels[begin : begin + BATCH], device=vit.device)
        with torch.inference_mode():
            guessed = vit(pixels).argmax(dim=-1).cpu().numpy()
        np.add.at(confusion, (images.labels[begin : begin + BATCH], guessed), 1)
    return ImageEvaluation(names, confusion.tolist())
