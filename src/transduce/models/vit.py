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

NEEDED: tuple[Literal["image_size", "patch_size", "channels", "classes"], ...] = (
    "image_size",
    "patch_size",
    "channels",
    "classes",
)


class ViT(Model):
    """Images in, logits of their classes out."""

    config: ViTConfig
    vocabulary: None = None

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        if not isinstance(config, ViTConfig):
            raise TypeError(f"give a ViTConfig, not a {type(config).__name__}")
        if missing := [name for name in NEEDED if getattr(config, name) is None]:
            raise ConfigError(f"a model of family 'vit' needs {missing[0]}", "set it in [model]")
        self.config = config
        self.channels, self.patch = config.channels or 0, config.patch_size or 0
        width, (rows, columns) = config.d_model, config.grid
        self.embedding = Linear(self.channels * self.patch**2, width)
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
        """Images (batch, height, width, channels) → logits (batch, classes).

        Pixels are bytes, or numbers from 0 to 1. ``record`` receives the attention weights of each layer,
        (batch, heads, token, token): the class token, if there is one, then the patches row by row.
        """
        x = self.embedding(patches(self.normalised(images), self.patch))
        if self.class_token is not None:
            x = torch.cat((self.class_token.to(x.dtype).expand(len(x), 1, -1), x), dim=1)
        x = self.encoder(self.dropout(self.positions(x)), record=record)
        pooled = x.mean(dim=1) if self.class_token is None else x[:, 0]
        logits: Tensor = self.head(self.norm(pooled))
        return logits

    def normalised(self, images: Tensor) -> Tensor:
        """``(pixel − mean) / std``, channel by channel, of pixels from 0 to 1."""
        expected = (*self.config.size, self.channels)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(f"images are (batch, {', '.join(map(str, expected))}), not {images.shape}")
        x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if self.config.mean is not None:
            x = x - x.new_tensor(self.config.mean)
        if self.config.std is not None:
            x = x / x.new_tensor(self.config.std)
        return x.to(self.norm.weight.dtype)

    @torch.no_grad()
    def attention(self, images: Tensor) -> list[Tensor]:
        """The weights of every layer and head: (batch, heads, token, token) a layer."""
        weights: list[Tensor] = []
        self(images, weights)
        return weights


def patches(images: Tensor, side: int) -> Tensor:
    """(batch, height, width, channels) → (batch, patches, side · side · channels).

    Patches go row by row from the top left. So do the pixels inside a patch, and each pixel's channels
    stand together: ``[row 0 [pixel 0 [channels] …] row 1 …]``.
    """
    batch, height, width, channels = images.shape
    cut = images.view(batch, height // side, side, width // side, side, channels)
    return cut.transpose(2, 3).reshape(batch, -1, side * side * channels)
