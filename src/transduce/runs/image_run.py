"""A run folder on images: from files to a trained Vision Transformer.

run.toml       the resolved configuration; written last, so that it stands for a prepared run
data/          the images as bytes, to train on and to validate on
checkpoints/, metrics.jsonl, best/, final/   as of a run on text
"""

from dataclasses import dataclass
from math import gcd
from pathlib import Path

from transduce.config import RunConfig, TrainingConfig, ViTConfig, validate, write_toml
from transduce.data.image_files import read_images
from transduce.data.images import Images
from transduce.errors import DataError, TrainingError
from transduce.models.build import build
from transduce.models.vit import ViT
from transduce.runs.autotune import decide
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RunFolder
from transduce.runs.lock import alone_in
from transduce.training.objectives.image_classes import ImageClassesObjective

PATCHES = 64  # about as many as a small model on a CPU looks at in good time


@dataclass(frozen=True)
class ImageInputs:
    """The images, and what is done to them."""

    train: Path
    valid: Path | None = None
    hold_out: float = 0.1
    size: tuple[int, int] | None = None  # to which the images of a folder are brought


class ImageRun(RunFolder):
    """A run on images."""

    command = "vision train"
    inputs_made = frozenset({"data"})

    def prepare(self, inputs: ImageInputs, choices: UserChoices | None = None) -> None:
        """Read the images, and decide all that was left open."""
        choices = choices or UserChoices()
        self.check_place()
        model = _wished_model(choices)
        with self.console.status("reading the images ..."):
            train, valid = _read(inputs, model, choices.config)
        model = complete(model, train)
        with alone_in(self.folder):
            train.save(self.folder / "data" / "train")
            valid.save(self.folder / "data" / "valid")
            config = decide(
                lambda steps: RunConfig(model=model, training=suitable(choices, len(train), steps)),
                choices,
                lambda config: build(model, seed=config.training.seed),
                None,
                lambda config: self._objectives(model, config.training),
                self.team,
                self.console,
            )
            write_toml(config, self.folder / "run.toml")
        self.console.print(
            f"{len(train):,} images to train on, {len(valid):,} to validate, {len(train.classes)} classes; "
            f"{train.size[0]}×{train.size[1]} pixels in patches of {model.patch_size}×{model.patch_size}",
            highlight=False,
        )

    def open(self) -> tuple[RunConfig, ViT, None, ImageClassesObjective, ImageClassesObjective]:
        """Configuration, new model, no tokenizer, training and validation data of a prepared run."""
        config = self.read_config()
        if not isinstance(config.model, ViTConfig):
            raise TypeError(f"images are read by a vit, not a {config.model.family}")
        model = build(config.model, seed=config.training.seed)
        return config, model, None, *self._objectives(config.model, config.training)

    def _objectives(
        self, model: ViTConfig, training: TrainingConfig
    ) -> tuple[ImageClassesObjective, ImageClassesObjective]:
        rows, columns = model.grid
        train, valid = (Images.open(self.folder / "data" / part) for part in ("train", "valid"))
        return (
            ImageClassesObjective(train, training, rows * columns),
            ImageClassesObjective(valid, training, rows * columns),
        )


def suitable(choices: UserChoices, images: int, steps: int | None = None) -> TrainingConfig:
    """What was wished for, and for the rest what suits so many images: about 30 times through them."""
    asked = choices.config.training.model_dump(exclude_unset=True) if choices.config else {}
    size = asked.get("batch_images", TrainingConfig().batch_images)
    usual = int(min(100_000, max(1_000, 30 * images / size)))
    steps = steps or choices.steps or asked.get("steps") or usual
    chosen = {
        "warmup": max(1, min(1000, steps // 10)),
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "validate_every": max(1, min(1000, max(50, steps // 20), steps)),
        "average": 1,  # the rate has come down to nothing: the last weights are an average already
        **asked,
        "steps": steps,
        "minutes": choices.minutes or asked.get("minutes"),
    }
    return validate(TrainingConfig, chosen, where="training")


def complete(model: ViTConfig, images: Images) -> ViTConfig:
    """The same, with all that the images tell."""
    mean, std = images.moments()
    height, width = images.size
    patch = suitable_patch(height, width)
    if patch == 1 and model.patch_size is None and height * width > PATCHES:
        raise DataError(
            f"images of {height}×{width} divide into no square patches but pixels, which are too many",
            "bring them to another --size",
        )
    chosen = {"patch_size": patch, "mean": mean, "std": std, **model.model_dump(exclude_none=True)}
    told = {
        "image_size": height if height == width else [height, width],
        "channels": images.channels,
        "classes": images.classes,
    }
    return validate(ViTConfig, {**chosen, **told}, where="model")


def suitable_patch(height: int, width: int) -> int:
    """The smallest patch that both sides divide into and that leaves no more than `PATCHES`."""
    common = gcd(height, width)
    fit = [side for side in range(2, common + 1) if common % side == 0]
    few = [side for side in fit if height * width // side**2 <= PATCHES]
    return min(few, default=max(fit, default=1))


def _wished_model(choices: UserChoices) -> ViTConfig:
    model = choices.model() or ViTConfig()
    if not isinstance(model, ViTConfig):
        raise TrainingError(
            f"the run file has a model of family {model.family!r}", 'set family = "vit" in its [model]'
        )
    return model


def _read(inputs: ImageInputs, model: ViTConfig, config: RunConfig | None) -> tuple[Images, Images]:
    size = inputs.size or (model.size if model.image_size else None)
    train = read_images(inputs.train, size=size, channels=model.channels)
    if isinstance(model.classes, list):
        train = train.with_classes(model.classes)
    elif isinstance(model.classes, int):
        train = train.named([*train.classes, *map(str, range(len(train.classes), model.classes))])
    if len(set(train.labels.tolist())) < 2:
        raise DataError(f"{inputs.train} has images of one class only", "give two classes at least")
    if inputs.valid is None:
        return train.split(inputs.hold_out, seed=config.training.seed if config else 1)
    valid = read_images(inputs.valid, size=train.size, channels=train.channels)
    return train, valid.with_classes(train.classes)
