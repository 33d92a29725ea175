"""The encoder: a stack of identical layers (section 3.1, the left half of Figure 1).

With a causal mask, and caches for what came before, the same stack is a decoder without an encoder: GPT.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from transduce.engine.unpadding import Unpadded
from transduce.nn.attention import MultiHeadAttention, SelfAttention
from transduce.nn.feed_forward import FeedForward
from transduce.nn.residual import Residual
from transduce.nn.state import KeyValueCache

WORTH = 0.9  # share of real tokens below which padding costs more than the way there and back


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, self_attention: MultiHeadAttention, feed_forward: FeedForward, residual: Callable[[], Residual]
    ) -> None:
        super().__init__()
        self.self_attention, self.around_self_attention = self_attention, residual()
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        record: list[Tensor] | None = None,
        cache: KeyValueCache | None = None,
        tokens: Unpadded | None = None,
    ) -> Tensor:
        """(batch, source, d_model) → the same; with a cache, x continues what the cache holds.

        If x is but the ``tokens`` of a batch, (1, tokens, d_model), so is the result; attention must be full.
        """
        if tokens:
            full = cast("SelfAttention", self.self_attention)
            x = self.around_self_attention(x, lambda x: full.unpadded(x, mask, tokens))
        else:
            x = self.around_self_attention(
                x, lambda x: self.self_attention(x, mask, cache=cache, record=record)
            )
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class Encoder(nn.Module):
    """Layer after layer; a stack of pre-norm layers ends in a norm of its own."""

    def __init__(self, layers: Iterable[EncoderLayer], final_norm: nn.LayerNorm | None = None) -> None:
        super().__init__()
        self.layers = cast("Sequence[EncoderLayer]", nn.ModuleList(layers))
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        record: list[Tensor] | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Tensor:
        """(batch, source, d_model), and a mask for (batch, heads, source, source) → the memory.

        ``record`` receives the attention weights of each layer: (batch, heads, source, source). With a cache
        for each layer, x continues what they hold, and the mask is for (batch, heads, x, all of it).
        """
        tokens = None if caches or record is not None else self._tokens(mask)
        x = tokens.take(x) if tokens else x
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, record, caches[number] if caches else None, tokens)
        memory: Tensor = self.final_norm(x)
        return tokens.put_back(memory) if tokens else memory

    def _tokens(self, mask: Tensor | None) -> Unpadded | None:
        """Those of a batch with much padding, where nothing but full attention looks beyond a token.

        Only if nothing is learned or compiled, and on CPUs: a GPU would have to wait for the count.
        """
        if mask is None or mask.device.type != "cpu" or mask.size(0) == 1 or mask.shape[1:-1] != (1, 1):
            return None
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        # No other class will do, and none that FSDP makes of it: its weights come when it is called.
        if any(type(layer.self_attention) is not SelfAttention for layer in self.layers):
            return None
        tokens = Unpadded.of(mask)
        return tokens if tokens.share < WORTH else None
