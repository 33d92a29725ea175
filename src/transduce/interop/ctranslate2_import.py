"""Read CTranslate2 models and Argos Translate packages: weights of any type become float32."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from transduce.config import TransformerConfig, validate
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError
from transduce.files import read_json_object
from transduce.interop import argos
from transduce.interop.ctranslate2_file import CTranslate2File, float_weights, read_ctranslate2
from transduce.interop.ctranslate2_table import EMBEDDINGS, OUTPUT, POSITIONS, ctranslate2_rows
from transduce.interop.ctranslate2_vocabulary import (
    COPY,
    REMEDY,
    SIDES,
    add_padding,
    option,
    other_target,
    own_tokenizer,
    read_tokenizer,
    read_vocabulary,
    special_tokens,
    tokens_of,
)
from transduce.interop.imported import Format, Imported
from transduce.interop.marian_file import is_marian
from transduce.interop.positions import position_settings
from transduce.interop.tables import Row, import_rows, with_zero_biases
from transduce.models.build import build
from transduce.nn.positional import BASE

MODEL, CONFIG = "model.bin", "config.json"
_ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
_GATED = {"swish": "swiglu", "gelu": "geglu"}
# Options that change the computation, and the only value of them that is supported.
_REQUIRED = {
    "alibi": 0,
    "scale_alibi": 0,
    "multi_query_attention": 0,
    "parallel_residual": 0,
    "shared_layer_norm": 0,
    "sliding_window": 0,
    "scale_outputs": 0,
}
_NO_CONFIG = (
    f"there is no {CONFIG}: the special tokens are assumed to be <s> and </s>, and the epsilon of norms 1e-5"
)
_HARMLESS = {"alibi_use_positive_positions", "alignment_layer", "alignment_heads", "embeddings_merge"}
_OF_SINES = ("sine_layout", "sine_spacing", "first_position")
_OF_HEADS = ("head_dim", "rotary_dim", "rotary_interleave", "rotary_base")  # in every layer
_USED = {"activation", "num_heads", "pre_norm", "scale_embeddings", "start_from_zero_embedding"}


def recognises(path: Path) -> bool:
    """Return whether this is a folder with a ``model.bin``, that file, or an Argos package."""
    if path.is_dir():
        return any(_is_model(folder / MODEL) for folder in (path, path / "model"))
    return _is_package(path) or _is_model(path)


def _is_model(path: Path) -> bool:
    return path.name == MODEL and path.is_file() and not is_marian(path)


def _is_package(path: Path) -> bool:
    return path.suffix == argos.SUFFIX and path.is_file()


def read(path: Path) -> Imported:
    """Read a folder of CTranslate2, or an Argos package (a file, or unpacked)."""
    if _is_package(path):
        with TemporaryDirectory() as temporary:
            imported = read(argos.unpack(path, Path(temporary)))
        assert imported.tokenizer is not None  # noqa: S101 (CTranslate2's models have one)
        return replace(imported, translate=partial(_translate, path, imported.tokenizer))
    path = path.parent if path.is_file() and path.name == MODEL else path
    folder = path / "model" if not (path / MODEL).is_file() and (path / "model").is_dir() else path
    file = read_ctranslate2(folder)
    if file.spec != "TransformerSpec":
        raise ArtifactError(f"{file.path} holds a {file.spec}, not an encoder-decoder model", REMEDY)
    fields = read_json_object(folder / CONFIG, remedy=COPY) if (folder / CONFIG).exists() else {}
    vocabularies = [read_vocabulary(folder, side) for side in SIDES]
    state = float_weights(file)
    known = _config(file, state, fields)
    folders = [path, folder]
    tokenizer = own_tokenizer(folders, vocabularies)
    if tokenizer is None:
        tokens, special = special_tokens(file, fields, vocabularies, state)
        tokenizer = read_tokenizer(folders, tokens, special)
    else:
        tokens = tokens_of(tokenizer)
        if tokens != vocabularies:
            add_padding(state, tokenizer.vocabulary.pad)
    config = known.model_copy(update={"fixed_padding": tokens != vocabularies})
    model = build(config, tokenizer.vocabulary)
    ours = dict(model.named_parameters())
    rows = [row for row in ctranslate2_rows(config) if all(name in ours for name in row.ours)]
    import_rows(model, rows, with_zero_biases(rows, _without_copies(rows, state), model))
    translate = partial(_translate, folder, tokenizer)
    languages = argos.languages_in(path)
    notes = () if (folder / CONFIG).exists() else (_NO_CONFIG,)
    return Imported(
        model.eval(),
        tokenizer,
        notes,
        languages,
        library="CTranslate2",
        translate=translate,
        other_target=other_target(folders, tokenizer),
    )


def _translate(folder: Path, tokenizer: TokenizerPair, lines: list[str]) -> list[str] | None:
    """Translate greedily with the ``ctranslate2`` package; ``folder`` may be an Argos package."""
    try:
        import ctranslate2
    except ImportError:
        return None
    if _is_package(folder):
        with TemporaryDirectory() as temporary:
            unpacked = argos.unpack(folder, Path(temporary))
            inside = unpacked / "model"
            return _translate(inside if inside.is_dir() else unpacked, tokenizer, lines)
    source, target = tokenizer.source, tokenizer.target
    pieces = [[source.token_at(token) for token in row] for row in source.encode(lines)]
    try:
        engine = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    except RuntimeError as error:  # such as of an older package
        raise ArtifactError(f"it cannot load the model: {error}", "install a newer ctranslate2") from error
    found = engine.translate_batch(pieces, beam_size=1)
    rows = ([target.id_of(token) for token in result.hypotheses[0]] for result in found)
    return [target.decode([token for token in row if token is not None]) for row in rows]


def _config(
    file: CTranslate2File, state: Mapping[str, Tensor], fields: Mapping[str, Any]
) -> TransformerConfig:
    """Return the configuration that the options and tensors of a file describe."""
    _check_options(file)
    sizes = {name: tensor.shape for name, tensor in state.items()}
    inner = sizes.get("encoder/layer_0/ffn/linear_0/weight")
    if inner is None or OUTPUT not in sizes:
        raise ArtifactError(f"{file.path} has no layers", REMEDY)
    width = inner[1]
    activation = _ACTIVATIONS.get(int(option(file, "encoder/activation", 0)))
    if activation is None:
        raise ArtifactError(f"{file.path} has an activation that is not supported", REMEDY)
    if "encoder/layer_0/ffn/linear_0_noact/weight" in sizes:
        if activation not in _GATED:
            raise ArtifactError(f"{file.path} has gated feed-forward networks with {activation}", REMEDY)
        activation = _GATED[activation]
    scale = option(file, "encoder/scale_embeddings", 1)
    data: dict[str, Any] = {
        "encoder_layers": _count(sizes, "encoder"),
        "decoder_layers": _count(sizes, "decoder"),
        "d_model": width,
        "d_ff": inner[0],
        "heads": int(option(file, "encoder/num_heads", 8)),
        "activation": activation,
        "norm": "pre" if option(file, "encoder/pre_norm", 1) else "post",
        "normalization": _normalization(file, sizes),
        "norm_epsilon": fields.get("layer_norm_epsilon") or 1e-5,
        "final_norm": "encoder/layer_norm/gamma" in sizes,
        "embedding_norm": "encoder/layernorm_embedding/gamma" in sizes,
        "share": _sharing(file),
        "scale_embeddings": scale == 1 or math.isclose(scale, width**0.5, rel_tol=1e-6),
        "output_bias": True,
        **position_settings(
            *(state.get(name) for name in POSITIONS),
            absent={"sine_layout": "halves", "sine_spacing": "endpoint", "first_position": 1},
        ),
    }
    data |= _head_settings(file, sizes, width, data["heads"])
    if data["positions"] == "rotary":
        data = {name: value for name, value in data.items() if name not in _OF_SINES}
    if scale not in (0, 1) and not data["scale_embeddings"]:
        raise ArtifactError(f"{file.path} multiplies embeddings by {scale}", REMEDY)
    return validate(TransformerConfig, data, where=str(file.path))


def _normalization(file: CTranslate2File, sizes: Mapping[str, Any]) -> str:
    """Return the kind of all norms: in CTranslate2, those without a bias are RMS norms."""
    norms = {name.removesuffix("/gamma") for name in sizes if name.endswith("/gamma")}
    without_bias = {name for name in norms if f"{name}/beta" not in sizes}
    if without_bias and without_bias != norms:
        raise ArtifactError(f"{file.path} has layer norms and RMS norms, which is not supported", REMEDY)
    return "rms" if without_bias else "layer"


def _check_options(file: CTranslate2File) -> None:
    """Refuse options that change the computation in ways that our blocks do not have."""
    for name, value in file.variables.items():
        stack, _, kind = name.partition("/")
        last = kind.rpartition("/")[2]
        if (
            value.dim()
            or stack not in ("encoder", "decoder")
            or kind in _HARMLESS | _USED
            or last in _OF_HEADS
        ):
            continue
        if kind.endswith(("weight_scale", "_scale")):  # of a matrix in int16
            continue
        if _REQUIRED.get(last) != float(value):
            raise ArtifactError(f"{file.path} has {name} = {float(value):g}, which is not supported", REMEDY)
    for kind in ("num_heads", "pre_norm", "activation", "scale_embeddings"):
        encoder, decoder = (option(file, f"{stack}/{kind}", -1) for stack in ("encoder", "decoder"))
        if encoder != decoder:
            raise ArtifactError(
                f"{file.path} has an encoder with {kind} = {encoder:g} and a decoder with {decoder:g}",
                REMEDY,
            )


def _head_settings(file: CTranslate2File, sizes: Mapping[str, Any], width: int, heads: int) -> dict[str, Any]:
    """Return the width of heads and whether positions are rotary, which every layer says for itself."""
    found: dict[str, float | None] = {}
    for kind in _OF_HEADS:
        blocks = "self_attention" if kind.startswith("rotary") else "attention"  # of both kinds
        suffix = f"{blocks}/linear_0/weight"
        places = [name.removesuffix("linear_0/weight") + kind for name in sizes if name.endswith(suffix)]
        values = {option(file, place, -1) for place in places} or {-1.0}
        if len(values) > 1:
            raise ArtifactError(f"{file.path} has layers with different values of {kind}", REMEDY)
        (value,) = values
        found[kind] = None if value == -1 else value
    d_k = int(found["head_dim"] or width // max(1, heads))
    data: dict[str, Any] = {} if found["head_dim"] is None else {"d_k": d_k, "d_v": d_k}
    if found["rotary_dim"] is None:
        return data
    rotated = int(found["rotary_dim"]) or d_k  # 0 stands for all
    known = rotated == d_k - d_k % 2 and found["rotary_interleave"] == 1 and found["rotary_base"] == BASE
    if not known or any(name in sizes for name in POSITIONS):
        raise ArtifactError(
            f"{file.path} has rotary positions of another kind: only those that rotate all pairs of "
            f"neighbouring dimensions, with a base of {BASE:g}, are supported",
            REMEDY,
        )
    return {**data, "positions": "rotary"}


def _count(sizes: Mapping[str, Any], stack: str) -> int:
    """Return the number of layers."""
    return len(
        {name.split("/")[1] for name in sizes if name.startswith(f"{stack}/layer_") and name.count("/") > 2}
    )


def _sharing(file: CTranslate2File) -> str:
    """Return which embeddings are one matrix."""

    def stored(name: str) -> str:
        return file.aliases.get(name, name)

    source, target, output = map(stored, EMBEDDINGS)
    if target == output:
        return "all" if source == target else "target"
    return "inputs" if source == target else "none"


def _without_copies(rows: list[Row], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out what is known: other names of shared embeddings, and sinusoids."""
    named = {name for row in rows for name in row.theirs}
    known = {*EMBEDDINGS, *POSITIONS}
    return {name: tensor for name, tensor in state.items() if name in named or name not in known}


FORMAT = Format("ctranslate2", "a folder of CTranslate2 or an Argos Translate package", recognises, read)
