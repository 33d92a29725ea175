"""The stack of layers that BERT, GPT and the Vision Transformer share."""

from functools import partial

from torch import nn

from transduce.config import BERTConfig, GPTConfig, ViTConfig
from transduce.nn.encoder import Encoder, EncoderLayer
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.residual import Residual


def stack(config: BERTConfig | GPTConfig | ViTConfig, *, causal: bool = False) -> Encoder:
    """Build the layers of a model; a Vision Transformer has its final norm in its head."""
    width, eps = config.d_model, config.norm_epsilon
    attention = partial(
        FullSelfAttention, width, config.heads, causal=causal, dropout=config.attention_dropout
    )
    if isinstance(config, ViTConfig):
        attention = partial(attention, d_k=config.d_k, d_v=config.d_v, qkv_bias=config.qkv_bias)
    feed_forward = partial(
        FeedForward, width, config.d_ff, activation=config.activation, dropout=config.activation_dropout
    )
    residual = partial(Residual, width, norm=config.norm, dropout=config.dropout, eps=eps)
    has_final_norm = config.norm == "pre" and not isinstance(config, ViTConfig)
    return Encoder(
        [EncoderLayer(attention(), feed_forward(), residual) for _ in range(config.layers)],
        nn.LayerNorm(width, eps=eps) if has_final_norm else None,
    )
