"""A `Transformer` in 8 bits whose encoder, decoding step and beam search are each one call of C."""

import torch
from torch import Tensor

from transduce.config import TransformerConfig, Vocabulary
from transduce.engine.packed_encoder import MAX_SOURCE_LENGTH, PackedEncoder
from transduce.engine.packed_search import can_search, packed_search
from transduce.engine.packed_step import PackedState, PackedStep
from transduce.models.protocol import AttentionWeights, Model, SearchRequest, SearchResult
from transduce.models.transformer import Memory, Transformer
from transduce.nn.factor_embeddings import tokens_of
from transduce.nn.masks import padding_mask


class PackedTransformer(Model):
    """Wraps a `Transformer` with 8-bit layers, which computes what the kernels cannot and is their oracle.

    It is for inference on CPUs: the wrapped model stays in evaluation mode and must not change afterwards.
    """

    config: TransformerConfig
    vocabulary: Vocabulary

    def __init__(self, transformer: Transformer, encoder: PackedEncoder, step: PackedStep) -> None:
        super().__init__()
        self.transformer = transformer.eval()
        self.config, self.vocabulary = transformer.config, transformer.vocabulary
        self._encoder, self._step = encoder, step

    @classmethod
    def of(cls, transformer: Transformer) -> "PackedTransformer | None":
        """Pack a transformer whose linear layers are in 8 bits; ``None`` if the kernels cannot compute it."""
        encoder = PackedEncoder.of(transformer.encoder)
        step = PackedStep.of(
            transformer.target_embedding,
            transformer.target_positions,
            transformer.decoder,
            transformer.output,
        )
        return cls(transformer, encoder, step) if encoder and step else None

    def train(self, mode: bool = True) -> "PackedTransformer":
        """Stay in evaluation mode; training is not possible in 8 bits."""
        if mode:
            raise ValueError("a model in int8 cannot be trained: load it in float32")
        return super().train(False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (batch, target, vocabulary) of a whole target, layer by layer."""
        logits: Tensor = self.transformer(source, target)
        return logits

    def encode(self, source: Tensor) -> Memory:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors)."""
        if source.size(1) > MAX_SOURCE_LENGTH:
            return self.transformer.encode(source)
        mask = padding_mask(tokens_of(source), self.vocabulary.pad)
        return Memory(self._encoder(self.transformer.embed_source(source), mask), mask)

    @torch.no_grad()
    def start(self, memory: Memory, capacity: int = 128) -> PackedState:
        """Return the state before the first target token, with memory reserved for ``capacity`` tokens."""
        return PackedState.of(self.transformer.start(memory, capacity))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: PackedState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives each layer's attention to the source: (targets, heads, source).
        """
        if record is not None or tokens.shape != (state.targets,) or not self._step.fits(state):
            return self.transformer.step(tokens, state, record)
        return self._step(tokens, state)

    @torch.no_grad()
    def search(self, state: PackedState, request: SearchRequest) -> list[list[SearchResult]] | None:
        """Run a whole beam search in C, or return ``None`` if the kernel cannot."""
        return packed_search(self._step, state, request) if can_search(self._step, state, request) else None

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        """Decode a whole target, (batch, target) → (batch, target, d_model), layer by layer."""
        return self.transformer.decode(target, memory)

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the weights of every layer and head for this source and target."""
        return self.transformer.attention(source, target)

    @property
    def max_length(self) -> int | None:
        """The longest source or target that the model can read, in tokens; ``None`` if unlimited."""
        return self.transformer.max_length
