"""The stack of layers that BERT, GPT and the Vision Transformer share."""

from functools import partial

from transduce.config import BERTConfig, GPTConfig, ViTConfig
from transduce.nn.encoder import Encoder, EncoderLayer
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.residual import Residual, normalization


def stack(config: BERTConfig | GPTConfig | ViTConfig, *, causal: bool = False) -> Encoder:
    """Build the layers of a model; a Vision Transformer has its final norm in its head."""
    width, bias = config.d_model, config.bias if isinstance(config, GPTConfig) else True
    attention = partial(
        FullSelfAttention, width, config.heads, causal=causal, dropout=config.attention_dropout
    )
    if isinstance(config, ViTConfig):
        attention = partial(attention, d_k=config.d_k, d_v=config.d_v, qkv_bias=config.qkv_bias)
    if isinstance(config, GPTConfig):
        attention = partial(
            attention,
            d_k=config.d_k,
            d_v=config.d_v,
            rotary=_rotary(config),
            qkv_bias=config.qkv_bias,
            bias=bias,
            key_value_heads=config.key_value_heads,
        )
    feed_forward = partial(
        FeedForward,
        width,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=bias,
    )
    kind = config.normalization if isinstance(config, GPTConfig) else "layer"
    norm = partial(normalization, width, kind=kind, eps=config.norm_epsilon, bias=bias)
    residual = partial(
        Residual,
        width,
        norm=config.norm,
        dropout=config.dropout,
        eps=config.norm_epsilon,
        bias=bias,
        kind=kind,
    )
    has_final_norm = config.norm == "pre" and not isinstance(config, ViTConfig)
    return Encoder(
        [EncoderLayer(attention(), feed_forward(), residual) for _ in range(config.layers)],
        norm() if has_final_norm else None,
    )


def _rotary(config: GPTConfig) -> RotaryPositions | None:
    """Return the rotation that all layers share, if positions enter by rotation."""
    if config.positions != "rotary":
        return None
    return RotaryPositions(config.key_width, base=config.rotary_base)
