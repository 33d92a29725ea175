"""GPT: the Transformer's decoder without an encoder (Radford et al., 2018), in the form of GPT-2 (2019).

Its layers are the encoder's with causal self-attention: pre-norm (or post-norm, as in 2018), learned
positions, and one matrix for input embeddings and output projection. Options give it the form of Llama.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from transduce.config import GPTConfig, Vocabulary
from transduce.models.protocol import AttentionWeights, Model
from transduce.models.stack import stack
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.masks import padding_mask
from transduce.nn.positional import LearnedPositions, NoPositions, SinusoidalPositions
from transduce.nn.state import KeyValue, KeyValueCache, TextState


class Prompt(NamedTuple):
    """A batch of prompts, encoded except for the last token of each."""

    layers: list[KeyValue]  # of every layer; empty if the prompts have one token
    lengths: Tensor  # (batch,), positions before the last token
    last: Tensor  # (batch,), read by the first step


class GPT(Model):
    """A decoder-only language model: tokens in, logits of the next token out.

    Padding needs no mask: it follows a text, and causal attention never looks ahead.
    """

    config: GPTConfig
    vocabulary: Vocabulary

    def __init__(self, config: GPTConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise TypeError(
                f"GPT takes a GPTConfig, such as preset('gpt').model, not {type(config).__name__}"
            )
        self.config = config
        self.vocabulary = vocabulary
        self.output = Embedding(vocabulary.target, config.d_model, scaled=False)
        self.input_embedding = (  # the output matrix, unless it is separate
            None if config.share_output else Embedding(vocabulary.target, config.d_model, scaled=False)
        )
        self.positions = _positions(config)
        self.dropout = Dropout(config.dropout)
        self.decoder = stack(config, causal=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of each next token: (batch, length) → (batch, length, vocabulary)."""
        return self.output.logits(self.decode(tokens))

    @property
    def embedding(self) -> Embedding:
        """The input embedding."""
        return self.output if self.input_embedding is None else self.input_embedding

    def decode(
        self,
        tokens: Tensor,
        weights: AttentionWeights | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        """Decode tokens, (batch, length) → (batch, length, d_model), ready for the output layer.

        Empty ``caches`` are filled; attention weights are added to ``weights``.
        """
        x = self.dropout(self.positions(self.embedding(tokens)))
        hidden: Tensor = self.decoder(x, caches=caches, record=None if weights is None else weights.decoder)
        return hidden

    @torch.no_grad()
    def encode(self, source: Tensor) -> Prompt:
        """Encode prompts, (batch, prompt), which start with ``bos`` and are padded at their ends.

        If the vocabulary has no separate padding token, all prompts must have the same length.
        """
        lengths = self.prompt_lengths(source)
        last = source.gather(1, lengths[:, None])[:, 0]
        before = source[:, :-1]
        if not before.size(1):
            return Prompt([], lengths, last)
        caches = [KeyValueCache(before.size(1)) for _ in self.decoder.layers]
        self.decode(before, caches=caches)
        return Prompt([cache.filled() for cache in caches], lengths, last)

    def prompt_lengths(self, source: Tensor) -> Tensor:
        """Return the number of positions before the last token of each prompt, (batch, prompt) → (batch,)."""
        pad = self.vocabulary.pad
        is_token = padding_mask(source, pad) if pad != self.vocabulary.eos else torch.ones_like(source)
        return (is_token * torch.arange(source.size(1), device=source.device)).amax(dim=1)

    @torch.no_grad()
    def start(self, memory: Prompt, capacity: int = 128) -> TextState:
        """Return the state after the prompts, with memory reserved for ``capacity`` more tokens."""
        size = memory.layers[0].key.size(2) if memory.layers else 0
        caches = [KeyValueCache(size + capacity) for _ in self.decoder.layers]
        for cache, layer in zip(caches, memory.layers, strict=False):
            cache.append(layer)  # a copy: the state changes in place, and the prompt belongs to the caller
        if bool((memory.lengths < size).any()):
            for cache in caches:
                cache.padding = size - memory.lengths
        prompt_mask = torch.arange(size, device=memory.lengths.device) < memory.lengths[:, None]
        return TextState(caches, prompt_mask, memory.lengths, memory.last)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TextState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per text, (texts,) → logits of the next one, (texts, vocabulary).

        Searches start every target with ``bos``, but a text continues its prompt: the first step ignores
        ``tokens`` and reads the prompt's last token. ``record`` receives nothing, as there is no source.
        """
        if tokens.shape != state.lengths.shape:
            raise ValueError(
                f"expected one token for each of {len(state.lengths)} texts, not {tuple(tokens.shape)}"
            )
        tokens = tokens if state.pending is None else state.pending
        x = self.dropout(self.positions.at(self.embedding(tokens[:, None]), state.lengths))
        state.pending, state.length, state.lengths = None, state.length + 1, state.lengths + 1
        continuation = state.prompt_mask.new_ones(len(tokens), state.length)
        key_mask = torch.cat((state.prompt_mask, continuation), dim=1)
        return self.output.logits(self.decoder(x, key_mask, caches=state.caches)[:, 0])

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the weights of every layer and head for ``target``; the source is ignored."""
        weights = AttentionWeights()
        self.decode(target, weights)
        return weights

    @property
    def max_length(self) -> int | None:
        """The context length: the longest prompt and continuation together, in tokens."""
        return self.config.max_length


def _positions(config: GPTConfig) -> LearnedPositions | SinusoidalPositions | NoPositions:
    """Return what adds positions to embeddings; rotary ones enter in the layers."""
    if config.positions == "learned":
        return LearnedPositions(config.max_length, config.d_model)
    return SinusoidalPositions(config.d_model) if config.positions == "sinusoidal" else NoPositions()
