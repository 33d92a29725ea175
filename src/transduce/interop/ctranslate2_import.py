"""Read CTranslate2 models and Argos Translate packages: weights of any type become float32.

A vocabulary without a padding token gets one, whose embedding is zero and whose logit is far below all
others. It is also what a decoder reads first that starts from a zero embedding.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from transduce.config import TransformerConfig, validate
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError
from transduce.files import read_json, read_json_object, read_text
from transduce.interop import argos
from transduce.interop.added_padding import PAD, add_logit, add_row, add_token
from transduce.interop.ctranslate2_file import CTranslate2File, float_weights, read_ctranslate2
from transduce.interop.ctranslate2_table import EMBEDDINGS, OUTPUT, OUTPUT_BIAS, POSITIONS, ctranslate2_rows
from transduce.interop.imported import Format, Imported
from transduce.interop.marian_file import is_marian
from transduce.interop.positions import position_settings
from transduce.interop.tables import Row, import_rows, with_zero_biases
from transduce.models.build import build

MODEL, CONFIG = "model.bin", "config.json"
_SENTENCEPIECE = "sentencepiece.model"
_SIDES = ("source", "target")
_PADDING = ("<pad>", "<blank>", "[PAD]", "<PAD>")
_LARGEST_VOCABULARY = 1 << 26  # bytes
_COPY = "copy the model again"
_ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
_GATED = {"swish": "swiglu", "gelu": "geglu"}
_REMEDY = "convert the original model instead, or use the ctranslate2 package"
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
_HARMLESS = {"alibi_use_positive_positions", "alignment_layer", "alignment_heads", "embeddings_merge"}
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
        raise ArtifactError(f"{file.path} holds a {file.spec}, not an encoder-decoder model", _REMEDY)
    fields = read_json_object(folder / CONFIG, remedy=_COPY) if (folder / CONFIG).exists() else {}
    vocabularies = [_vocabulary(folder, side) for side in _SIDES]
    state = float_weights(file)
    known = _config(file, state, fields)
    tokens, special = _special_tokens(file, fields, vocabularies, state)
    tokenizer = _tokenizer([path, folder], tokens, special)
    config = known.model_copy(update={"fixed_padding": tokens != vocabularies})
    model = build(config, tokenizer.vocabulary)
    ours = dict(model.named_parameters())
    rows = [row for row in ctranslate2_rows(config) if all(name in ours for name in row.ours)]
    import_rows(model, rows, with_zero_biases(rows, _without_copies(rows, state), model))
    translate = partial(_translate, folder, tokenizer)
    languages = argos.languages_in(path)
    return Imported(model.eval(), tokenizer, (), languages, library="CTranslate2", translate=translate)


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
    except RuntimeError:  # an older package
        return None
    found = engine.translate_batch(pieces, beam_size=1)
    rows = ([target.id_of(token) for token in result.hypotheses[0]] for result in found)
    return [target.decode([token for token in row if token is not None]) for row in rows]


def _vocabulary(folder: Path, side: str) -> list[str]:
    """Read the tokens of one side, in JSON or, in older models, one per line."""
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        if (folder / f"{name}.json").exists():
            tokens = read_json(folder / f"{name}.json", limit=_LARGEST_VOCABULARY, remedy=_COPY)
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise ArtifactError(f"{folder / name}.json is not a list of tokens", _COPY)
            return tokens
        path = folder / f"{name}.txt"
        if path.exists():
            return read_text(path, limit=_LARGEST_VOCABULARY, remedy=_COPY).rstrip("\n").split("\n")
    raise ArtifactError(f"{folder} has no vocabulary: shared_vocabulary.json is missing", _COPY)


def _option(file: CTranslate2File, name: str, default: float) -> float:
    value = file.variables.get(name)
    return default if value is None or value.dim() else float(value)


def _config(
    file: CTranslate2File, state: Mapping[str, Tensor], fields: Mapping[str, Any]
) -> TransformerConfig:
    """Return the configuration that the options and tensors of a file describe."""
    _check_options(file)
    sizes = {name: tensor.shape for name, tensor in state.items()}
    inner = sizes.get("encoder/layer_0/ffn/linear_0/weight")
    if inner is None or OUTPUT not in sizes:
        raise ArtifactError(f"{file.path} has no layers", _REMEDY)
    width = inner[1]
    activation = _ACTIVATIONS.get(int(_option(file, "encoder/activation", 0)))
    if activation is None:
        raise ArtifactError(f"{file.path} has an activation that is not supported", _REMEDY)
    if "encoder/layer_0/ffn/linear_0_noact/weight" in sizes:
        if activation not in _GATED:
            raise ArtifactError(f"{file.path} has gated feed-forward networks with {activation}", _REMEDY)
        activation = _GATED[activation]
    scale = _option(file, "encoder/scale_embeddings", 1)
    data = {
        "encoder_layers": _count(sizes, "encoder"),
        "decoder_layers": _count(sizes, "decoder"),
        "d_model": width,
        "d_ff": inner[0],
        "heads": int(_option(file, "encoder/num_heads", 8)),
        "activation": activation,
        "norm": "pre" if _option(file, "encoder/pre_norm", 1) else "post",
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
    if scale not in (0, 1) and not data["scale_embeddings"]:
        raise ArtifactError(f"{file.path} multiplies embeddings by {scale}", _REMEDY)
    return validate(TransformerConfig, data, where=str(file.path))


def _normalization(file: CTranslate2File, sizes: Mapping[str, Any]) -> str:
    """Return the kind of all norms: in CTranslate2, those without a bias are RMS norms."""
    norms = {name.removesuffix("/gamma") for name in sizes if name.endswith("/gamma")}
    without_bias = {name for name in norms if f"{name}/beta" not in sizes}
    if without_bias and without_bias != norms:
        raise ArtifactError(f"{file.path} has layer norms and RMS norms, which is not supported", _REMEDY)
    return "rms" if without_bias else "layer"


def _check_options(file: CTranslate2File) -> None:
    """Refuse options that change the computation in ways that our blocks do not have."""
    for name, value in file.variables.items():
        stack, _, option = name.partition("/")
        if value.dim() or stack not in ("encoder", "decoder") or option in _HARMLESS | _USED:
            continue
        if option.endswith(("weight_scale", "_scale")):  # of a matrix in int16
            continue
        if _REQUIRED.get(option.rpartition("/")[2]) != float(value):
            raise ArtifactError(f"{file.path} has {name} = {float(value):g}, which is not supported", _REMEDY)
    for option in ("num_heads", "pre_norm", "activation", "scale_embeddings"):
        encoder, decoder = (_option(file, f"{stack}/{option}", -1) for stack in ("encoder", "decoder"))
        if encoder != decoder:
            raise ArtifactError(
                f"{file.path} has an encoder with {option} = {encoder:g} and a decoder with {decoder:g}",
                _REMEDY,
            )


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


def _special_tokens(
    file: CTranslate2File,
    fields: Mapping[str, Any],
    vocabularies: list[list[str]],
    state: dict[str, Tensor],
) -> tuple[list[list[str]], SpecialTokens]:
    """Return both sides' tokens and how sequences begin and end; add a padding token where there is none."""
    eos = str(fields.get("eos_token") or "</s>")
    start = str(fields.get("decoder_start_token") or fields.get("bos_token") or "<s>")
    from_zero = bool(_option(file, "decoder/start_from_zero_embedding", 0))
    known = [token for token in _PADDING if _has_one_id(token, vocabularies)]
    if known and not from_zero:
        pad = known[0]
    else:
        pad = next(name for name in (PAD, "<padding>") if not any(name in tokens for tokens in vocabularies))
        place, vocabularies = add_token(vocabularies, pad)
        _add_token(state, place)
    for side, tokens in zip(_SIDES, vocabularies, strict=True):
        if eos not in tokens:
            raise ArtifactError(f"the {side} vocabulary of {file.path.parent} has no {eos}", _REMEDY)
    bos = pad if from_zero else start
    if bos not in vocabularies[1]:
        raise ArtifactError(f"the target vocabulary of {file.path.parent} has no {bos}", _REMEDY)
    prefix = [str(fields.get("bos_token") or "<s>")] if fields.get("add_source_bos") else []
    suffix = [eos] if fields.get("add_source_eos", True) else []
    special = SpecialTokens(pad=pad, bos=bos, eos=eos, source_prefix=prefix, source_suffix=suffix)
    return vocabularies, special


