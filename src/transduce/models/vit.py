"""The Vision Transformer (Dosovitskiy et al., 2021): the paper's encoder over the patches of an image."""

from typing import Literal

import torch
from torch import Tensor, nn

from transduce.config import ViTConfig
from transduce.errors import ConfigError
from transduce.models.protocol import Model
from transduce.models.stack import stack
from transduce.nn.dropout import Dropout
from transduce.nn.linear import Linear
from transduce.nn.positional import GridPositions, LearnedPositions

REQUIRED: tuple[Literal["image_size", "patch_size", "channels", "classes"], ...] = (
    "image_size",
    "patch_size",
    "channels",
    "classes",
)


class ViT(Model):
    """An image classifier: images in, logits of their classes out."""

    config: ViTConfig
    vocabulary: None = None

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        if not isinstance(config, ViTConfig):
            raise TypeError(f"ViT takes a ViTConfig, not {type(config).__name__}")
        if missing := [name for name in REQUIRED if getattr(config, name) is None]:
            raise ConfigError(f"a model of family 'vit' needs {missing[0]}", f"set {missing[0]} in [model]")
        self.config = config
        self.channels, self.patch = config.channels or 0, config.patch_size or 0
        width, (rows, columns) = config.d_model, config.grid
        pixels = self.channels * self.patch**2
        self.pixel_norm = nn.LayerNorm(pixels, eps=config.norm_epsilon) if config.patch_norm else None
        self.embedding = Linear(pixels, width)
        self.patch_norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.patch_norm else None
        self.class_token = nn.Parameter(torch.zeros(width)) if config.pooling == "class" else None
        tokens = rows * columns + (self.class_token is not None)
        self.positions = (
            LearnedPositions(tokens, width)
            if config.positions == "learned"
            else GridPositions(rows, columns, width)
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = stack(config)
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        self.head = Linear(width, len(config.class_names))

    def forward(self, images: Tensor, record: list[Tensor] | None = None) -> Tensor:
        """Classify images, (batch, height, width, channels) or channels first → logits (batch, classes).

        Pixels are uint8, or numbers from 0 to 1. ``record`` receives the attention weights of each layer,
        (batch, heads, token, token): the class token, if there is one, then the patches row by row.
        """
        x = self.embed(patches(self.normalised(images), self.patch))
        if self.class_token is not None:
            x = torch.cat((self.class_token.to(x.dtype).expand(len(x), 1, -1), x), dim=1)
        x = self.encoder(self.dropout(self.positions(x)), record=record)
        pooled = x.mean(dim=1) if self.class_token is None else x[:, 0]
        logits: Tensor = self.head(self.norm(pooled))
        return logits

    def embed(self, pixels: Tensor) -> Tensor:
        """Embed patches: (batch, patches, side · side · channels) → (batch, patches, d_model)."""
        if self.pixel_norm is None or self.patch_norm is None:
            embedded: Tensor = self.embedding(pixels)
        else:
            embedded = self.patch_norm(self.embedding(self.pixel_norm(pixels)))
        return embedded

    def normalised(self, images: Tensor) -> Tensor:
        """Compute ``(pixel − mean) / std`` for each channel, of pixels from 0 to 1."""
        height, width = self.config.size
        if tuple(images.shape[1:]) == (self.channels, height, width) != (height, width, self.channels):
            images = images.movedim(1, -1)
        if tuple(images.shape[1:]) != (height, width, self.channels):
            raise ValueError(
                f"images must be (batch, {height}, {width}, {self.channels}) or "
                f"(batch, {self.channels}, {height}, {width}), not {tuple(images.shape)}"
            )
        x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if self.config.mean is not None:
            x = x - x.new_tensor(self.config.mean)
        if self.config.std is not None:
            x = x / x.new_tensor(self.config.std)
        return x.to(self.norm.weight.dtype)

    @torch.no_grad()
    def attention(self, images: Tensor) -> list[Tensor]:
        """Return the weights of every layer and head: (batch, heads, token, token) per layer."""
        weights: list[Tensor] = []
        self(images, weights)
        return weights


def patches(images: Tensor, side: int) -> Tensor:
    """Cut images, (batch, height, width, channels), into (batch, patches, side · side · channels).

    Patches are in row-major order from the top left, and so are the pixels inside a patch, with the channels
    of a pixel side by side: ``[row 0 [pixel 0 [channels] …] row 1 …]``.
    """
    batch, height, width, channels = images.shape
    cut = images.reshape(batch, height // side, side, width // side, side, channels)
    return cut.transpose(2, 3).reshape(batch, -1, side * side * channels)
