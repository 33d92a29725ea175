"""The sequence-to-sequence RNN with attention, which the Transformer grew out of, and the plain one before.

Attention: additive (Bahdanau et al., 2015), multiplicative (Luong et al., 2015), or none (Cho et al., 2014).
"""

import torch
from torch import Tensor

from transduce.config import RNNConfig, Vocabulary
from transduce.models.embeddings import share_embeddings
from transduce.models.protocol import AttentionWeights, Model
from transduce.nn.attention import AdditiveAttention, MultiplicativeAttention
from transduce.nn.dropout import Dropout
from transduce.nn.recurrent import RecurrentEncoder, RecurrentEncoderLayer, RecurrentLayer, RecurrentMemory
from transduce.nn.recurrent_decoder import AttentiveLayer, RecurrentDecoder, RecurrentState


class RNN(Model):
    """Tokens in, logits of the next token out."""

    config: RNNConfig
    vocabulary: Vocabulary

    def __init__(self, config: RNNConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, RNNConfig):
            raise TypeError(f"give an RNNConfig, such as preset('rnn').model, not a {type(config).__name__}")
        self.config = config
        self.vocabulary = vocabulary
        self.source_embedding, self.target_embedding, self.output = share_embeddings(
            vocabulary, config.d_model, config.share
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = _encoder(config)
        self.decoder = _decoder(config)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (batch, source) and target (batch, target) tokens → logits (batch, target, vocabulary).

        The logits at a position are for the token after it: ``target`` starts with ``bos``.
        """
        return self.output.logits(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor) -> RecurrentMemory:
        """Read the source: (batch, source)."""
        memory: RecurrentMemory = self.encoder(
            self.dropout(self.source_embedding(source)), source != self.vocabulary.pad
        )
        return memory

    def decode(
        self, target: Tensor, memory: RecurrentMemory, weights: AttentionWeights | None = None
    ) -> Tensor:
        """Read the target, (batch, target), with the source in view → (batch, target, d_model).

        The attention weights are added to ``weights``, if given.
        """
        if len(target) != len(memory.mask):
            raise ValueError(f"{len(memory.mask)} sources, but {len(target)} targets")
        x = self.dropout(self.target_embedding(target))
        decoded: Tensor = self.decoder(x, memory, None if weights is None else weights.encoder_decoder)
        return decoded

    def start(self, memory: RecurrentMemory, capacity: int = 0) -> RecurrentState:
        """Before the first target token; a state stays as large as it is, whatever the ``capacity``."""
        return self.decoder.start(memory)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: RecurrentState, record: list[Tensor] | None = None) -> Tensor:
        """Read one target token a row, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives this step's attention to the source, (targets, 1, source), if there is attention.
        """
        if tokens.shape != state.layers[0].shape[:1]:
            raise ValueError(
                f"{len(state.layers[0])} sentences are under way, but tokens are {tuple(tokens.shape)}"
            )
        x = self.dropout(self.target_embedding(tokens))
        return self.output.logits(self.decoder.step(x, state, record))

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Where the decoder looks while it reads this target: (batch, 1, target, source), if it looks."""
        weights = AttentionWeights()
        self.decode(target, self.encode(source), weights)
        return weights

    @property
    def max_length(self) -> int | None:
        """There is no end to what it can read."""
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
    return 2 * config.d_hidden if config.bidirectional else config.d_hidden
