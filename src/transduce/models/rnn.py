"""The sequence-to-sequence RNN that the Transformer replaced, with and without attention.

Attention: additive (Bahdanau et al., 2015), multiplicative (Luong et al., 2015), or none (Cho et al., 2014).
"""

import torch
from torch import Tensor

from transduce.config import RNNConfig, Vocabulary
from transduce.models.embeddings import share_embeddings
from transduce.models.protocol import AttentionWeights, Model
from transduce.nn.dropout import Dropout
from transduce.nn.factor_embeddings import FactorEmbeddings, tokens_of
from transduce.nn.masks import padding_mask
from transduce.nn.recurrent import RecurrentEncoder, RecurrentEncoderLayer, RecurrentLayer, RecurrentMemory
from transduce.nn.recurrent_attention import AdditiveAttention, MultiplicativeAttention
from transduce.nn.recurrent_decoder import AttentiveLayer, RecurrentDecoder, RecurrentState


class RNN(Model):
    """A recurrent encoder-decoder: source and target tokens in, logits of the next token out."""

    config: RNNConfig
    vocabulary: Vocabulary

    def __init__(self, config: RNNConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, RNNConfig):
            raise TypeError(
                f"RNN takes an RNNConfig, such as preset('rnn').model, not {type(config).__name__}"
            )
        self.config = config
        self.vocabulary = vocabulary
        self.source_embedding, self.target_embedding, self.output = share_embeddings(
            vocabulary, config.d_model, config.share
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = _encoder(config)
        self.decoder = _decoder(config)
        self.factor_embeddings = FactorEmbeddings(config.source_factors, config.d_model)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (batch, target, vocabulary) from source (batch, source) and target (batch, target).

        The logits at a position predict the token after it: ``target`` starts with ``bos``.
        """
        return self.output.logits(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor) -> RecurrentMemory:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors)."""
        tokens = tokens_of(source)
        x = self.dropout(self.factor_embeddings(self.source_embedding(tokens), source))
        memory: RecurrentMemory = self.encoder(x, padding_mask(tokens, self.vocabulary.pad))
        return memory

    def decode(
        self, target: Tensor, memory: RecurrentMemory, weights: AttentionWeights | None = None
    ) -> Tensor:
        """Decode a whole target, (batch, target) → (batch, target, d_model), ready for the output layer.

        Attention weights are added to ``weights`` if given.
        """
        if len(target) != len(memory.mask):
            raise ValueError(f"got {len(memory.mask)} sources, but {len(target)} targets")
        x = self.dropout(self.target_embedding(target))
        decoded: Tensor = self.decoder(x, memory, None if weights is None else weights.encoder_decoder)
        return decoded

    def start(self, memory: RecurrentMemory, capacity: int = 0) -> RecurrentState:
        """Return the state before the first target token; it does not grow, so ``capacity`` has no effect."""
        return self.decoder.start(memory)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: RecurrentState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives the attention to the source, (targets, 1, source), if the model has attention.
        """
        if tokens.shape != state.layers[0].shape[:1]:
            raise ValueError(
                f"expected one token for each of {len(state.layers[0])} hypotheses, not {tuple(tokens.shape)}"
            )
        x = self.dropout(self.target_embedding(tokens))
        return self.output.logits(self.decoder.step(x, state, record))

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the attention to the source, (batch, 1, target, source); empty without attention."""
        weights = AttentionWeights()
        self.decode(target, self.encode(source), weights)
        return weights

    @property
    def max_length(self) -> int | None:
        """``None``: sources and targets may have any length."""
        return None


def _encoder(config: RNNConfig) -> RecurrentEncoder:
    inputs = [config.d_model, *[_d_memory(config)] * (config.encoder_layers - 1)]
    return RecurrentEncoder(
        [
            RecurrentEncoderLayer(config.cell, width, config.d_hidden, bidirectional=config.bidirectional)
            for width in inputs
        ],
        config.dropout,
    )


def _decoder(config: RNNConfig) -> RecurrentDecoder:
    hidden, memory = config.d_hidden, _d_memory(config)
    attention: AdditiveAttention | MultiplicativeAttention | None = None
    if config.attention == "additive":
        attention = AdditiveAttention(hidden, memory, hidden)
    elif config.attention == "multiplicative":
        attention = MultiplicativeAttention(hidden, memory)
    return RecurrentDecoder(
        AttentiveLayer(config.cell, config.d_model, memory, hidden, attention),
        [RecurrentLayer(config.cell, hidden, hidden) for _ in range(config.decoder_layers - 1)],
        config.d_model,
        config.dropout,
    )


def _d_memory(config: RNNConfig) -> int:
    """Return the width of the encoder's states."""
    return 2 * config.d_hidden if config.bidirectional else config.d_hidden
