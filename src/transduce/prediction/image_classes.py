"""Image classification with a Vision Transformer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce import artifact
from transduce.data.image_files import list_images, pixels_for_model, read_for_model
from transduce.engine.precision import for_inference, summarize
from transduce.errors import ConfigError, DataError
from transduce.files import user_path
from transduce.models.protocol import Precision
from transduce.models.vit import ViT

BATCH_IMAGES = 128

Pixels: TypeAlias = npt.NDArray[Any] | Tensor


@dataclass(frozen=True)
class ClassProbability:
    """A class and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class ClassifiedImage:
    """The most likely classes of an image, best first."""

    file: str | None  # None for an image that was given as an array
    classes: list[ClassProbability]

    @property
    def label(self) -> str:
        """The most likely class."""
        return self.classes[0].label

    @property
    def probability(self) -> float:
        """The probability of the most likely class."""
        return self.classes[0].probability

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class UnreadableImage:
    """An image file that cannot be read."""

    file: str
    error: DataError


@dataclass(frozen=True)
class ImageClassifier:
    """A Vision Transformer that assigns classes to images: files, or pixels with the channels first or last.

    ``ImageClassifier.load("runs/photos/final")`` takes a trained model. This one is not trained:

    >>> import torch, transduce
    >>> sizes = {"layers": 1, "d_model": 16, "d_ff": 32, "heads": 2}
    >>> config = transduce.ViTConfig(
    ...     image_size=[8, 8], patch_size=4, channels=3, classes=["cat", "dog"], **sizes
    ... )
    >>> classifier = transduce.ImageClassifier(transduce.ViT(config).eval())
    >>> results = classifier(torch.rand(5, 3, 8, 8))
    >>> len(results), results[0].label in ("cat", "dog"), results[0].probability >= 0.5
    (5, True, True)
    """

    model: ViT

    def __repr__(self) -> str:
        return f"ImageClassifier({summarize(self.model)}, {len(self.model.config.class_names)} classes)"

    @classmethod
    def load(
        cls, folder: str | Path, *, precision: Precision = "auto", device: str = "auto"
    ) -> "ImageClassifier":
        """Load the classifier in a model folder."""
        return cls(for_inference(artifact.load_as(folder, "vit"), precision, device))

    @overload
    def __call__(self, images: str | Path, *, top: int = 1) -> ClassifiedImage: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: Sequence[str | Path], *, top: int = 1) -> list[ClassifiedImage]: ...
    @overload
    def __call__(
        self, images: Any, *, top: int = 1, channels_first: bool | None = None
    ) -> ClassifiedImage | list[ClassifiedImage]: ...
    def __call__(
        self,
        images: Any,
        *,
        top: int = 1,
        channels_first: bool | None = None,
    ) -> ClassifiedImage | list[ClassifiedImage]:
        """Return the ``top`` most likely classes of one image, or a list of results for several.

        Images are file names, Pillow images, or pixels as an array or tensor: bytes, or numbers from 0 to 1,
        of shape (height, width, channels) or (channels, height, width). Several are a list, or an array with
        a batch dimension in front. If the order of the dimensions is not given by ``channels_first``, the
        shape decides; where it fits both orders, the channels are taken to be last.
        """
        if isinstance(images, np.ndarray | Tensor):
            pixels = torch.tensor(images) if isinstance(images, np.ndarray) else images
            results = list(self._classify(self._channels_last(pixels, channels_first), top))
            return results[0] if pixels.dim() == 3 else results
        if hasattr(images, "convert"):  # a Pillow image
            pixels = torch.tensor(pixels_for_model(images, self.model.config.size, self.model.channels))
            return self._classify(pixels[None], top)[0]
        if isinstance(images, list | tuple) and not all(isinstance(image, str | Path) for image in images):
            return [self._classify_one(image, top, channels_first) for image in images]
        if isinstance(images, str | Path):
            if user_path(images).is_dir():
                raise DataError(f"{images} is a folder", "give a list of files and folders")
            return self([images], top=top)[0]
        results = []
        for result in self.stream(images, top=top):
            if isinstance(result, UnreadableImage):
                raise result.error
            results.append(result)
        return results

    def _classify_one(self, image: Any, top: int, channels_first: bool | None) -> ClassifiedImage:
        """Classify an element of a list: a file name, a Pillow image, or pixels without a batch dimension."""
        result = self(image, top=top, channels_first=channels_first)
        if isinstance(result, list):
            raise DataError("a list element has a batch dimension", "give one image per element")
        return result

    def stream(
        self, paths: Sequence[str | Path], *, top: int = 1
    ) -> Iterator[ClassifiedImage | UnreadableImage]:
        """Yield a result for each of these image files, and for each image in those that are folders."""
        files = list_images([user_path(path) for path in paths])
        for begin in range(0, len(files), BATCH_IMAGES):
            yield from self._classify_files(files[begin : begin + BATCH_IMAGES], top)

    def _classify_files(self, files: Sequence[Path], top: int) -> Iterator[ClassifiedImage | UnreadableImage]:
        pixels: list[npt.NDArray[np.uint8]] = []
        unreadable: dict[Path, DataError] = {}
        for file in files:
            try:
                pixels.append(read_for_model([file], self.model.config.size, self.model.channels))
            except DataError as error:
                unreadable[file] = error
        results = iter(self._classify(torch.from_numpy(np.concatenate(pixels)), top) if pixels else ())
        for file in files:
            if file in unreadable:
                yield UnreadableImage(str(file), unreadable[file])
            else:
                yield ClassifiedImage(str(file), next(results).classes)

    @torch.inference_mode()
    def _classify(self, pixels: Tensor, top: int) -> list[ClassifiedImage]:
        """Classify pixels of shape (batch, height, width, channels)."""
        if top < 1:
            raise ConfigError(f"top (--top) is {top}", "use 1 or more")
        names, results = self.model.config.class_names, []
        for batch in torch.split(pixels, BATCH_IMAGES):
            probabilities = self.model(batch.to(self.model.device)).float().softmax(dim=-1)
            best = probabilities.topk(min(top, len(names)))
            for values, classes in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                labels = (names[number] for number in classes)
                results.append(ClassifiedImage(None, list(map(ClassProbability, labels, values))))
        return results

    def _channels_last(self, pixels: Tensor, channels_first: bool | None) -> Tensor:
        """Return pixels as (batch, height, width, channels)."""
        batch = pixels[None] if pixels.dim() == 3 else pixels
        height, width = self.model.config.size
        last, first = (height, width, self.model.channels), (self.model.channels, height, width)
        shape = tuple(batch.shape[1:])
        fits = {False: shape == last, True: shape == first}
        order = channels_first if channels_first is not None else not fits[False] and fits[True]
        if not fits[order]:
            raise DataError(
                f"the images have shape {tuple(pixels.shape)}",
                f"give (batch, {', '.join(map(str, last))}) or (batch, {', '.join(map(str, first))})",
            )
        return batch.permute(0, 2, 3, 1) if order else batch
