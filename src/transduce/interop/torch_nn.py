"""Import from and export to ``torch.nn.Transformer``, which consists of the encoder and decoder stacks."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import ConfigError
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.transformer import Transformer

# theirs → ours, inside a layer; several of ours are concatenated
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
    """Return the encoder and decoder as a state dict for a ``torch.nn.Transformer`` of the same sizes.

    A post-norm model, as in the paper, has no layer norm at the end of a stack unless ``final_norm`` is true:
    build torch's stacks without.
    """
    return export_rows(model, _table(model))


def import_stacks(model: Transformer, state: Mapping[str, Tensor]) -> None:
    """Copy the encoder and decoder of a ``torch.nn.Transformer`` of the same sizes into the model."""
    import_rows(model, _table(model), state)


def _table(model: Transformer) -> Iterator[Row]:
    """Yield a row for every tensor of the stacks."""
    return stack_table(model.config)


def stack_table(config: TransformerConfig) -> Iterator[Row]:
    """Yield a row for every tensor of the stacks of models with this configuration."""
    if config.attention.kind != "full":
        raise ConfigError(
            f"torch.nn.Transformer has full attention, but the model has {config.attention.kind!r} attention",
            "use a model with full attention",
        )
    for stack, count, layer in (
        ("encoder", config.encoder_layers, _ENCODER_LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    ):
        for kind in ("weight", "bias") if config.bias else ("weight",):
            for i in range(count):
                prefix = f"{stack}.layers.{i}."
                for their, ours in layer.items():
                    yield Row([f"{prefix}{their}{kind}"], [f"{prefix}{our}{kind}" for our in ours])
            if config.has_final_norm:
                yield Row([f"{stack}.norm.{kind}"], [f"{stack}.final_norm.{kind}"])
