"""The Transformer: Figure 1, assembled (sections 3.1 and 3.4)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig, Vocabulary
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.models.embeddings import share_embeddings
from transduce.models.protocol import AttentionWeights, Model
from transduce.nn.decoder import Decoder, DecoderLayer
from transduce.nn.dropout import Dropout
from transduce.nn.encoder import Encoder, EncoderLayer
from transduce.nn.factor_embeddings import FactorEmbeddings, tokens_of
from transduce.nn.feed_forward import FeedForward
from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.masks import padding_mask
from transduce.nn.multi_head_attention import EncoderDecoderAttention, FullSelfAttention, SelfAttention
from transduce.nn.positional import LearnedPositions, NoPositions, RotaryPositions, SinusoidalPositions
from transduce.nn.residual import Residual, normalization
from transduce.nn.ssru import SSRU
from transduce.nn.state import DecoderState
from transduce.nn.window_attention import WindowSelfAttention


class Memory(NamedTuple):
    """A batch of encoded sources."""

    states: Tensor  # (batch, source, d_model)
    mask: Tensor  # (batch, source), True where there is a token


class Transformer(Model):
    """The encoder-decoder model of the paper: source and target tokens in, logits of the next token out."""

    config: TransformerConfig
    vocabulary: Vocabulary

    def __init__(self, config: TransformerConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig):
            raise TypeError(
                f"Transformer takes a TransformerConfig (see preset('base')), not {type(config).__name__}"
            )
        self.config = config
        self.vocabulary = vocabulary
        self.source_embedding, self.target_embedding, self.output = share_embeddings(
            vocabulary,
            config.d_model,
            config.share,
            scaled=config.scale_embeddings,
            output_bias=config.output_bias,
            fixed_padding=config.fixed_padding,
        )
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.source_norm, self.target_norm = _embedding_norm(config), _embedding_norm(config)
        self.dropout = Dropout(config.dropout)
        self.encoder, self.decoder = _stacks(config)
        self.factor_embeddings = FactorEmbeddings(config.source_factors, config.d_model)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (batch, target, vocabulary) from source (batch, source) and target (batch, target).

        The logits at a position predict the token after it: ``target`` starts with ``bos``.
        """
        return self.output.logits(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor, weights: AttentionWeights | None = None) -> Memory:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors).

        Attention weights are added to ``weights`` if given.
        """
        mask = self.source_mask(source)
        x = self.dropout(self.embed_source(source))
        return Memory(self.encoder(x, mask, record=None if weights is None else weights.encoder), mask)

    def source_mask(self, source: Tensor) -> Tensor:
        """Return where the encoder's output may be attended to: (batch, source)."""
        tokens = tokens_of(source)
        return padding_mask(tokens, self.vocabulary.pad) if self.config.mask_padding else tokens >= 0

    def embed_source(self, source: Tensor) -> Tensor:
        """Return the sum of embedded tokens, their factors and positions: (batch, source, d_model)."""
        tokens = self.source_embedding(tokens_of(source))
        embedded: Tensor = self.source_norm(self.source_positions(self.factor_embeddings(tokens, source)))
        return embedded

    def embed_target(self, target: Tensor, start: int = 0) -> Tensor:
        """Return the sum of embedded tokens, (batch, target), and their positions, from ``start`` on."""
        embedded: Tensor = self.target_norm(self.target_positions(self.target_embedding(target), start))
        return embedded

    def _target_mask(self, target: Tensor) -> Tensor:
        """Return where the decoder may attend to itself: (batch, target); bos may be the padding token."""
        mask = padding_mask(target, self.vocabulary.pad)
        if self.vocabulary.bos == self.vocabulary.pad:
            mask[:, :1] = True
        return mask

    def decode(self, target: Tensor, memory: Memory, weights: AttentionWeights | None = None) -> Tensor:
        """Decode a whole target, (batch, target) → (batch, target, d_model), ready for the output layer."""
        if len(target) != len(memory.states):
            raise ValueError(f"got {len(memory.states)} sources, but {len(target)} targets")
        x = self.dropout(self.embed_target(target))
        decoded: Tensor = self.decoder(
            x,
            memory.states,
            self._target_mask(target),
            memory.mask,
            self_record=None if weights is None else weights.decoder,
            memory_record=None if weights is None else weights.encoder_decoder,
        )
        return decoded

    @torch.no_grad()
    def start(self, memory: Memory, capacity: int = 128) -> DecoderState:
        """Return the state before the first target token, with memory reserved for ``capacity`` tokens."""
        return self.decoder.start(memory.states, memory.mask, capacity)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: DecoderState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives each layer's attention to the source: (targets, heads, source).
        """
        if tokens.shape != (state.targets,):
            raise ValueError(
                f"expected one token for each of {state.targets} hypotheses, not {tuple(tokens.shape)}"
            )
        x = self.dropout(self.embed_target(tokens[:, None], state.length))
        weights: list[Tensor] | None = None if record is None else []
        decoded = self.decoder.step(x.view(-1, state.width, x.size(-1)), state, weights)
        if record is not None and weights is not None:
            record += [layer.transpose(1, 2).flatten(0, 1) for layer in weights]
        return self.output.logits(decoded.flatten(0, 1))

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the weights of every layer and head for this source and target."""
        weights = AttentionWeights()
        self.decode(target, self.encode(source, weights), weights)
        return weights

    @property
    def max_length(self) -> int | None:
        """The longest source or target that the model can read, in tokens; ``None`` if unlimited."""
        return self.config.length_limit


