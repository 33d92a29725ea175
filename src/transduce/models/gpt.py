"""GPT: the Transformer's decoder without an encoder (Radford et al., 2018), in the form of GPT-2 (2019).

Its layer is the encoder's, with a causal mask: pre-norm (post-norm, as in 2018, if asked for), learned
positions, one matrix for tokens in and out.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from transduce.config import GPTConfig, Vocabulary
from transduce.models.protocol import AttentionWeights, Model
from transduce.models.stack import stack
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.masks import causal_mask
from transduce.nn.positional import LearnedPositions
from transduce.nn.state import KeyValue, KeyValueCache, TextState


class Prompt(NamedTuple):
    """A batch of beginnings, read but for the last token of each."""

    layers: list[KeyValue]  # of every layer; none if there is nothing before the last tokens
    lengths: Tensor  # (batch,), positions before the last token
    last: Tensor  # (batch,), which the first step reads


class GPT(Model):
    """Text in, logits of the next token out.

    No mask hides padding: it stands behind a text, and nothing sees what stands behind it.
    """

    config: GPTConfig
    vocabulary: Vocabulary

    def __init__(self, config: GPTConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise TypeError(f"give a GPTConfig, such as preset('gpt').model, not a {type(config).__name__}")
        self.config = config
        self.vocabulary = vocabulary
        self.output = Embedding(vocabulary.target, config.d_model, scaled=False)  # and input
        self.positions = LearnedPositions(config.max_length, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.decoder = stack(config)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) → logits of each next token, (batch, length, vocabulary)."""
        return self.output.logits(self.read(tokens))

    def read(
        self,
        tokens: Tensor,
        weights: AttentionWeights | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        """(batch, length) → (batch, length, d_model), ready for the output layer.

        Empty caches, if given, are filled; the attention weights are added to ``weights``.
        """
        x = self.dropout(self.positions(self.output(tokens)))
        mask = causal_mask(tokens.size(1), device=tokens.device)
        read: Tensor = self.decoder(x, mask, None if weights is None else weights.decoder, caches)
        return read

    @torch.no_grad()
    def encode(self, source: Tensor) -> Prompt:
        """Read prompts, (batch, prompt): the beginnings of texts, ``bos`` included, padded at their ends.

        Where the vocabulary has no padding of its own, all are equally long.
        """
        special = self.vocabulary
        real = (source != special.pad) if special.pad != special.eos else torch.ones_like(source)
        places = torch.arange(source.size(1), device=source.device)
        lengths = (real * places).amax(dim=1)
        last = source.gather(1, lengths[:, None])[:, 0]
        before = source[:, :-1]
        if not before.size(1):
            return Prompt([], lengths, last)
        caches = [KeyValueCache(before.size(1)) for _ in self.decoder.layers]
        self.read(before, caches=caches)
        return Prompt([cache.filled() for cache in caches], lengths, last)

    @torch.no_grad()
    def start(self, memory: Prompt, capacity: int = 128) -> TextState:
        """After the prompts; room is set aside for ``capacity`` tokens more, and grows if need be."""
        size = memory.layers[0].key.size(2) if memory.layers else 0
        caches = [KeyValueCache(size + capacity) for _ in self.decoder.layers]
        for cache, layer in zip(caches, memory.layers, strict=False):
            cache.append(layer)  # a copy: the state changes in place, and the prompt is the caller's
        seen = torch.arange(size, device=memory.lengths.device) < memory.lengths[:, None]
        return TextState(caches, seen, memory.lengths, memory.last)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TextState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token a text, (texts,) → logits of the next one, (texts, vocabulary).

        Searches begin every target with ``bos``. Here a target goes on from its prompt: whatever the first
        step is given, it reads the prompt's last token. ``record`` receives nothing: there is no source.
        """
        if tokens.shape != state.lengths.shape:
            raise ValueError(
                f"{len(state.lengths)} texts are under way, but tokens are {tuple(tokens.shape)}"
            )
        tokens = tokens if state.pending is None else state.pending
        x = self.dropout(self.positions.at(self.output(tokens[:, None]), state.lengths))
        state.pending, state.length, state.lengths = None, state.length + 1, state.lengths + 1
        after = state.seen.new_ones(len(tokens), state.length)
        mask = torch.cat((state.seen, after), dim=1)[:, None, None]
        return self.output.logits(self.decoder(x, mask, None, state.caches)[:, 0])

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """The weights of every layer and head while reading ``target``; there is no source to attend to."""
        weights = AttentionWeights()
        self.read(target, weights)
        return weights

    @property
    def max_length(self) -> int | None:
        """The context: prompt and continuation together are no longer."""
        return self.config.max_length
