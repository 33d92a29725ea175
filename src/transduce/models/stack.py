"""One stack of layers: BERT, GPT and the Vision Transformer are no more than that, between two ends."""

from functools import partial

from torch import nn

from transduce.config import BERTConfig, GPTConfig, ViTConfig
from transduce.nn.attention import SelfAttention
from transduce.nn.encoder import Encoder, EncoderLayer
from transduce.nn.feed_forward import FeedForward
from transduce.nn.residual import Residual


def stack(config: BERTConfig | GPTConfig | ViTConfig) -> Encoder:
    """The layers of a model; the norm that ends a pre-norm stack is the ViT's head's to bring."""
    width, eps = config.d_model, config.norm_epsilon
    heads = partial(SelfAttention, width, config.heads, dropout=config.attention_dropout)
    if isinstance(config, ViTConfig):
        heads = partial(heads, d_k=config.d_k, d_v=config.d_v, qkv_bias=config.qkv_bias)
    feed_forward = partial(
        FeedForward, width, config.d_ff, activation=config.activation, dropout=config.activation_dropout
    )
    residual = partial(Residual, width, norm=config.norm, dropout=config.dropout, eps=eps)
    ends = config.norm == "pre" and not isinstance(config, ViTConfig)
    return Encoder(
        [EncoderLayer(heads(), feed_forward(), residual) for _ in range(config.layers)],
        nn.LayerNorm(width, eps=eps) if ends else None,
    )
