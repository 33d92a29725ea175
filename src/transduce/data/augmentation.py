"""Images anew in every epoch: shifted by a few pixels, and mirrored."""

import numpy as np
import numpy.typing as npt

from transduce.data.images import Pixels

Indices = npt.NDArray[np.int64]


class Augmentation:
    """What becomes of an image is a function of the seed, the epoch and the image's number."""

    def __init__(self, images: int, *, crop: int, flip: bool, seed: int) -> None:
        self.images, self.crop, self.flip, self.seed = images, crop, flip, seed
        self._drawn: tuple[int, Indices] | None = None  # of the last epoch: (images, 3)

    def __call__(self, pixels: Pixels, indices: Indices, epoch: int) -> Pixels:
        """Pixels (batch, height, width, channels) of these images → the same shape.

        An image gets ``crop`` black pixels on every side, and a part of its size is cut out at random.
        """
        if not (self.crop or self.flip):
            return pixels
        _, height, width, _ = pixels.shape
        down, right, mirrored = self._draw(epoch)[indices].T[..., None]  # each (batch, 1)
        room = [(0, 0), (self.crop, self.crop), (self.crop, self.crop), (0, 0)]
        rows = down + np.arange(height)
        columns = right + np.where(mirrored, np.arange(width)[::-1], np.arange(width))
        batch = np.arange(len(pixels))[:, None, None]
        cut: Pixels = np.pad(pixels, room)[batch, rows[:, :, None], columns[:, None, :]]
        return cut

    def _draw(self, epoch: int) -> Indices:
        if self._drawn is None or self._drawn[0] != epoch:
            most = [2 * self.crop, 2 * self.crop, int(self.flip)]
            random = np.random.default_rng((self.seed, epoch, 1))  # not those of the order
            self._drawn = epoch, random.integers(0, most, size=(self.images, 3), endpoint=True)
        return self._drawn[1]
