"""Augmentation of images: shifted by a few pixels and mirrored, differently in every epoch."""

import numpy as np
import numpy.typing as npt

from transduce.data.images import Pixels

Indices = npt.NDArray[np.int64]


class Augmentation:
    """Random crops and flips, determined by the seed, the epoch and the index of the image."""

    def __init__(self, images: int, *, crop: int, flip: bool, seed: int) -> None:
        self.images, self.crop, self.flip, self.seed = images, crop, flip, seed
        self._sampled: tuple[int, Indices] | None = None  # the epoch, and its numbers (images, 3)

    def __call__(self, pixels: Pixels, indices: Indices, epoch: int) -> Pixels:
        """Augment the pixels (batch, height, width, channels) of these images; the shape stays the same.

        An image is padded with ``crop`` black pixels on every side, and cropped to its size at random.
        """
        if not (self.crop or self.flip):
            return pixels
        _, height, width, _ = pixels.shape
        down, right, mirrored = self._sample(epoch)[indices].T[..., None]  # each (batch, 1)
        room = [(0, 0), (self.crop, self.crop), (self.crop, self.crop), (0, 0)]
        rows = down + np.arange(height)
        columns = right + np.where(mirrored, np.arange(width)[::-1], np.arange(width))
        batch = np.arange(len(pixels))[:, None, None]
        cropped: Pixels = np.pad(pixels, room)[batch, rows[:, :, None], columns[:, None, :]]
        return cropped

    def _sample(self, epoch: int) -> Indices:
        if self._sampled is None or self._sampled[0] != epoch:
            highest = [2 * self.crop, 2 * self.crop, int(self.flip)]
            # The 1 separates these numbers from those that shuffle the images.
            random = np.random.default_rng((self.seed, epoch, 1))
            self._sampled = epoch, random.integers(0, highest, size=(self.images, 3), endpoint=True)
        return self._sampled[1]
