"""The recurrent family."""

from typing import Literal

from pydantic import Field

from transduce.config import shared_fields as shared
from transduce.config.settings import Probability, Settings, Width


class RNNConfig(Settings):
    """The sequence-to-sequence RNN, with attention (Bahdanau et al., 2015; Luong et al., 2015) or without."""

    family: Literal["rnn"] = Field(default="rnn", description="Name of the family.")
    cell: Literal["lstm", "gru"] = Field(default="lstm", description="Kind of recurrent cell.")
    encoder_layers: shared.EncoderLayers = 2
    decoder_layers: shared.DecoderLayers = 2
    d_model: Width = Field(default=512, description="Width of embeddings and of the output layer's input.")
    d_hidden: Width = Field(default=512, description="Width of a hidden state, per direction.")
    bidirectional: bool = Field(default=True, description="Whether the encoder reads in both directions.")
    attention: Literal["additive", "multiplicative", "none"] = Field(
        default="additive", description="Attention of the decoder to the source."
    )
    dropout: Probability = Field(
        default=0.2, description="Dropout on embeddings, between layers and before the output layer."
    )
    share: shared.SharedEmbeddings = "all"
    source_factors: shared.SourceFactors = Field(default=[])

    @property
    def length_limit(self) -> int | None:
        """The longest text the model can read, in tokens: unlimited."""
        return None

    @property
    def summary(self) -> str:
        """The model's sizes, in one line."""
        attention = "no" if self.attention == "none" else self.attention
        return (
            f"{self.encoder_layers}+{self.decoder_layers} {self.cell.upper()} layers, "
            f"{'bidirectional' if self.bidirectional else 'unidirectional'} encoder, d_model {self.d_model}, "
            f"d_hidden {self.d_hidden}, {attention} attention"
        )
