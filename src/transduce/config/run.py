"""A run: a model and how it is trained."""

from typing import ClassVar, Literal

from pydantic import Field

from transduce.config.families import ModelConfig, TransformerConfig
from transduce.config.settings import (
    Count,
    Epsilon,
    Id,
    Minutes,
    NonNegative,
    Positive,
    Probability,
    Seed,
    Settings,
)


class TrainingConfig(Settings):
    """How a model is trained: by default, as the models of the paper's Table 3."""

    steps: Count = Field(default=100_000, description="Number of training steps.")
    warmup: Count = Field(default=4_000, description="Steps in which the learning rate rises to its peak.")
    label_smoothing: Probability = Field(
        default=0.1, description="Probability that label smoothing spreads over the vocabulary."
    )
    schedule: Literal["inverse_sqrt", "cosine", "linear", "plateau"] = Field(
        default="inverse_sqrt", description="Learning rate after warm-up."
    )
    learning_rate: Epsilon | None = Field(
        default=None,
        description="Peak learning rate; if unset, the paper's, which depends on d_model and warmup.",
    )
    max_tokens: Count = Field(default=4096, description="Tokens per batch, padding included.")
    batch_tokens: Count | None = Field(
        default=None,
        description="Target tokens per step, gathered from several batches; if unset, one batch per step.",
    )
    batch_images: Count = Field(default=128, description="Images per step of a Vision Transformer.")
    crop: Id = Field(
        default=0, description="Pixels of padding from which an image of the original size is cropped."
    )
    flip: bool = Field(default=False, description="Whether half of the images are mirrored, left to right.")
    clip: NonNegative = Field(default=1.0, description="Largest norm of the gradient; 0 for no clipping.")
    r_drop: NonNegative = Field(
        default=0.0,
        description="Weight of R-Drop, the divergence of two passes with dropout; 0 for a single pass.",
    )
    bpe_dropout: Probability = Field(
        default=0.0, description="Probability with which each BPE merge is skipped in training."
    )
    freeze: list[str] = Field(
        default_factory=list, description='Parts of the model that are not trained, such as "encoder".'
    )
    adapter_rank: Count | None = Field(
        default=None,
        description="Rank of low-rank additions (LoRA) that are trained instead of the weights of the model "
        "to start from; if unset, the weights are trained.",
    )
    adapter_alpha: Positive = Field(
        default=16.0, description="Scale of the low-rank additions, which are multiplied by alpha / rank."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="Precision of matrix products; auto chooses the faster one."
    )
    threads: Count | None = Field(
        default=None, description="Number of CPU threads; if unset, chosen by short trials before the run."
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="With several processes: a whole model in each (ddp), or one model in shards (fsdp).",
    )
    seed: Seed = Field(default=1, description="Random seed of weights, data order and dropout.")
    minutes: Minutes | None = Field(
        default=None, description="Minutes after which the run ends, even before its last step."
    )
    validate_every: Count = Field(default=500, description="Steps between validations.")
    validation_metric: Literal["loss", "bleu", "chrf"] = Field(
        default="loss", description="Metric by which the best model is chosen and patience is counted."
    )
    save_minutes: NonNegative = Field(
        default=15.0,
        description="Minutes after which a checkpoint is saved between validations, too; 0 for never.",
    )
    patience: Id = Field(
        default=0,
        description="Validations without improvement after which the run ends; 0 for no early stopping.",
    )
    keep: Count = Field(default=5, description="Number of checkpoints to keep.")
    average: Count = Field(
        default=5, description="Number of checkpoints that are averaged for the final model."
    )
    ema: Probability = Field(
        default=0.0,
        description="Decay of a moving average of the weights, replacing averaged checkpoints; 0 for none.",
    )


class RunConfig(Settings):
    """A model and how it is trained: the content of a run file."""

    other_keys: ClassVar[tuple[str, ...]] = ("preset",)

    model: ModelConfig = Field(default=TransformerConfig(), description="The model.")
    training: TrainingConfig = Field(default=TrainingConfig(), description="The training.")
