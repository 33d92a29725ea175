"""Encoder-decoder models of Hugging Face transformers: Marian (OPUS-MT), BART, mBART, M2M-100 and NLLB.

They are the same blocks with other settings, which are listed here for each kind. T5 is none of them: it has
relative position biases, root-mean-square norms, and attention that is not scaled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from transduce.config import TransformerConfig, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face import activation, their_activation
from transduce.interop.hugging_face_weights import CONFIG

Share = Literal["all", "target", "inputs", "none"]


@dataclass(frozen=True)
class Kind:
    """A kind of model, and the settings that all its models have."""

    name: str  # model_type
    architecture: str
    norm: str
    embedding_norm: bool
    positions: str
    sine_spacing: str = "paper"
    counts_from_padding: bool = False  # whether the first position is that of the padding token, plus one
    has_bias: bool = True  # final_logits_bias
    scale: bool = False  # scale_embedding, if a config.json does not say it
    activation: str = "gelu"  # likewise

    def first_position(self, pad: int) -> int:
        """Return the number of the first position."""
        return pad + 1 if self.counts_from_padding else 0


KINDS = (
    Kind("marian", "MarianMTModel", "post", embedding_norm=False, positions="sinusoidal"),
    Kind("bart", "BartForConditionalGeneration", "post", embedding_norm=True, positions="learned"),
    Kind("mbart", "MBartForConditionalGeneration", "pre", embedding_norm=True, positions="learned"),
    Kind(
        "m2m_100",
        "M2M100ForConditionalGeneration",
        "pre",
        embedding_norm=False,
        positions="sinusoidal",
        sine_spacing="endpoint",
        counts_from_padding=True,
        has_bias=False,
        scale=True,
        activation="relu",
    ),
)


def _kind(fields: Mapping[str, Any]) -> Kind:
    for kind in KINDS:
        if fields.get("model_type") == kind.name:
            return kind
    names = ", ".join(kind.name for kind in KINDS)
    raise ArtifactError(
        f"{CONFIG} describes a model of type {fields.get('model_type')!r}", f"give one of the type {names}"
    )


def our_config(fields: Mapping[str, Any], *, share: Share, output_bias: bool) -> TransformerConfig:
    """Return the configuration that corresponds to the fields of ``config.json``, and to the weights."""
    kind = _kind(fields)
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = fields[f"encoder_{name}"], fields[f"decoder_{name}"]
        if encoder != decoder:
            raise ConfigError(
                f"encoder_{name} = {encoder!r} and decoder_{name} = {decoder!r} differ",
                "use a model with the same sizes in encoder and decoder",
            )
    sinusoidal = kind.positions == "sinusoidal"
    pad = fields.get("pad_token_id")
    data = {
        "encoder_layers": fields["encoder_layers"],
        "decoder_layers": fields["decoder_layers"],
        "d_model": fields["d_model"],
        "d_ff": fields["encoder_ffn_dim"],
        "heads": fields["encoder_attention_heads"],
        "dropout": fields.get("dropout", 0.1),
        "attention_dropout": fields.get("attention_dropout", 0.0),
        "activation_dropout": fields.get("activation_dropout", 0.0),
        "activation": activation(fields, "activation_function", kind.activation),
        "norm": kind.norm,
        "positions": kind.positions,
        "sine_layout": "halves" if sinusoidal else "interleaved",
        "sine_spacing": kind.sine_spacing,
        "first_position": kind.first_position(pad if isinstance(pad, int) else 0),
        "max_length": fields["max_position_embeddings"],
        "share": share,
        "scale_embeddings": fields.get("scale_embedding", kind.scale),
        "embedding_norm": kind.embedding_norm,
        "output_bias": output_bias,
    }
    return validate(TransformerConfig, data, where=f"the {kind.name} model")


def our_vocabulary(fields: Mapping[str, Any], generation: Mapping[str, Any]) -> Vocabulary:
    """Return sizes and special tokens; ``generation`` has the fields of ``generation_config.json``."""
    size = fields["vocab_size"]
    separate = fields.get("share_encoder_decoder_embeddings") is False
    start = token_field(fields, generation, "decoder_start_token_id")
    data = {
        "source": size,
        "target": (fields.get("decoder_vocab_size") or size) if separate else size,
        "pad": fields["pad_token_id"],
        "bos": token_field(fields, generation, "bos_token_id") if start is None else start,
        "eos": token_field(fields, generation, "eos_token_id"),
    }
    for name, token in data.items():
        if token is None:
            raise ArtifactError(
                f"{CONFIG} has no {name}_token_id", "add it, or decoder_start_token_id, to the file"
            )
    return validate(Vocabulary, data, where=f"the {fields.get('model_type')} model")


def token_field(fields: Mapping[str, Any], generation: Mapping[str, Any], name: str) -> int | None:
    """Return a token id, for which ``generation_config.json`` goes before ``config.json``."""
    for each in (generation, fields):
        token = each.get(name)
        if isinstance(token, list) and token:
            token = token[0]
        if isinstance(token, int) and not isinstance(token, bool):
            return token
    return None


def kind_of(config: TransformerConfig, vocabulary: Vocabulary) -> Kind:
    """Return the kind of model that can express this one; refuse it, naming a setting, if there is none."""
    differences = {kind.name: list(_differences(kind, config, vocabulary)) for kind in KINDS}
    nearest = min(KINDS, key=lambda kind: len(differences[kind.name]))
    for name, value, theirs in differences[nearest.name]:
        raise ConfigError(
            f"the model has {name} = {value!r}, but {nearest.architecture} of transformers has {theirs}",
            "use another format",
        )
    return nearest


def _differences(
    kind: Kind, config: TransformerConfig, vocabulary: Vocabulary
) -> Iterator[tuple[str, object, str]]:
    """Yield settings that this kind of model cannot express: name, value, and what it has instead."""
    width = config.d_model / config.heads
    first, final_norm = kind.first_position(vocabulary.pad), kind.norm == "pre"
    is_marian, by_sines = kind.name == "marian", kind.positions == "sinusoidal"
    yes = {True: "one", False: "none"}
    for name, fits, theirs in (
        ("attention.kind", config.attention.kind == "full", "full attention"),
        ("decoder", config.decoder == "attention", "self-attention in the decoder"),
        ("source_factors", not config.source_factors, "none"),
        ("activation", config.activation not in ("swiglu", "geglu"), "no gated feed-forward networks"),
        ("normalization", config.normalization == "layer", "layer norms"),
        ("norm_epsilon", config.norm_epsilon == 1e-5, "1e-5"),
        ("bias", config.bias, "biases"),
        ("mask_padding", config.mask_padding, "masked padding"),
        ("d_k", config.d_k in (None, width), "d_model divided by the heads"),
        ("d_v", config.d_v in (None, width), "d_model divided by the heads"),
        ("norm", config.norm == kind.norm, f"norm = {kind.norm!r}"),
        ("encoder_norm", config.encoder_norm in (None, kind.norm), f"norm = {kind.norm!r}"),
        ("positions", config.positions == kind.positions, f"positions = {kind.positions!r}"),
        ("final_norm", config.has_final_norm == final_norm, yes[final_norm]),
        ("embedding_norm", config.embedding_norm == kind.embedding_norm, yes[kind.embedding_norm]),
        ("sine_spacing", not by_sines or config.sine_spacing == kind.sine_spacing, repr(kind.sine_spacing)),
        ("first_position", not by_sines or config.first_position == first, str(first)),
        ("d_model", is_marian or config.d_model % 2 == 0, "an even number"),
        ("output_bias", kind.has_bias or not config.output_bias, "none"),
        ("share", is_marian or vocabulary.source == vocabulary.target, "one vocabulary"),
    ):
        if not fits:
            yield name, attrgetter(name)(config), theirs


def is_tied(kind: Kind, share: Share) -> bool:
    """Return whether all tensors that can be copies of others in such a model are."""
    return share == "all" or (kind.name == "marian" and share == "target")


def their_fields(
    config: TransformerConfig, vocabulary: Vocabulary, *, positions: int | None = None
) -> dict[str, Any]:
    """Return the fields of ``config.json`` for the same model.

    Their tables of sinusoids are limited, where ours are not: to ``positions`` tokens or, if that is not
    given, to ``max_length``.
    """
    kind = kind_of(config, vocabulary)
    is_marian = kind.name == "marian"
    if config.positions == "learned":
        positions = None
    separate = {
        "decoder_vocab_size": vocabulary.target,
        "share_encoder_decoder_embeddings": config.share in ("all", "inputs"),
    }
    return {
        "model_type": kind.name,
        "architectures": [kind.architecture],
        "vocab_size": vocabulary.source,
        **(separate if is_marian else {}),
        "max_position_embeddings": positions or config.max_length,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "activation_function": their_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embeddings,
        "tie_word_embeddings": is_tied(kind, config.share),
        "is_encoder_decoder": True,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "decoder_start_token_id": vocabulary.bos,
        "forced_eos_token_id": None,
    }
