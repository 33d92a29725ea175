"""Export to CTranslate2, an inference engine."""

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from transduce.artifact.staging import move, require_new, staging
from transduce.config import TransformerConfig
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError, ConfigError, DependencyError
from transduce.files import user_path
from transduce.interop.added_padding import added_padding, without_row
from transduce.interop.ctranslate2_table import (
    EMBEDDINGS,
    GATED,
    OUTPUT_BIAS,
    POSITIONS,
    copies,
    ctranslate2_rows,
    is_norm,
)
from transduce.interop.tables import export_rows
from transduce.models.transformer import Transformer
from transduce.nn.positional import sinusoids

LONGEST = 2048  # their table of positions is limited, ours is not
Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]


def export_ctranslate2(
    model: Transformer,
    folder: str | Path,
    tokenizer: TokenizerPair | None = None,
    *,
    quantization: Quantization | None = None,
    positions: int = LONGEST,
) -> None:
    """Write a folder for ``ctranslate2.Translator``, which reads and writes at most ``positions`` tokens.

    Its tokens are those of the tokenizer, which is saved in the same folder, or else the ids as text. It adds
    the end-of-sentence token to a source itself, unless the tokenizer puts other tokens around a source.
    """
    folder = user_path(folder)
    config = model.config
    _check(config, quantization)
    spec = _specification(config)
    _fill(spec, model, positions)
    row = model.target_embedding.weight[model.vocabulary.bos]
    spec.decoder.start_from_zero_embedding = not bool(row.any())
    source, target = token_names(model, tokenizer)
    spec.register_source_vocabulary(list(source.values()))
    spec.register_target_vocabulary(list(target.values()))
    unknown = {"<unk>", "[UNK]"} & set(source.values()) & set(target.values())
    # CTranslate2 needs the name of an unknown token; a tokenizer without one never produces it.
    last = target[max(target)]
    spec.config.unk_token = min(unknown, default=target.get(model.vocabulary.pad, last))
    # A decoder that starts from a zero embedding takes any token as its first one.
    any_start = "<s>" if "<s>" in target.values() else target[model.vocabulary.eos]
    spec.config.bos_token = target.get(model.vocabulary.bos, any_start)
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.eos_token = target[model.vocabulary.eos]
    # Other tokens around a source are left to the caller.
    spec.config.add_source_eos = tokenizer is None or adds_end(tokenizer)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    require_new(folder)
    with staging(folder) as new:
        spec.save(str(new))
        if tokenizer is not None:
            tokenizer.save(new)
        move(new, folder)


def adds_end(tokenizer: TokenizerPair) -> bool:
    """Return whether a source is followed by the end-of-sentence token, and by nothing else."""
    return not tokenizer.source_prefix and tokenizer.source_suffix == [tokenizer.vocabulary.eos]


def token_names(model: Transformer, tokenizer: TokenizerPair | None) -> tuple[dict[int, str], dict[int, str]]:
    """Return our ids of all source and target tokens in an exported folder, in its order, and their names.

    A padding token that an import has added is left out.
    """
    sides = (tokenizer.source, tokenizer.target) if tokenizer else (None, None)
    sizes, place = (model.vocabulary.source, model.vocabulary.target), added_padding(model)
    source, target = (
        {number: name for number, name in enumerate(_names(*each)) if number != place}
        for each in zip(sides, sizes, strict=True)
    )
    return source, target


def _check(config: TransformerConfig, quantization: str | None) -> None:
    if quantization is not None and quantization not in get_args(Quantization):
        known = ", ".join(get_args(Quantization))
        raise ConfigError(f"CTranslate2 has no quantization {quantization!r}", f"use one of: {known}")
    if config.attention.kind != "full":
        raise ConfigError(
            f"CTranslate2 has full attention, but the model has {config.attention.kind!r} attention",
            "use a model with full attention",
        )
    if config.source_factors:
        raise ConfigError(
            f"CTranslate2 has no source factors, but the model has source_factors = {config.source_factors}",
            "use transduce translate",
        )
    if config.decoder != "attention":
        raise ConfigError(
            f"CTranslate2 has self-attention in its decoder, but the model has decoder = {config.decoder!r}",
            "use transduce translate, or --to marian",
        )
    if not config.mask_padding:
        raise ConfigError(
            "CTranslate2 hides padding from attention, but the model has mask_padding = false",
            "use transduce translate",
        )
    width = config.d_model / config.heads
    if (config.d_k or width) != (config.d_v or width):
        raise ConfigError(
            f"CTranslate2 needs d_k = d_v, but the model has d_k = {config.d_k} and d_v = {config.d_v}",
            "use another format",
        )


