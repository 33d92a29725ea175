"""Export to CTranslate2, an inference engine."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError, ConfigError, DependencyError, reason_of, remedy_for_writing
from transduce.files import user_path
from transduce.interop.appended_padding import has_appended_padding
from transduce.models.transformer import Transformer
from transduce.nn.positional import sinusoids

POSITIONS = 2048  # their table of positions is limited, ours is not
Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]

# ours → theirs, inside a layer
_LAYER = {
    "self_attention.query_key_value": "self_attention.linear.0",
    "self_attention.output": "self_attention.linear.1",
    "around_self_attention.norm": "self_attention.layer_norm",
    "feed_forward.inner": "ffn.linear_0",
    "feed_forward.outer": "ffn.linear_1",
    "around_feed_forward.norm": "ffn.layer_norm",
}
_DECODER_LAYER = {
    **_LAYER,
    "memory_attention.query": "attention.linear.0",
    "memory_attention.key_value": "attention.linear.1",
    "memory_attention.output": "attention.linear.2",
    "around_memory_attention.norm": "attention.layer_norm",
}


def export_ctranslate2(
    model: Transformer,
    folder: str | Path,
    tokenizer: TokenizerPair | None = None,
    *,
    quantization: Quantization | None = None,
    positions: int = POSITIONS,
) -> None:
    """Write a folder for ``ctranslate2.Translator``, which reads and writes at most ``positions`` tokens.

    Its tokens are those of the tokenizer, which is saved in the same folder, or else the ids as text. It adds
    the end-of-sentence token to a source itself, unless the tokenizer puts other tokens around a source.
    """
    folder = user_path(folder)
    config = model.config
    _check(config, quantization)
    spec = _specification(config)
    if unused := set(dict(model.named_parameters())) - set(_fill(spec, model, positions)):
        raise AssertionError(f"{min(unused)} was not exported")
    row = model.target_embedding.weight[model.vocabulary.bos]
    spec.decoder.start_from_zero_embedding = not bool(row.any())
    source, target = token_names(model, tokenizer)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    unknown = {"<unk>", "[UNK]"} & set(source) & set(target)
    # CTranslate2 needs the name of an unknown token; a tokenizer without one never produces it.
    spec.config.unk_token = min(unknown, default=target[min(model.vocabulary.pad, len(target) - 1)])
    # A decoder that starts from a zero embedding takes any token as its first one.
    start = "<s>" if "<s>" in target else target[model.vocabulary.eos]
    first = start if has_appended_padding(model) else target[model.vocabulary.bos]
    spec.config.bos_token = spec.config.decoder_start_token = first
    spec.config.eos_token = target[model.vocabulary.eos]
    # Other tokens around a source are left to the caller.
    spec.config.add_source_eos = tokenizer is None or adds_end(tokenizer)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    _write(spec, folder, tokenizer)


def adds_end(tokenizer: TokenizerPair) -> bool:
    """Return whether a source is followed by the end-of-sentence token, and by nothing else."""
    return not tokenizer.source_prefix and tokenizer.source_suffix == [tokenizer.vocabulary.eos]


def token_names(model: Transformer, tokenizer: TokenizerPair | None) -> tuple[list[str], list[str]]:
    """Return the names of all source and target tokens in an exported folder, in the order of their ids.

    A padding token that an import has appended is left out.
    """
    source, target = (tokenizer.source, tokenizer.target) if tokenizer else (None, None)
    appended = has_appended_padding(model)
    sizes = model.vocabulary.source - appended, model.vocabulary.target - appended
    return _names(source, sizes[0]), _names(target, sizes[1])


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
        raise ConfigError("a model with source factors cannot be exported", "use transduce translate")
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
        "ffn_glu": config.activation == "swiglu",
        "head_dim": config.d_k,
        "rotary_dim": d_k - d_k % 2 if config.positions == "rotary" else None,
        "rotary_interleave": True,
    }
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **options)
    decoder = transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **options)
    for stack in (encoder, decoder):
        stack.pre_norm = config.norm == "pre"
        stack.scale_embeddings = config.scale_embeddings
    return transformer_spec.TransformerSpec(encoder, decoder)


def _fill(spec: Any, model: Transformer, positions: int) -> Iterator[str]:
    """Put every parameter in its place, and yield its name."""
    config = model.config
    yield from _fill_ends(spec, model, positions)
    for stack, side, layer in (("encoder", "source", _LAYER), ("decoder", "target", _DECODER_LAYER)):
        theirs = getattr(spec, stack)
        for number, place in enumerate(theirs.layer):
            for our, their in layer.items():
                yield from _put(_inside(place, their), model, f"{stack}.layers.{number}.{our}")
            if config.activation == "swiglu":
                _split_gate(place.ffn)
        if config.has_final_norm:
            yield from _put(theirs.layer_norm, model, f"{stack}.final_norm")
        if config.embedding_norm:
            yield from _put(theirs.layernorm_embedding, model, f"{side}_norm")


def _fill_ends(spec: Any, model: Transformer, positions: int) -> Iterator[str]:
    """Fill embeddings, positions and output."""
    config = model.config
    end = -1 if has_appended_padding(model) else None
    spec.encoder.embeddings[0].weight = _plain(model.source_embedding.weight[:end])
    spec.decoder.embeddings.weight = _plain(model.target_embedding.weight[:end])
    spec.decoder.projection.weight = _plain(model.output.weight[:end])
    yield from ("source_embedding.weight", "target_embedding.weight", "output.weight")
    if model.output.bias is not None:
        spec.decoder.projection.bias = _plain(model.output.bias[:end])
        yield from ("source_embedding.bias", "target_embedding.bias", "output.bias")
    for stack, name in ((spec.encoder, "source_positions"), (spec.decoder, "target_positions")):
        if config.positions == "learned":
            stack.position_encodings.encodings = _plain(getattr(model, name).weight)
            yield f"{name}.weight"
        elif config.positions == "sinusoidal":
            table = sinusoids(
                positions,
                config.d_model,
                start=config.first_position,
                layout=config.sine_layout,
                spacing=config.sine_spacing,
            )
            stack.position_encodings.encodings = _plain(table)
        elif hasattr(stack, "position_encodings"):  # if empty, CTranslate2 would use sinusoids
            if config.positions == "none":
                stack.position_encodings.encodings = torch.zeros(positions, config.d_model).numpy()
            else:
                del stack.position_encodings


def _put(place: Any, model: Transformer, name: str) -> Iterator[str]:
    """Fill a linear layer or a layer norm, and yield the names of its parameters."""
    module = model.get_submodule(name)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)  # noqa: S101
    is_norm = hasattr(place, "gamma")
    setattr(place, "gamma" if is_norm else "weight", _plain(weight))
    yield f"{name}.weight"
    if isinstance(bias, Tensor):
        setattr(place, "beta" if is_norm else "bias", _plain(bias))
        yield f"{name}.bias"
    elif is_norm:  # without a bias, CTranslate2 would not subtract the mean
        place.beta = torch.zeros(len(weight)).numpy()


def _split_gate(place: Any) -> None:
    """Split the gate from the inner map: one matrix in our model, two in theirs."""
    half = len(place.linear_0.weight) // 2
    for name in ("weight", "bias") if place.linear_0.has_bias() else ("weight",):
        both = getattr(place.linear_0, name)
        setattr(place.linear_0, name, both[:half])
        setattr(place.linear_0_noact, name, both[half:])


def _inside(place: Any, path: str) -> Any:
    for name in path.split("."):
        place = place[int(name)] if name.isdigit() else getattr(place, name)
    return place


def _plain(tensor: Tensor) -> Any:
    """Return a copy as an array, because quantization scales the weights in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _names(side: SideTokenizer | None, size: int) -> list[str]:
    """Return a unique name for every id."""
    names = [(side and side.token_at(token)) or f"<{token}>" for token in range(size)]
    if len(set(names)) < len(names):
        raise ArtifactError("two ids of the tokenizer have the same token", "use another tokenizer")
    return names


def _write(spec: Any, folder: Path, tokenizer: TokenizerPair | None) -> None:
    """Write the folder completely or not at all."""
    new = folder.with_name(f".{folder.name}.new")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ArtifactError(f"{folder} is not empty", "choose another folder")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        spec.save(str(new))
        if tokenizer is not None:
            tokenizer.save(new)
        new.replace(folder)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {folder}: {reason_of(error)}", remedy_for_writing(error)
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
