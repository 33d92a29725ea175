"""BERT: the Transformer's encoder without a decoder (Devlin et al., 2019)."""

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
    """Tokens in, one hidden state per token out; with its heads, logits of masked tokens or of text classes.

    ``bos`` is [CLS] and ``eos`` is [SEP]: a text is ``[CLS] … [SEP]``, two are ``[CLS] … [SEP] … [SEP]``.
    """

    config: BERTConfig
    vocabulary: Vocabulary

    def __init__(self, config: BERTConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        if not isinstance(config, BERTConfig):
            raise TypeError(
                f"BERT takes a BERTConfig, such as preset('bert').model, not {type(config).__name__}"
            )
        self.config = config
        self.vocabulary = vocabulary
        width, eps = config.d_model, config.norm_epsilon
        self.output = Embedding(vocabulary.source, width, scaled=False)  # also the input embedding
        self.positions = LearnedPositions(config.max_length, width)
        self.segments = Embedding(config.segments, width, scaled=False)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.dropout = Dropout(config.dropout)
        self.encoder = stack(config)
        self.masked_head = MaskedTokenHead(vocabulary.source, width, eps=eps) if config.masked_head else None
        self.pooler = Pooler(width) if config.pooler else None
        self.classifier = Linear(width, len(config.classes)) if config.classes else None

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Compute the logits of the token at each position: (batch, length) → (batch, length, vocabulary)."""
        hidden, matrix, bias = self.masked_token_projection(self.encode(tokens, segments))
        return F.linear(hidden, matrix, bias)

    def encode(
        self, tokens: Tensor, segments: Tensor | None = None, record: list[Tensor] | None = None
    ) -> Tensor:
        """Encode tokens, (batch, length) → (batch, length, d_model).

        ``segments`` (batch, length) are all 0 if not given. ``record`` receives each layer's attention
        weights, (batch, heads, query, key).
        """
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.positions(self.output(tokens)) + self.segments(segments)
        encoded: Tensor = self.encoder(
            self.dropout(self.norm(x)), padding_mask(tokens, self.vocabulary.pad), record=record
        )
        return encoded

    def masked_token_projection(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input, (…, d_model), matrix and bias of the output layer for masked tokens."""
        if self.masked_head is None:
            raise ConfigError(
                "the model has no head for masked tokens", "train a model that has one: transduce mlm train"
            )
        return self.masked_head(states), self.output.weight, self.masked_head.bias

    def pool(self, states: Tensor) -> Tensor:
        """Pool encoded texts, (batch, length, d_model), into one vector each, (batch, d_model)."""
        if self.pooler is None:
            raise ConfigError(
                "the model has no pooler",
                "use mean pooling, or train a model that has one: transduce mlm finetune",
            )
        pooled: Tensor = self.pooler(states)
        return pooled

    def classify(self, states: Tensor) -> Tensor:
        """Classify encoded texts, (batch, length, d_model) → logits, (batch, classes)."""
        if self.classifier is None:
            raise ConfigError("the model is not a classifier", "fine-tune it: transduce mlm finetune")
        logits: Tensor = self.classifier(self.dropout(self.pool(states)))
        return logits

    @property
    def max_length(self) -> int | None:
        """The longest text that the model can read, in tokens, [CLS] and [SEP] included."""
        return self.config.max_length