def _has_one_id(token: str, vocabularies: list[list[str]]) -> bool:
    """Return whether a token is in all vocabularies, at the same place."""
    return all(
        token in tokens and tokens.index(token) == vocabularies[0].index(token) for tokens in vocabularies
    )


def _add_token(state: dict[str, Tensor], place: int) -> None:
    """Add a token with an embedding of zeros, which is never predicted."""
    for name in EMBEDDINGS:
        state[name] = add_row(state[name], place)
    output = state[OUTPUT]
    state[OUTPUT_BIAS] = add_logit(state.get(OUTPUT_BIAS, output.new_zeros(len(output) - 1)), place)


def _tokenizer(folders: list[Path], tokens: list[list[str]], special: SpecialTokens) -> TokenizerPair:
    """Read the SentencePiece models beside the weights: one for both sides, or one each."""
    sides: list[tuple[Path, list[str]]] = []
    for side, names in zip(_SIDES, tokens, strict=True):
        candidates = (_SENTENCEPIECE, f"{side}.spm", f"{side}.model", "sentencepiece.bpe.model", "spm.model")
        found = [folder / name for folder in folders for name in candidates if (folder / name).is_file()]
        if not found:
            raise ArtifactError(
                f"{folders[0]} has no {_SENTENCEPIECE}, source.spm or target.spm",
                "copy the SentencePiece model that belongs to it into the folder",
            )
        sides.append((found[0], names))
    if sides[0] == sides[1]:
        both = _side(*sides[0])
        return TokenizerPair(both, both, special=special)
    source, target = (_side(*each) for each in sides)
    return TokenizerPair(source, target, special=special)


def _side(path: Path, tokens: list[str]) -> SideTokenizer:
    return SideTokenizer(read_sentencepiece(path), tokens, name=str(path))


def _without_copies(rows: list[Row], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out what is known: other names of shared embeddings, and sinusoids."""
    named = {name for row in rows for name in row.theirs}
    known = {*EMBEDDINGS, *POSITIONS}
    return {name: tensor for name, tensor in state.items() if name in named or name not in known}


FORMAT = Format("ctranslate2", "a folder of CTranslate2 or an Argos Translate package", recognises, read)
