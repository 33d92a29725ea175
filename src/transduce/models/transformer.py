"""The Transformer: Figure 1, assembled (sections 3.1 and 3.4)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig, Vocabulary
from transduce.engine.packed_encoder import PackedEncoder
from transduce.engine.packed_search import Said, Search, can_search, packed_search
from transduce.engine.packed_step import PackedStep
from transduce.models.embeddings import share_embeddings
from transduce.models.protocol import AttentionWeights, Model
from transduce.nn.attention import EncoderDecoderAttention, MultiHeadAttention, SelfAttention
from transduce.nn.decoder import Decoder, DecoderLayer
from transduce.nn.dropout import Dropout
from transduce.nn.encoder import Encoder, EncoderLayer
from transduce.nn.feed_forward import FeedForward
from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.masks import causal_mask, padding_mask
from transduce.nn.positional import LearnedPositions, NoPositions, RotaryPositions, SinusoidalPositions
from transduce.nn.residual import Residual
from transduce.nn.state import DecoderState
from transduce.nn.window_attention import Window, WindowSelfAttention


class Memory(NamedTuple):
    """A batch of sources, read."""

    states: Tensor  # (batch, source, d_model)
    mask: Tensor  # (batch, 1, 1, source), True where there is a token


class Transformer(Model):
    """Tokens in, logits of the next token out."""

    config: TransformerConfig
    vocabulary: Vocabulary

    def __init__(self, config: TransformerConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig):
            raise TypeError(
                f"give a TransformerConfig, such as preset('base').model, not a {type(config).__name__}"
            )
        self.config = config
        self.vocabulary = vocabulary
        self.source_embedding, self.target_embedding, self.output = share_embeddings(
            vocabulary, config.d_model, config.share
        )
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder, self.decoder = _stacks(config)
        self.fast_encoder: PackedEncoder | None = None  # other ways to compute `encode` and `step`
        self.fast_step: PackedStep | None = None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (batch, source) and target (batch, target) tokens → logits (batch, target, vocabulary).

        The logits at a position are for the token after it: ``target`` starts with ``bos``.
        """
        return self.output.logits(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor, weights: AttentionWeights | None = None) -> Memory:
        """Read the source: (batch, source). The attention weights are added to ``weights``, if given."""
        mask = padding_mask(source, self.vocabulary.pad)
        x = self.dropout(self.source_positions(self.source_embedding(source)))
        fast = self.fast_encoder
        if fast and weights is None and not self.training and fast.fits(mask):
            return Memory(fast(x, mask), mask)
        return Memory(self.encoder(x, mask, None if weights is None else weights.encoder), mask)

    def decode(self, target: Tensor, memory: Memory, weights: AttentionWeights | None = None) -> Tensor:
        """Read the target, (batch, target), with the source in view → (batch, target, d_model)."""
        if len(target) != len(memory.states):
            raise ValueError(f"{len(memory.states)} sources, but {len(target)} targets")
        mask = padding_mask(target, self.vocabulary.pad)
        if self.config.attention in ("full", "low_rank"):  # the others keep to the past by themselves
            mask = causal_mask(target.size(1), device=target.device) & mask
        x = self.dropout(self.target_positions(self.target_embedding(target)))
        decoded: Tensor = self.decoder(
            x,
            memory.states,
            mask,
            memory.mask,
            self_record=None if weights is None else weights.decoder,
            memory_record=None if weights is None else weights.encoder_decoder,
        )
        return decoded

    @torch.no_grad()
    def start(self, memory: Memory, capacity: int = 128) -> DecoderState:
        """Before the first target token; room is set aside for ``capacity`` tokens, and grows if need be."""
        return self.decoder.start(memory.states, memory.mask, capacity)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: DecoderState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token a target, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives each layer's attention to the source: (targets, heads, source).
        """
        if tokens.shape != (state.targets,):
            raise ValueError(f"{state.targets} targets are under way, but tokens are {tuple(tokens.shape)}")
        if self.fast_step and record is None and not self.training and self.fast_step.fits(state):
            return self.fast_step(tokens, state)
        x = self.dropout(self.target_positions(self.target_embedding(tokens[:, None]), state.length))
        weights: list[Tensor] | None = None if record is None else []
        decoded = self.decoder.step(x.view(-1, state.width, x.size(-1)), state, weights)
        if record is not None and weights is not None:
            record += [layer.transpose(1, 2).flatten(0, 1) for layer in weights]
        return self.output.logits(decoded.flatten(0, 1))

    @torch.no_grad()
    def search(self, state: DecoderState, search: Search) -> list[list[Said]] | None:
        """What is looked for, from a new state, which is used up; or nothing, if there is no faster way."""
        if self.fast_step and not self.training and can_search(self.fast_step, state, search):
            return packed_search(self.fast_step, state, search)
        return None

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """The weights of every layer and head while reading this source and target."""
        weights = AttentionWeights()
        self.decode(target, self.encode(source, weights), weights)
        return weights

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.target_embedding.weight.device

    @property
    def max_length(self) -> int | None:
        """The longest source or target it can read; ``None`` if there is no such limit."""
        return self.config.length_limit


def _positions(config: TransformerConfig) -> nn.Module:
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    if config.positions == "learned":
        return LearnedPositions(config.max_length, config.d_model)
    return NoPositions()


def _self_attention(
    config: TransformerConfig, rotary: RotaryPositions | None, *, causal: bool
) -> Callable[[], MultiHeadAttention]:
    """Makes one, of the encoder or of the decoder (causal)."""
    sizes: dict[str, Any] = {
        "d_model": config.d_model,
        "heads": config.heads,
        "d_k": config.d_k,
        "d_v": config.d_v,
        "dropout": config.attention_dropout,
        "rotary": rotary,
    }
    if config.attention == "window":
        window = Window(config.window_radius, config.global_tokens, causal)
        return partial(WindowSelfAttention, window=window, **sizes)
    if config.attention == "hashed":
        return partial(
            HashedSelfAttention,
            buckets=config.hash_buckets,
            rounds=config.hash_rounds,
            chunk=config.hash_chunk,
            causal=causal,
            **sizes,
        )
    if config.attention == "low_rank" and not causal:  # a decoder cannot have it
        return partial(LowRankSelfAttention, rank=config.rank, max_length=config.max_length, **sizes)
    return partial(SelfAttention, **sizes)


def _stacks(config: TransformerConfig) -> tuple[Encoder, Decoder]:
    width, eps = config.d_model, config.norm_epsilon
    residual = partial(Residual, width, norm=config.norm, dropout=config.dropout, eps=eps)
    feed_forward = partial(
        FeedForward, width, config.d_ff, activation=config.activation, dropout=config.activation_dropout
    )
    rotary = RotaryPositions(config.d_k or width // config.heads) if config.positions == "rotary" else None
    own = _self_attention(config, rotary, causal=False)
    masked = _self_attention(config, rotary, causal=True)
    memory_attention = partial(
        EncoderDecoderAttention,
        width,
        config.heads,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout=config.attention_dropout,
    )

    def final_norm() -> nn.LayerNorm | None:
        return nn.LayerNorm(width, eps=eps) if config.norm == "pre" else None

    encoder = Encoder(
        [EncoderLayer(own(), feed_forward(), residual) for _ in range(config.encoder_layers)],
        final_norm(),
    )
    decoder = Decoder(
        [
            DecoderLayer(masked(), memory_attention(), feed_forward(), residual)
            for _ in range(config.decoder_layers)
        ],
        final_norm(),
    )
    return encoder, decoder
