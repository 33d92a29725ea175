"""Labelled images: in memory, or memory-mapped from a prepared folder with these files.

pixels.npy    (images, height, width, channels), uint8
labels.npy    (images,), int64
classes.json  the names of the classes, in the order of their numbers
"""

import json
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError  # NumPy may raise it for a damaged header

import numpy as np
import numpy.typing as npt

from transduce.data.prepared import RESTORE
from transduce.errors import DataError, reason_of, remedy_for_writing
from transduce.files import read_json

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
CHUNK = 4096  # images processed at once


@dataclass(frozen=True)
class Images:
    """Images of one size, and the class of each."""

    pixels: Pixels  # (images, height, width, channels)
    labels: Labels  # (images,)
    classes: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]

    @property
    def channels(self) -> int:
        """The number of channels: 1 for gray images, 3 for color images."""
        return int(self.pixels.shape[3])

    def select(self, rows: npt.NDArray[np.int64]) -> "Images":
        """Return these images, in this order."""
        return Images(self.pixels[rows], self.labels[rows], self.classes)

    def split(self, share: float, seed: int = 0) -> tuple["Images", "Images"]:
        """Split off a random share of each class: return the rest and the share.

        At least one image is split off, and at least one image of every class stays in the rest.
        """
        order = np.random.default_rng(seed).permutation(len(self))
        labels, counts = self.labels[order], np.bincount(self.labels)
        by_class = np.argsort(labels, kind="stable")
        rank = np.empty(len(self))  # within the class
        rank[by_class] = np.arange(len(self)) - (np.cumsum(counts) - counts)[labels[by_class]]
        spare = int((counts - 1).clip(min=0).sum())
        if not spare:
            raise DataError("every class has only one image", "give more images, or use --valid")
        # Classes take turns, so that all have given the same share at any point.
        turn = np.where(rank == counts[labels] - 1, np.inf, (rank + 0.5) / counts[labels])
        held = np.argsort(turn, kind="stable")[: min(spare, max(1, round(share * len(self))))]
        return self.select(np.sort(np.delete(order, held))), self.select(np.sort(order[held]))

    def named(self, classes: list[str]) -> "Images":
        """Return the images with other class names, one for every class."""
        if len(self.labels) and int(self.labels.max()) >= len(classes):
            raise DataError(
                f"an image has class {int(self.labels.max())}, counted from 0, "
                f"but only {len(classes)} classes have names",
                "name every class",
            )
        return Images(self.pixels, self.labels, classes)

    def with_classes(self, classes: list[str]) -> "Images":
        """Return the images with these classes: matched by name or, if the names are numbers, by order."""
        numbers = [str(number) for number in range(len(self.classes))]
        unnamed = self.classes == numbers and not set(numbers) <= set(classes)
        return self.named(classes) if unnamed else self.renumbered(classes)

    def renumbered(self, classes: list[str]) -> "Images":
        """Return the images with classes numbered as in this list, which must contain all of them."""
        if unknown := [name for name in self.classes if name not in classes]:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise DataError(f"unknown class {unknown[0]!r}", f"use the classes of the model: {known}")
        numbers = np.array([classes.index(name) for name in self.classes], dtype=np.int64)
        return Images(self.pixels, numbers[self.labels], classes)

    def moments(self) -> tuple[list[float], list[float]]:
        """Return mean and standard deviation of each channel, for pixels scaled to the range from 0 to 1."""
        total = np.zeros((2, self.channels))
        for begin in range(0, len(self), CHUNK):
            part = self.pixels[begin : begin + CHUNK].reshape(-1, self.channels) / 255.0
            total += part.sum(axis=0), np.square(part).sum(axis=0)
        mean, square = total / (len(self) * self.size[0] * self.size[1])
        std = np.sqrt(np.maximum(square - mean**2, 0))
        # A constant channel is divided by 1.
        return [round(float(m), 4) for m in mean], [round(float(s), 4) or 1.0 for s in std]

    def save(self, folder: Path) -> None:
        """Write a prepared folder."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / "pixels.npy", self.pixels, allow_pickle=False)
            np.save(folder / "labels.npy", self.labels, allow_pickle=False)
            (folder / "classes.json").write_text(json.dumps(self.classes) + "\n", encoding="utf-8")
        except OSError as error:
            raise DataError(
                f"cannot write {folder}: {reason_of(error)}",
                remedy_for_writing(error),
            ) from error

    @staticmethod
    def open(folder: Path) -> "Images":
        """Open what `save` wrote; pixels are read from disk when they are used."""
        try:
            pixels = np.load(folder / "pixels.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, RecursionError, TokenError) as error:
            raise DataError(f"{folder} is damaged: {error}", RESTORE) from error
        classes = read_json(folder / "classes.json", error=DataError, remedy=RESTORE)
        images = Images(pixels, labels, classes)
        images.check(folder)
        return images

    def check(self, folder: Path) -> None:
        """Raise a `DataError` that names ``folder`` if types, shapes or labels are wrong."""
        names = isinstance(self.classes, list) and all(isinstance(name, str) for name in self.classes)
        if not names:
            raise DataError(f"{folder / 'classes.json'} is damaged: it is not a list of names", RESTORE)
        if self.pixels.dtype != np.uint8 or self.pixels.ndim != 4:
            raise DataError(f"{folder / 'pixels.npy'} is damaged: these are not images", RESTORE)
        if self.labels.dtype != np.int64 or self.labels.shape != (len(self.pixels),):
            raise DataError(f"{folder / 'labels.npy'} is damaged: it does not fit the images", RESTORE)
        if len(self) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise DataError(f"{folder / 'labels.npy'} is damaged: a label is not a class", RESTORE)