_ACTIVATIONS = {  # their names
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "swish": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}


def _specification(config: TransformerConfig) -> Any:
    """Return an empty specification of the model's sizes."""
    try:
        from ctranslate2.specs import common_spec, transformer_spec
    except ImportError as error:
        raise DependencyError(
            "the export needs ctranslate2, which is not installed", "run: pip install ctranslate2"
        ) from error
    activation = _ACTIVATIONS[config.activation]
    d_k = config.d_k or config.d_model // config.heads
    options = {
        "pre_norm": config.has_final_norm,  # the only way to ask for a final norm; corrected below
        "layernorm_embedding": config.embedding_norm,
        "activation": common_spec.Activation[activation],
        "ffn_glu": config.activation in GATED,
        "rms_norm": config.normalization == "rms",
        "head_dim": config.d_k,
        "rotary_dim": d_k - d_k % 2 if config.positions == "rotary" else None,
        "rotary_interleave": True,
    }
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **options)
    decoder = transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **options)
    for stack, norm in ((encoder, config.encoder_norm or config.norm), (decoder, config.norm)):
        stack.pre_norm = norm == "pre"
        stack.scale_embeddings = config.scale_embeddings
    return transformer_spec.TransformerSpec(encoder, decoder)


def _state(model: Transformer, positions: int) -> dict[str, Tensor]:
    """Return all tensors under their names; a padding token that an import has added is left out."""
    config, parameters = model.config, dict(model.named_parameters())
    rows = list(ctranslate2_rows(config))
    known = [row for row in rows if all(name in parameters for name in row.ours)]
    if unused := set(parameters) - {name for row in known for name in row.ours}:
        raise AssertionError(f"{min(unused)} was not exported")
    state = export_rows(model, known)
    for row in rows:
        # Without a bias, CTranslate2 would not subtract the mean, which only RMS norms leave in.
        if row not in known and is_norm(row.ours[0]) and config.normalization != "rms":
            state |= {name: torch.zeros(config.d_model) for name in row.theirs}
    place, by_token = added_padding(model), (*EMBEDDINGS, OUTPUT_BIAS)
    state |= {name: without_row(state[name], place) for name in by_token if name in state}
    state |= {name: state[other] for name, other in copies(config.share).items()}
    if config.positions == "sinusoidal":
        table = sinusoids(
            positions,
            config.d_model,
            start=config.first_position,
            layout=config.sine_layout,
            spacing=config.sine_spacing,
        )
        state |= dict.fromkeys(POSITIONS, table)
    elif config.positions == "none":  # if empty, CTranslate2 would use sinusoids
        state |= dict.fromkeys(POSITIONS, torch.zeros(positions, config.d_model))
    return state


def _fill(spec: Any, model: Transformer, positions: int) -> None:
    """Put every tensor in its place."""
    for name, tensor in _state(model, positions).items():
        _put(spec, name, tensor)
    if model.config.positions == "rotary":
        for stack in (spec.encoder, spec.decoder):
            stack.__dict__.pop("position_encodings", None)  # if empty, CTranslate2 would use sinusoids


def _put(spec: Any, name: str, tensor: Tensor) -> None:
    """Put a tensor in its place; an item of a list is named as in ``layer_0``."""
    *path, last = name.split("/")
    place = spec
    for part in path:
        attribute, _, number = part.rpartition("_")
        place = getattr(place, part) if hasattr(place, part) else getattr(place, attribute)[int(number)]
    setattr(place, last, _plain(tensor))


def _plain(tensor: Tensor) -> Any:
    """Return a copy as an array, because quantization scales the weights in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _names(side: SideTokenizer | None, size: int) -> list[str]:
    """Return a unique name for every id."""
    names = [(side and side.token_at(token)) or f"<{token}>" for token in range(size)]
    if len(set(names)) < len(names):
        raise ArtifactError("two ids of the tokenizer have the same token", "use another tokenizer")
    return names
