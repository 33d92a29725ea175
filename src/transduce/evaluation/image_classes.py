"""Accuracy of an image classifier on labelled images."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from transduce import artifact
from transduce.data.image_files import read_images
from transduce.data.images import Images
from transduce.engine.precision import for_inference
from transduce.errors import DataError
from transduce.models.protocol import Precision
from transduce.models.vit import ViT

BATCH_IMAGES = 128


@dataclass(frozen=True)
class ImageEvaluation:
    """The predictions of an image classifier for labelled images, counted by class."""

    classes: list[str]
    confusion: list[list[int]]  # [true class][predicted class]

    @property
    def images(self) -> int:
        """The number of images."""
        return sum(map(sum, self.confusion))

    @property
    def correct(self) -> int:
        """The number of images classified correctly."""
        return sum(row[number] for number, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        """The fraction of images classified correctly."""
        return self.correct / self.images

    def by_class(self) -> list[dict[str, str | int | float | None]]:
        """Return the number of images, recall and precision of each class; ``None`` where undefined."""
        predicted = np.array(self.confusion).sum(axis=0)
        return [
            {
                "class": name,
                "images": sum(row),
                "recall": row[number] / sum(row) if sum(row) else None,
                "precision": row[number] / int(predicted[number]) if predicted[number] else None,
            }
            for number, (name, row) in enumerate(zip(self.classes, self.confusion, strict=True))
        ]

    def to_dict(self) -> dict[str, object]:
        """Return all figures, ready for JSON."""
        figures = {"images": self.images, "correct": self.correct, "accuracy": self.accuracy}
        return {**figures, "by_class": self.by_class(), **asdict(self)}


def evaluate_images(
    model: str | Path | ViT,
    images: str | Path | Images,
    *,
    precision: Precision = "auto",
    device: str = "auto",
) -> ImageEvaluation:
    """Classify labelled images, from anything that `read_images` reads, and count the predictions.

    ``precision`` and ``device`` are for a model folder; a `ViT` is used as it is.
    """
    vit = (
        model if isinstance(model, ViT) else for_inference(artifact.load_as(model, "vit"), precision, device)
    )
    names, size = vit.config.class_names, vit.config.size
    labelled = images if isinstance(images, Images) else read_images(images, size=size, channels=vit.channels)
    labelled = labelled.with_classes(names)
    if not len(labelled):
        raise DataError(f"{images} has no images", "give a folder or file with images")
    confusion: npt.NDArray[np.int64] = np.zeros((len(names), len(names)), dtype=np.int64)
    for begin in range(0, len(labelled), BATCH_IMAGES):
        pixels = torch.tensor(labelled.pixels[begin : begin + BATCH_IMAGES], device=vit.device)
        with torch.inference_mode():
            predicted = vit(pixels).argmax(dim=-1).cpu().numpy()
        np.add.at(confusion, (labelled.labels[begin : begin + BATCH_IMAGES], predicted), 1)
    return ImageEvaluation(names, confusion.tolist())
