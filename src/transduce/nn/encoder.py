"""The encoder: a stack of identical layers (section 3.1, the left half of Figure 1).

With causal self-attention and key/value caches, the same stack is a decoder without an encoder: GPT.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from torch import Tensor, nn

from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import SelfAttention
from transduce.nn.residual import Residual
from transduce.nn.state import KeyValueCache


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, self_attention: SelfAttention, feed_forward: FeedForward, residual: Callable[[], Residual]
    ) -> None:
        super().__init__()
        self.self_attention, self.around_self_attention = self_attention, residual()
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, source, d_model) → the same shape; see `SelfAttention.forward` for the arguments."""
        x = self.around_self_attention(
            x, lambda x: self.self_attention(x, key_mask, cache=cache, record=record)
        )
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class Encoder(nn.Module):
    """A stack of layers; pre-norm layers are followed by a final norm."""

    def __init__(self, layers: Iterable[EncoderLayer], final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = cast("Sequence[EncoderLayer]", nn.ModuleList(layers))
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        caches: Sequence[KeyValueCache] | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Encode x, (batch, source, d_model), with a key mask (batch, source) → the same shape as x.

        ``record`` receives the attention weights of each layer: (batch, heads, source, source). With one
        cache per layer, x continues what the caches hold.
        """
        for number, layer in enumerate(self.layers):
            x = layer(x, key_mask, cache=caches[number] if caches else None, record=record)
        memory: Tensor = self.final_norm(x)
        return memory
