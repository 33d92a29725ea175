"""Images for an image classifier: read, split and written as bytes."""

from dataclasses import dataclass, field
from math import gcd
from pathlib import Path

from rich.console import Console

from transduce.config import ViTConfig, validate
from transduce.data.image_files import read_images
from transduce.data.images import Images
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError, DataError
from transduce.files import user_path
from transduce.runs.defaults import TrainingDefaults, UserChoices, image_defaults
from transduce.runs.inputs import File
from transduce.runs.task import IMAGE_CLASSES, Task

PATCHES = 64  # default limit per image, so that a small model on a CPU is fast enough
LARGEST_SIDE = 4096  # pixels


@dataclass
class ImageInputs:
    """The image files of a run, and the size to which they are scaled."""

    images: File | None = None
    valid: File | None = None
    size: str | None = None  # "32" or "32x48", height x width; only for folders of images
    hold_out: float = 0.1
    _read: tuple[Images, Images] | None = field(default=None, init=False)  # to train and to validate on
    _model: ViTConfig | None = field(default=None, init=False)

    @property
    def task(self) -> Task:
        """Image classification."""
        return IMAGE_CLASSES

    def check(self, choices: UserChoices, console: Console) -> None:
        """Read the images, and complete the model with what they tell."""
        if self.images is None:
            raise DataError("no images were given", "use --images PATH")
        size = parse_size(self.size)
        model = _chosen_model(choices)
        if choices.from_model and size and size != model.size:
            raise ConfigError(
                f"--size is {self.size}, but the model to start from reads images of "
                f"{model.size[0]}×{model.size[1]} pixels",
                "leave --size out",
            )
        with console.status("reading the images ..."):
            train, _ = self._read = self._read_images(size, model, choices)
        self._model = complete(_without_other_classes(model, train, choices), train)

    def make_tokenizer(self, choices: UserChoices, console: Console) -> TokenizerPair | None:
        """Return nothing: images have no tokenizer."""
        return None

    def write(
        self, folder: Path, tokenizer: TokenizerPair | None, choices: UserChoices, console: Console
    ) -> None:
        """Write the images that `check` has read."""
        if self._read is None:
            raise TypeError("check the images before they are written")
        for part, images in zip(("train", "valid"), self._read, strict=True):
            images.save(folder / part)

    def choose_model(self, choices: UserChoices, data: Images, tokenizer: TokenizerPair | None) -> ViTConfig:
        """Return the model that `check` has completed."""
        if self._model is None:
            raise TypeError("check the images before a model is chosen")
        return self._model

    def training_defaults(self, choices: UserChoices, data: Images) -> TrainingDefaults:
        """Return the training settings for this number of images."""
        return image_defaults(choices, len(data))

    def summary(self, train: Images, valid: Images, tokenizer: TokenizerPair | None) -> str:
        """Return the numbers of images and classes, and the sizes of images and patches."""
        patch = self._model.patch_size if self._model else None
        height, width = train.size
        return (
            f"{len(train):,} training images, {len(valid):,} validation images, "
            f"{len(train.classes)} classes; {height}×{width} pixels in patches of {patch}×{patch}"
        )

    def _read_images(
        self, size: tuple[int, int] | None, model: ViTConfig, choices: UserChoices
    ) -> tuple[Images, Images]:
        """Return the images to train and to validate on."""
        path = user_path(self.images or "")
        size = size or (model.size if model.image_size else None)
        train = read_images(path, size=size, channels=model.channels)
        if isinstance(model.classes, list):
            if not choices.from_model or set(train.classes) <= set(model.classes):
                train = train.with_classes(model.classes)
        elif isinstance(model.classes, int):
            train = train.named([*train.classes, *map(str, range(len(train.classes), model.classes))])
        if len(set(train.labels.tolist())) < 2:
            raise DataError(f"{path} has images of only one class", "give images of at least two classes")
        if self.valid is None:
            return train.split(self.hold_out, seed=choices.training().get("seed", 1))
        valid = read_images(user_path(self.valid), size=train.size, channels=train.channels)
        return train, valid.with_classes(train.classes)


def _without_other_classes(model: ViTConfig, images: Images, choices: UserChoices) -> ViTConfig:
    """Return the model without the classes of the one it starts from, if the images have others."""
    others = choices.from_model is not None and images.classes != model.classes
    return model.model_copy(update={"classes": None}) if others else model


def complete(model: ViTConfig, images: Images) -> ViTConfig:
    """Return the model with everything that the images determine."""
    mean, std = images.moments()
    height, width = images.size
    patch = suitable_patch(height, width)
    if patch == 1 and model.patch_size is None and height * width > PATCHES:
        raise DataError(
            f"images of {height}×{width} pixels cannot be divided into square patches",
            "choose another --size",
        )
    chosen = {"patch_size": patch, "mean": mean, "std": std, **model.model_dump(exclude_none=True)}
    determined = {
        "image_size": height if height == width else [height, width],
        "channels": images.channels,
        "classes": images.classes,
    }
    return validate(ViTConfig, {**chosen, **determined}, where="[model]")


def suitable_patch(height: int, width: int) -> int:
    """Return the smallest patch that divides both sides and gives at most `PATCHES` patches."""
    common = gcd(height, width)
    divisors = [side for side in range(2, common + 1) if common % side == 0]
    large_enough = [side for side in divisors if height * width // side**2 <= PATCHES]
    return min(large_enough, default=max(divisors, default=1))


def parse_size(size: str | None) -> tuple[int, int] | None:
    """Return height and width from "32" or "32x48"."""
    if size is None:
        return None
    parts = size.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) <= LARGEST_SIDE for part in parts):
        raise ConfigError(
            f"--size is {size!r}", f"give a number of pixels up to {LARGEST_SIDE:,}, or HEIGHTxWIDTH"
        )
    return int(parts[0]), int(parts[-1])


def _chosen_model(choices: UserChoices) -> ViTConfig:
    model = choices.model() or ViTConfig()
    if not isinstance(model, ViTConfig):
        raise ConfigError(
            f"transduce vision train trains models of family 'vit', not {model.family!r}",
            'choose a preset such as vit-small, or set family = "vit" in the run file',
        )
    return choices.adjust(model)
