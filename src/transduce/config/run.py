"""A run: a model and how it is trained."""

from typing import Annotated, Literal

from pydantic import Field

from transduce.config.families import ModelConfig, TransformerConfig
from transduce.config.settings import Count, Id, Probability, Settings


class TrainingConfig(Settings):
    """How a model is trained: by default, as the paper trained a row of Table 3."""

    steps: Count = 100_000
    warmup: Count = 4_000
    label_smoothing: Probability = 0.1
    schedule: Literal["inverse_sqrt", "cosine", "linear", "plateau"] = "inverse_sqrt"  # after warm-up
    learning_rate: Annotated[float, Field(gt=0, lt=1)] | None = None  # at its peak; the paper's if not given
    max_tokens: Count = 4096  # in a batch that is computed at once
    batch_tokens: Count | None = None  # real target tokens in a step; a single batch if not given
    batch_images: Count = 128  # in a step of a model that reads images
    crop: Id = 0  # pixels added around an image, of which a part of its size is cut at random
    flip: bool = False  # half of the images, left to right
    clip: Annotated[float, Field(ge=0)] = 1.0  # the gradient's largest norm; 0 for none
    r_drop: Annotated[float, Field(ge=0)] = 0.0  # weight of the divergence between two passes; 0 for one pass
    bpe_dropout: Probability = 0.0  # of each merge, anew each time a pair is read
    freeze: list[str] = Field(default_factory=list)  # parts that stay as they are, such as "encoder"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of matrix products; auto: the faster
    threads: Count | None = None  # of the CPU; tried together with the precision
    parallel: Literal["ddp", "fsdp"] = "ddp"  # with several processes: whole models, or one model in shards
    seed: Id = 1
    minutes: Annotated[float, Field(gt=0)] | None = None  # the run ends then, if its steps have not
    validate_every: Count = 500  # steps
    patience: Id = 0  # validations without progress before stopping; 0 for never
    keep: Count = 5  # checkpoints
    average: Count = 5  # of them, in the final model
    ema: Probability = 0.0  # decay of a moving average of the weights, used instead of that; 0 for none


class RunConfig(Settings):
    """A model and how it is trained: what a run file holds."""

    model: ModelConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
