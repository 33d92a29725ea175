"""The decoder: a stack of identical layers (section 3.1, the right half of Figure 1)."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from torch import Tensor, nn

from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import EncoderDecoderAttention, SelfAttention
from transduce.nn.residual import Residual
from transduce.nn.ssru import SSRU
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache


class DecoderLayer(nn.Module):
    """Causal self-attention (or an SSRU), then attention to the encoder's output, then feed-forward."""

    def __init__(
        self,
        self_attention: SelfAttention | SSRU,
        memory_attention: EncoderDecoderAttention,
        feed_forward: FeedForward,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self_attention, self.around_self_attention = self_attention, residual()
        self.memory_attention, self.around_memory_attention = memory_attention, residual()
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(
        self,
        x: Tensor,
        memory: KeyValue | Tensor,
        key_mask: Tensor | None,
        memory_mask: Tensor | None,
        *,
        self_record: list[Tensor] | None = None,
        memory_record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, target, d_model) → the same shape; see `EncoderDecoderAttention.forward`."""
        x = self.around_self_attention(x, lambda x: self.self_attention(x, key_mask, record=self_record))
        x = self.around_memory_attention(
            x, lambda x: self.memory_attention(x, memory, memory_mask, record=memory_record)
        )
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def step(
        self,
        x: Tensor,
        memory: KeyValue,
        memory_mask: Tensor,
        cache: KeyValueCache,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Advance every hypothesis by one position: x (sources, width, d_model) → the same shape.

        Each hypothesis has its own cached past; those of one source attend to it together.
        """
        x = self.around_self_attention(
            x, lambda x: self.self_attention(x.reshape(-1, 1, x.size(-1)), cache=cache).view_as(x)
        )
        x = self.around_memory_attention(
            x, lambda x: self.memory_attention(x, memory, memory_mask, record=record)
        )
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class Decoder(nn.Module):
    """A stack of layers: a whole target at once (`forward`), or one position at a time (`start`, `step`)."""

    def __init__(self, layers: Iterable[DecoderLayer], final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = cast("Sequence[DecoderLayer]", nn.ModuleList(layers))
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        key_mask: Tensor | None,
        memory_mask: Tensor | None,
        *,
        self_record: list[Tensor] | None = None,
        memory_record: list[Tensor] | None = None,
    ) -> Tensor:
        """Decode x (batch, target, d_model) given memory (batch, source, d_model) → the shape of x.

        ``key_mask`` is (batch, target), ``memory_mask`` (batch, source). The records receive each layer's
        weights: (batch, heads, target, target) and (batch, heads, target, source).
        """
        for layer in self.layers:
            x = layer(x, memory, key_mask, memory_mask, self_record=self_record, memory_record=memory_record)
        return self._finish(x)

    def start(self, memory: Tensor, memory_mask: Tensor, capacity: int) -> DecoderState:
        """Return the state before the first position, with room for ``capacity`` positions."""
        return DecoderState(
            # Contiguous, because every step would make such a copy for itself otherwise.
            memory=[layer.memory_attention.keys_values(memory).contiguous() for layer in self.layers],
            memory_mask=memory_mask.contiguous(),
            caches=[KeyValueCache(capacity) for _ in self.layers],
        )

    def step(self, x: Tensor, state: DecoderState, record: list[Tensor] | None = None) -> Tensor:
        """Decode the next position, x (sources, width, d_model) → the same shape; the state holds the past.

        ``record`` receives each layer's attention to the source: (sources, heads, width, source).
        """
        for layer, memory, cache in zip(self.layers, state.memory, state.caches, strict=True):
            x = layer.step(x, memory, state.memory_mask, cache, record)
        return self._finish(x)

    def _finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self.final_norm(x)
        return normed
