"""To and from ``torch.nn.Transformer``: the two stacks, which is all that it has."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from transduce.models.transformer import Transformer

# theirs → ours, inside a layer; several of ours are theirs stacked
_ATTENTION = {
    "self_attn.in_proj_": ["self_attention.query_key_value."],
    "self_attn.out_proj.": ["self_attention.output."],
    "norm1.": ["around_self_attention.norm."],
    "linear1.": ["feed_forward.inner."],
    "linear2.": ["feed_forward.outer."],
}
_ENCODER_LAYER = {**_ATTENTION, "norm2.": ["around_feed_forward.norm."]}
_DECODER_LAYER = {
    **_ATTENTION,
    "multihead_attn.in_proj_": ["memory_attention.query.", "memory_attention.key_value."],
    "multihead_attn.out_proj.": ["memory_attention.output."],
    "norm2.": ["around_memory_attention.norm."],
    "norm3.": ["around_feed_forward.norm."],
}


def export_stacks(model: Transformer) -> dict[str, Tensor]:
    """The encoder and decoder as a state dict for ``torch.nn.Transformer`` of the same sizes.

    A post-norm model, as in the paper, has no norm at the end of a stack: give torch stacks without one.
    """
    ours = dict(model.named_parameters())
    return {their: torch.cat([ours[name].detach() for name in names]) for their, names in _table(model)}


def import_stacks(model: Transformer, state: Mapping[str, Tensor]) -> None:
    """Copy the encoder and decoder of a ``torch.nn.Transformer`` of the same sizes into the model."""
    ours = dict(model.named_parameters())
    table = list(_table(model))
    if unequal := {their for their, _ in table} ^ set(state):
        raise ValueError(f"the two models differ in {len(unequal)} tensors, the first is {min(unequal)}")
    with torch.no_grad():
        for their, names in table:
            mine = [ours[name] for name in names]
            shape = (sum(len(tensor) for tensor in mine), *mine[0].shape[1:])
            if state[their].shape != shape:
                raise ValueError(f"{their} is {tuple(state[their].shape)}, but {shape} is needed")
            for tensor, part in zip(mine, torch.split(state[their], [len(t) for t in mine]), strict=True):
                tensor.copy_(part)


def _table(model: Transformer) -> Iterator[tuple[str, list[str]]]:
    """(their name, our names) for every tensor of the stacks."""
    config = model.config
    for stack, count, layer in (
        ("encoder", config.encoder_layers, _ENCODER_LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    ):
        for kind in ("weight", "bias"):
            for i in range(count):
                prefix = f"{stack}.layers.{i}."
                for their, ours in layer.items():
                    yield f"{prefix}{their}{kind}", [f"{prefix}{our}{kind}" for our in ours]
            if config.norm == "pre":
                yield f"{stack}.norm.{kind}", [f"{stack}.final_norm.{kind}"]
