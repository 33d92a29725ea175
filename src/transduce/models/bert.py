"""BERT: the Transformer's encoder without a decoder, which reads in both directions (Devlin et al., 2019)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import BERTConfig, Vocabulary
from transduce.errors import ConfigError
from transduce.models.protocol import Model
from transduce.models.stack import stack
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.heads import MaskedTokenHead, Pooler
from transduce.nn.linear import Linear
from transduce.nn.masks import padding_mask
from transduce.nn.positional import LearnedPositions


class BERT(Model):
    """Text in, a vector a token out; with its heads, what was masked, or the class of the text.

    ``bos`` is [CLS] and ``eos`` is [SEP]: a text is ``[CLS] … [SEP]``, two of them ``[CLS] … [SEP] … [SEP]``.
    """

    config: BERTConfig
    vocabulary: Vocabulary

    def __init__(self, config: BERTConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, BERTConfig):
            raise TypeError(f"give a BERTConfig, such as preset('bert').model, not a {type(config).__name__}")
        self.config = config
        self.vocabulary = vocabulary
        width, eps = config.d_model, config.norm_epsilon
        self.output = Embedding(vocabulary.source, width, scaled=False)  # and input
        self.positions = LearnedPositions(config.max_length, width)
        self.segments = Embedding(config.segments, width, scaled=False)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.dropout = Dropout(config.dropout)
        self.encoder = stack(config)
        self.masked_head = MaskedTokenHead(vocabulary.source, width, eps=eps) if config.masked_head else None
        self.pooler = Pooler(width) if config.pooler else None
        self.classifier = Linear(width, len(config.classes)) if config.classes else None

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """(batch, length) → logits of what stands at each place, (batch, length, vocabulary)."""
        hidden, matrix, bias = self.guesses(self.encode(tokens, segments))
        return F.linear(hidden, matrix, bias)

    def encode(
        self, tokens: Tensor, segments: Tensor | None = None, record: list[Tensor] | None = None
    ) -> Tensor:
        """Tokens and, if they are not all of the first segment, their segments, (batch, length) each.

        Gives (batch, length, d_model). ``record`` receives each layer's weights, (batch, heads, query, key).
        """
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.positions(self.output(tokens)) + self.segments(segments)
        encoded: Tensor = self.encoder(
            self.dropout(self.norm(x)), padding_mask(tokens, self.vocabulary.pad), record
        )
        return encoded

    def guesses(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the output layer reads, (…, d_model), its matrix and its bias: logits of masked tokens."""
        if self.masked_head is None:
            raise ConfigError("the model has no head for masked tokens", "train one: transduce mlm train")
        return self.masked_head(states), self.output.weight, self.masked_head.bias

    def pool(self, states: Tensor) -> Tensor:
        """Encoded texts, (batch, length, d_model) → one vector each, (batch, d_model)."""
        if self.pooler is None:
            raise ConfigError(
                "the model has no pooler", "take the mean instead, or train one: transduce mlm finetune"
            )
        pooled: Tensor = self.pooler(states)
        return pooled

    def classify(self, states: Tensor) -> Tensor:
        """Encoded texts, (batch, length, d_model) → logits of their classes, (batch, classes)."""
        if self.classifier is None:
            raise ConfigError("the model tells no classes", "teach it some: transduce mlm finetune")
        logits: Tensor = self.classifier(self.dropout(self.pool(states)))
        return logits

    @property
    def max_length(self) -> int | None:
        """The longest text it can read, [CLS] and [SEP] included."""
        return self.config.max_length