def _positions(config: TransformerConfig) -> nn.Module:
    if config.positions == "sinusoidal":
        return SinusoidalPositions(
            config.d_model,
            layout=config.sine_layout,
            spacing=config.sine_spacing,
            first=config.first_position,
        )
    if config.positions == "learned":
        return LearnedPositions(config.max_length, config.d_model)
    return NoPositions()


def _embedding_norm(config: TransformerConfig) -> nn.Module:
    return _norm(config) if config.embedding_norm else nn.Identity()


def _norm(config: TransformerConfig) -> nn.LayerNorm | nn.RMSNorm:
    return normalization(config.d_model, kind=config.normalization, eps=config.norm_epsilon, bias=config.bias)


def _self_attention(
    config: TransformerConfig, rotary: RotaryPositions | None, *, causal: bool
) -> Callable[[], SelfAttention]:
    """Return the constructor of one self-attention of the encoder, or of the decoder (causal)."""
    kind: Callable[..., SelfAttention] = partial(FullSelfAttention, bias=config.bias)
    match config.attention:
        case WindowAttention() as window:
            kind = partial(WindowSelfAttention, radius=window.radius, global_tokens=window.global_tokens)
        case HashedAttention() as hashed:
            kind = partial(
                HashedSelfAttention, buckets=hashed.buckets, rounds=hashed.rounds, chunk=hashed.chunk
            )
        case LowRankAttention() as low_rank if not causal:  # it has no causal form
            kind = partial(LowRankSelfAttention, rank=low_rank.rank, max_length=config.max_length)
    return partial(
        kind,
        config.d_model,
        config.heads,
        causal=causal,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout=config.attention_dropout,
        rotary=rotary,
    )


def _stacks(config: TransformerConfig) -> tuple[Encoder, Decoder]:
    width, bias = config.d_model, config.bias
    residual = partial(
        Residual,
        width,
        norm=config.norm,
        dropout=config.dropout,
        eps=config.norm_epsilon,
        bias=bias,
        kind=config.normalization,
    )
    encoder_residual = partial(residual, norm=config.encoder_norm or config.norm)
    feed_forward = partial(
        FeedForward,
        width,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=bias,
    )
    rotary = RotaryPositions(config.d_k or width // config.heads) if config.positions == "rotary" else None
    encoder_attention = _self_attention(config, rotary, causal=False)
    decoder_attention = (
        partial(SSRU, width) if config.decoder == "ssru" else _self_attention(config, rotary, causal=True)
    )
    memory_attention = partial(
        EncoderDecoderAttention,
        width,
        config.heads,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout=config.attention_dropout,
        bias=bias,
    )

    def final_norm() -> nn.Module | None:
        return _norm(config) if config.has_final_norm else None

    encoder = Encoder(
        [
            EncoderLayer(encoder_attention(), feed_forward(), encoder_residual)
            for _ in range(config.encoder_layers)
        ],
        final_norm(),
    )
    decoder = Decoder(
        [
            DecoderLayer(decoder_attention(), memory_attention(), feed_forward(), residual)
            for _ in range(config.decoder_layers)
        ],
        final_norm(),
    )
    return encoder, decoder
