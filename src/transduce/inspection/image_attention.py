"""Where a Vision Transformer looks: attention over the patches of an image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.inspection.heads import evaluating
from transduce.models.vit import ViT


@dataclass(frozen=True)
class ImageAttention:
    """One image through a model."""

    pixels: Tensor  # (height, width, channels), bytes
    maps: Tensor  # (layers, heads, rows, columns): what is looked at, as shares of all attention
    rollout: Tensor  # (rows, columns), the same through all layers
    guess: str
    probability: float


@torch.no_grad()
def inspect_image(model: ViT, pixels: Tensor) -> ImageAttention:
    """Pixels (height, width, channels).

    A map is the class token's attention to the patches; without such a token, the mean over all queries.
    """
    record: list[Tensor] = []
    with evaluating(model):
        shares = model(pixels[None].to(model.device), record).float().softmax(dim=-1)[0].cpu()
    weights = torch.stack([layer[0] for layer in record]).float().cpu()  # (layers, heads, token, token)
    has_token, grid = model.class_token is not None, model.config.grid

    def on_grid(attention: Tensor) -> Tensor:
        """(…, query, key) → (…, rows, columns)."""
        seen = attention[..., 0, 1:] if has_token else attention.mean(dim=-2)
        return seen.reshape(*seen.shape[:-1], *grid)

    best = int(shares.argmax())
    return ImageAttention(
        pixels,
        on_grid(weights),
        on_grid(attention_rollout(weights)),
        model.config.class_names[best],
        float(shares[best]),
    )


def attention_rollout(weights: Tensor) -> Tensor:
    """How much of each token's input has come to each token of the last layer (Abnar & Zuidema, 2020).

    Weights (layers, heads, token, token) → (token, token). Heads are averaged; the residual connection
    hands on as much as attention does: ``½ A + ½ I``, multiplied up layer by layer.
    """
    tokens = weights.size(-1)
    flow = torch.eye(tokens)
    for layer in weights.mean(dim=1):
        flow = (0.5 * layer + 0.5 * torch.eye(tokens)) @ flow
    return flow
