"""The mapping file of ``transduce import --map``: which tensor of a state dict is what, and what is computed.

An example, for the usual tutorial's model::

    heads = 8
    scale_embeddings = true

    [tensors]
    transformer = "transformer."
    source_embedding = "src_tok_emb.embedding.weight"
    target_embedding = "tgt_tok_emb.embedding.weight"
    output_weight = "generator.weight"
    output_bias = "generator.bias"
    position_table = "positional_encoding.pos_embedding"

    [text]
    source_vocabulary = "vocab.de.json"
    target_vocabulary = "vocab.en.json"
    pad = "<pad>"
    bos = "<bos>"
    eos = "<eos>"
    source_prefix = ["<bos>"]
"""

from typing import Literal

from pydantic import Field

from transduce.config.settings import Epsilon, Id, Settings, Width


class TensorNames(Settings):
    """The table ``[tensors]``: names of tensors, and prefixes of names."""

    state: str | None = Field(
        default=None, description="Key of the state dict in the file, if the file has more than that."
    )
    transformer: str = Field(
        default="transformer.", description="Prefix of all names of the torch.nn.Transformer."
    )
    encoder: str | None = Field(
        default=None, description="Prefix of the encoder's names; transformer + 'encoder.' if unset."
    )
    decoder: str | None = Field(
        default=None, description="Prefix of the decoder's names; transformer + 'decoder.' if unset."
    )
    source_embedding: str = Field(description="Embedding of source tokens, (tokens, d_model).")
    target_embedding: str | None = Field(
        default=None, description="Embedding of target tokens; the source's if unset."
    )
    output_weight: str | None = Field(
        default=None,
        description="Weight of the output layer, (tokens, d_model); the target embedding's if unset.",
    )
    output_bias: str | None = Field(default=None, description="Bias of the output layer; none if unset.")
    position_table: str | None = Field(
        default=None, description="Stored table of positions of both sides; unset if there is none."
    )
    source_position_table: str | None = Field(
        default=None, description="Table of the source's positions, if each side has its own."
    )
    target_position_table: str | None = Field(
        default=None, description="Table of the target's positions, if each side has its own."
    )
    ignore: list[str] = Field(default=[], description="Names of tensors that are not needed.")


class TextRules(Settings):
    """The table ``[text]``: vocabularies, tokenizers and special tokens. Paths are relative to the file."""

    source_vocabulary: str | None = Field(
        default=None,
        description="File of source tokens: JSON (token → id, or a list), or text with a token per line.",
    )
    target_vocabulary: str | None = Field(
        default=None, description="File of target tokens; the source's if unset."
    )
    source_tokenizer: str = Field(
        default="words", description="'words', which splits at white space, or a tokenizer.json."
    )
    target_tokenizer: str | None = Field(
        default=None, description="The same for the target; the source's if unset."
    )
    lowercase: bool = Field(default=False, description="Whether 'words' are lower-cased.")
    pad: str | Id = Field(description="Padding token: its name or its id.")
    bos: str | Id = Field(description="Token that the decoder reads first: its name or its id.")
    eos: str | Id = Field(description="Token with which a target ends: its name or its id.")
    unknown: str | None = Field(
        default=None, description="Name of the token for unknown words; found by its usual names if unset."
    )
    source_prefix: list[str] = Field(default=[], description="Names of tokens before a source.")
    source_suffix: list[str] | None = Field(
        default=None, description="Names of tokens after a source; eos if unset."
    )


class Mapping(Settings):
    """The content of a mapping file."""

    heads: Width = Field(description="Number of attention heads (nhead).")
    scale_embeddings: bool = Field(description="Whether embeddings are multiplied by √d_model.")
    norm_first: bool = Field(default=False, description="Whether norms come before attention (norm_first).")
    activation: Literal["relu", "gelu"] = Field(
        default="relu", description="Activation of the feed-forward networks."
    )
    norm_epsilon: Epsilon = Field(default=1e-5, description="Epsilon of layer norms (layer_norm_eps).")
    positions: Literal["sinusoidal", "learned", "none"] = Field(
        default="sinusoidal", description="Kind of positional encoding."
    )
    sine_layout: Literal["interleaved", "halves"] = Field(
        default="interleaved", description="Whether sines and cosines alternate, or all sines come first."
    )
    sine_spacing: Literal["paper", "endpoint"] = Field(
        default="paper", description="Whether wavelengths are the paper's, or the longest is 10000 · 2π."
    )
    first_position: Id = Field(default=0, description="Number of the first position.")
    mask_padding: bool = Field(
        default=True, description="Whether padding was hidden from attention (src_key_padding_mask)."
    )
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Dropout, if the model is trained further.")
    tensors: TensorNames
    text: TextRules
