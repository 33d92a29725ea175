"""The Vision Transformer."""

from typing import Literal

from pydantic import Field, model_validator

from transduce.config import shared_fields as shared
from transduce.config.settings import Count, Positive, Settings


class ViTConfig(Settings):
    """The Vision Transformer (Dosovitskiy et al., 2021), an image classifier.

    Settings that are ``None`` are taken from the images on which a model is trained.
    """

    family: Literal["vit"] = Field(default="vit", description="Name of the family.")
    image_size: Count | list[Count] | None = Field(
        default=None, description="Size of the images in pixels: height and width, or one number for both."
    )
    patch_size: Count | None = Field(default=None, description="Height and width of a patch in pixels.")
    channels: Count | None = Field(default=None, description="Number of channels: 1 for grey, 3 for colour.")
    classes: Count | list[str] | None = Field(
        default=None, description="Names of the classes, or their number."
    )
    mean: list[float] | None = Field(
        default=None, description="Mean of each channel, subtracted from pixels between 0 and 1."
    )
    std: list[Positive] | None = Field(
        default=None, description="Standard deviation of each channel, by which pixels are divided."
    )
    layers: shared.Layers = 6
    d_model: shared.ModelWidth = 128
    d_ff: shared.FeedForwardWidth = 256
    heads: shared.Heads = 4
    d_k: shared.KeyWidth = None
    d_v: shared.ValueWidth = None
    dropout: shared.Dropout = 0.1
    attention_dropout: shared.AttentionDropout = 0.0
    activation_dropout: shared.ActivationDropout = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = Field(
        default="gelu", description="Activation of the feed-forward networks."
    )
    norm: shared.Norm = "pre"
    norm_epsilon: shared.NormEpsilon = 1e-5
    qkv_bias: bool = Field(
        default=True, description="Whether the maps to queries, keys and values have a bias."
    )
    patch_norm: bool = Field(
        default=False, description="Whether layer norms come before and after the embedding of patches."
    )
    pooling: Literal["class", "mean"] = Field(
        default="class", description="Input of the classifier: a class token, or the mean over all patches."
    )
    positions: Literal["learned", "sinusoidal"] = Field(
        default="learned", description="Kind of position embeddings."
    )

    @model_validator(mode="after")
    def _check(self) -> "ViTConfig":
        if self.d_k is None or self.d_v is None:
            shared.check_heads(self.d_model, self.heads, remedy="set d_k and d_v")
        if isinstance(self.image_size, list) and len(self.image_size) != 2:
            raise ValueError("image_size does not have two numbers; give height and width, or one number")
        if self.image_size and self.patch_size and any(side % self.patch_size for side in self.size):
            height, width = self.size
            raise ValueError(
                f"images of {height}×{width} do not divide into patches of {self.patch_size}; change one"
            )
        if isinstance(self.classes, list) and len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name; rename one")
        if self.classes is not None and len(self.class_names) < 2:
            raise ValueError("there are fewer than two classes; add classes")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and self.channels and len(values) != self.channels:
                raise ValueError(
                    f"{name} has {len(values)} numbers for {self.channels} channels; give one per channel"
                )
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of an image in pixels; ``image_size`` must be set."""
        if self.image_size is None:
            raise ValueError("image_size is not set")
        sides = [self.image_size] * 2 if isinstance(self.image_size, int) else self.image_size
        return sides[0], sides[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches; ``image_size`` and ``patch_size`` must be set."""
        height, width = self.size
        if self.patch_size is None:
            raise ValueError("patch_size is not set")
        return height // self.patch_size, width // self.patch_size

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, or their numbers if they have no names."""
        if isinstance(self.classes, int):
            return [str(number) for number in range(self.classes)]
        return self.classes or []

    @property
    def summary(self) -> str:
        """The model's sizes, in one line."""
        return f"{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, {self.heads} heads"
