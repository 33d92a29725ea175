"""The numbers of one sentence in place of the weights, for models that are too large for a page.

The page runs the same scripts, but finds the product of every linear layer here instead of computing it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.models.transformer import Transformer
from transduce.nn.positional import LearnedPositions

SHOWN_TOKENS = 20  # per position, the most likely ones; the logits of others are left out


@dataclass(frozen=True)
class StoredSentence:
    """What the page needs of a sentence and its target."""

    tensors: dict[str, Tensor]  # products by the names of linear layers, norms by the names of parameters
    columns: list[int]  # the tokens whose logits are stored
    shares: list[float]  # the probability of all of them together, per target position


@torch.no_grad()
def stored_sentence(
    model: Transformer, source: list[int], inputs: list[int], target: list[int]
) -> StoredSentence:
    """Return the numbers of a source and of the decoder's ``inputs``, after which it predicts ``target``."""
    source_row, input_row = torch.tensor([source]), torch.tensor([inputs])
    tensors: dict[str, Tensor] = {
        name: parameter
        for name, parameter in model.named_parameters()
        if _is_norm(model, name.rpartition(".")[0])
    }
    lens: list[Tensor] = []
    with _products(model, tensors), _layer_outputs(model, lens):
        states = model.decode(input_row, model.encode(source_row))[0]
    # Embeddings are unscaled on the page, as they are in the matrix.
    tensors["source_embedding"] = model.source_embedding.weight[source]
    tensors["target_embedding"] = model.target_embedding.weight[inputs]
    for name, ids in (("source_positions", source), ("target_positions", inputs)):
        positions = model.get_submodule(name)
        if isinstance(positions, LearnedPositions):
            tensors[f"{name}.weight"] = positions.weight[: len(ids)]
    logits = model.output.logits(states)
    best = logits.topk(min(SHOWN_TOKENS, logits.size(1)), dim=1).indices
    columns = sorted({*best.flatten().tolist(), *target})
    tensors["output"] = logits[:, columns]
    for number, layer in enumerate(lens):
        tensors[f"lens.{number}"] = model.output.logits(model.decoder.final_norm(layer))[:, columns]
    shares = logits.softmax(dim=1)[:, columns].sum(dim=1).clamp(max=1.0)
    # Each on its own: the storage of a view would be counted as shared.
    return StoredSentence(
        {name: tensor.clone() for name, tensor in tensors.items()}, columns, shares.tolist()
    )


def _is_norm(model: Transformer, module: str) -> bool:
    return isinstance(model.get_submodule(module), nn.LayerNorm | nn.RMSNorm)


@contextmanager
def _products(model: Transformer, products: dict[str, Tensor]) -> Iterator[None]:
    """Record the output of every linear layer, (length, width), by the layer's name."""

    def record(name: str, output: Tensor) -> None:
        products[name] = output.flatten(0, -2)

    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: record(name, output.clone()))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _layer_outputs(model: Transformer, outputs: list[Tensor]) -> Iterator[None]:
    """Record the output of every decoder layer, (target, d_model)."""
    handles = [
        layer.register_forward_hook(lambda _module, _inputs, output: outputs.append(output[0]))
        for layer in model.decoder.layers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
