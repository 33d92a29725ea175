"""Input × gradient: how much each token that the model reads adds to each target token's log-probability."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.models.transformer import Transformer


class Attributions(NamedTuple):
    """``Σ embedding · ∂ log p(token) / ∂ embedding`` over the dimensions of each embedding that is read."""

    source: Tensor  # (target, source)
    target: Tensor  # (target, target): what the decoder reads, from bos on


@torch.enable_grad()
def attributions(model: Transformer, source: list[int], inputs: list[int], target: list[int]) -> Attributions:
    """Return the attributions of every target token, which the decoder predicts from ``inputs``."""
    read: list[Tensor] = []  # the embedded source, then the embedded target: (1, length, d_model)

    def as_leaf(_module: nn.Module, _inputs: object, embedded: Tensor) -> Tensor:
        read.append(embedded.detach().requires_grad_())
        return read[-1]

    embeddings = {model.source_embedding, model.target_embedding}  # one, if they are shared
    handles = [embedding.register_forward_hook(as_leaf) for embedding in embeddings]
    try:
        log_probabilities = model(torch.tensor([source]), torch.tensor([inputs]))[0].log_softmax(dim=-1)
    finally:
        for handle in handles:
            handle.remove()
    rows = []
    for position, token in enumerate(target):
        gradients = torch.autograd.grad(
            log_probabilities[position, token], read, retain_graph=True, materialize_grads=True
        )
        rows.append([(g * x).sum(dim=-1)[0].detach() for g, x in zip(gradients, read, strict=True)])
    sides = zip(*rows, strict=True)
    return Attributions(*(torch.stack(side) for side in sides))
