"""Images by class: in memory as bytes, or mapped from a prepared folder.

pixels.npy    (images, height, width, channels), uint8
labels.npy    (images,), int64
classes.json  the classes' names, in the order of their numbers
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transduce.errors import DataError

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
CHUNK = 4096  # images that are looked at at once


@dataclass(frozen=True)
class Images:
    """Images of one size, and which class each belongs to."""

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
        """Numbers a pixel: 1 for grey, 3 for colours."""
        return int(self.pixels.shape[3])

    def select(self, rows: npt.NDArray[np.int64]) -> "Images":
        """These images, in this order."""
        return Images(self.pixels[rows], self.labels[rows], self.classes)

    def split(self, share: float, seed: int = 0) -> tuple["Images", "Images"]:
        """Most of them, and a share drawn at random from each class, which keeps at least one for the former.

        At least one is drawn in all.
        """
        order = np.random.default_rng(seed).permutation(len(self))
        labels, counts = self.labels[order], np.bincount(self.labels)
        by_class = np.argsort(labels, kind="stable")
        rank = np.empty(len(self))  # among those of its class
        rank[by_class] = np.arange(len(self)) - (np.cumsum(counts) - counts)[labels[by_class]]
        spare = int((counts - 1).clip(min=0).sum())
        if not spare:
            raise DataError("no class has an image to spare", "give more of them, or images to validate on")
        # The first of every class, then the second, so that all have given the same share at any point.
        turn = np.where(rank == counts[labels] - 1, np.inf, (rank + 0.5) / counts[labels])
        held = np.argsort(turn, kind="stable")[: min(spare, max(1, round(share * len(self))))]
        return self.select(np.sort(np.delete(order, held))), self.select(np.sort(order[held]))

    def named(self, classes: list[str]) -> "Images":
        """The same with other names for the classes, of which there must be enough."""
        if len(self.labels) and int(self.labels.max()) >= len(classes):
            raise DataError(
                f"there is an image of class number {int(self.labels.max())}, counted from 0, "
                f"but only {len(classes)} classes have names",
                "name them all",
            )
        return Images(self.pixels, self.labels, classes)

    def with_classes(self, classes: list[str]) -> "Images":
        """The same with the classes of this list: by name, or, if the names are unknown numbers, in order."""
        numbers = [str(number) for number in range(len(self.classes))]
        unnamed = self.classes == numbers and not set(numbers) <= set(classes)
        return self.named(classes) if unnamed else self.renumbered(classes)

    def renumbered(self, classes: list[str]) -> "Images":
        """The same with classes numbered as in this list, which must have all of them."""
        if unknown := [name for name in self.classes if name not in classes]:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise DataError(f"there is no class {unknown[0]!r}", f"known: {known}")
        numbers = np.array([classes.index(name) for name in self.classes], dtype=np.int64)
        return Images(self.pixels, numbers[self.labels], classes)

    def moments(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, of pixels from 0 to 1."""
        total = np.zeros((2, self.channels))
        for begin in range(0, len(self), CHUNK):
            part = self.pixels[begin : begin + CHUNK].reshape(-1, self.channels) / 255.0
            total += part.sum(axis=0), np.square(part).sum(axis=0)
        mean, square = total / (len(self) * self.size[0] * self.size[1])
        std = np.sqrt(np.maximum(square - mean**2, 0))
        # A channel that is the same everywhere is divided by 1.
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
                f"cannot write {folder}: {error.strerror}", "check the space and your rights"
            ) from error

    @staticmethod
    def open(folder: Path) -> "Images":
        """What `save` wrote; the pixels stay on the disk until they are looked at."""
        try:
            pixels = np.load(folder / "pixels.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / "labels.npy", allow_pickle=False)
            classes = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{folder} is damaged: {error}", "prepare the run again") from error
        return Images(pixels, labels, classes)
