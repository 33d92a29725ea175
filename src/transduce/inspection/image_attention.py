"""Attention of a Vision Transformer over the patches of an image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.models.evaluation_mode import evaluating
from transduce.models.vit import ViT


@dataclass(frozen=True, repr=False)
class ImageAttention:
    """The attention of every layer and head over an image, and the predicted class."""

    pixels: Tensor  # (height, width, channels), bytes
    maps: Tensor  # (layers, heads, rows, columns): each patch's share of the attention
    rollout: Tensor  # (rows, columns): the attention through all layers
    label: str  # the predicted class
    probability: float

    def __repr__(self) -> str:
        """Return the prediction and sizes; the tensors would fill pages."""
        sizes = ", ".join(
            f"{name}={'×'.join(map(str, getattr(self, name).shape))}"
            for name in ("pixels", "maps", "rollout")
        )
        return f"ImageAttention(label={self.label!r}, probability={self.probability:.4f}, {sizes})"


@torch.no_grad()
def inspect_image(model: ViT, pixels: Tensor) -> ImageAttention:
    """Classify an image, (height, width, channels), and record the attention weights.

    A map is the attention of the class token to the patches; without a class token, the mean of all queries.
    """
    record: list[Tensor] = []
    with evaluating(model):
        probabilities = model(pixels[None].to(model.device), record).float().softmax(dim=-1)[0].cpu()
    weights = torch.stack([layer[0] for layer in record]).float().cpu()  # (layers, heads, token, token)
    has_token, grid = model.class_token is not None, model.config.grid

    def on_grid(attention: Tensor) -> Tensor:
        """Reshape (…, query, key) to (…, rows, columns)."""
        patches = attention[..., 0, 1:] if has_token else attention.mean(dim=-2)
        return patches.reshape(*patches.shape[:-1], *grid)

    best = int(probabilities.argmax())
    return ImageAttention(
        pixels,
        on_grid(weights),
        on_grid(attention_rollout(weights)),
        model.config.class_names[best],
        float(probabilities[best]),
    )


def attention_rollout(weights: Tensor) -> Tensor:
    """Return the share of each input token in each token of the last layer (Abnar & Zuidema, 2020).

    Weights (layers, heads, token, token) → (token, token). Heads are averaged; the residual connection counts
    as much as the attention: ``½ A + ½ I``, multiplied over the layers.
    """
    tokens = weights.size(-1)
    flow = torch.eye(tokens)
    for layer in weights.mean(dim=1):
        flow = (0.5 * layer + 0.5 * torch.eye(tokens)) @ flow
    return flow
